"""Learns a model's smaller window from overflows; it is stored, shown, and can be reset."""

from datetime import datetime

from django.db import transaction

from chats.prompt import composition
from chats.providers.base import ProviderError
from chats.turns.call import ModelCall
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

# An error below this is not about a model's window, or about one that no policy works with: to
# remember it would close every chat of the model.
SMALLEST_WINDOW = 4_000


@transaction.atomic
def learn(*, model_id: int, limit: int, now: datetime) -> bool:
    """Remember that the model takes at most `limit` tokens; return False if that is nothing new."""
    model = ModelSpec.objects.select_for_update(no_key=True).filter(pk=model_id).first()
    if model is None or limit < SMALLEST_WINDOW:
        return False
    if model.window is not None and limit >= model.window:
        return False
    data = {"model": model.slug, "from": model.window, "to": limit}
    model.learned_window = limit
    model.save(update_fields=["learned_window"])
    ledger.record("model.limit_learned", actor="worker", now=now, data=data)
    return True


@transaction.atomic
def forget(*, model: ModelSpec, actor: str, now: datetime) -> ModelSpec:
    """Use the model's own window again; without a learned one nothing changes."""
    model = ModelSpec.objects.select_for_update(no_key=True).get(pk=model.pk)
    if model.learned_window is None:
        return model
    data = {"model": model.slug, "from": model.learned_window, "to": model.context_window}
    model.learned_window = None
    model.save(update_fields=["learned_window"])
    ledger.record("model.limit_reset", actor=actor, now=now, data=data)
    return model


def overflow_of(call: ModelCall, *, model: ModelSpec | None) -> ProviderError | None:
    """Return the overflow that a call met: an error, or a bill above the model's window.

    Some servers cut a prompt that is too long and reply to the rest of it.
    """
    if call.error is not None:
        is_overflow = call.error.code == "context_overflow" and not call.is_useful
        return call.error if is_overflow else None
    window = model.window if model else None
    billed = call.usage.get("input", 0)
    if window is None or billed <= window:
        return None
    return ProviderError("context_overflow", limit=window, actual=billed)


def taught(prompt: composition.Prompt, overflow: ProviderError) -> int:
    """Return the window that would have prevented an overflow, in tokens.

    It is the one that the error names, unless our estimate of the prompt was already below it: then
    the estimate is too low for this model, and the window has to make up for that.
    """
    if overflow.limit and estimate(prompt) + prompt.reserve > overflow.limit:
        return overflow.limit
    return shrunk(prompt, overflow)


def shrunk(prompt: composition.Prompt, error: ProviderError) -> int:
    """Return a smaller window after an overflow, in tokens, reserve included.

    The numbers of the error were counted by the provider and may differ from our estimate, so their
    ratio counts. A tenth is taken off, for the same reason.
    """
    room = min(prompt.prompt_limit, estimate(prompt))
    if error.limit and error.actual:
        room = min(room, estimate(prompt) * error.limit // error.actual)
    return room * 9 // 10 + prompt.reserve


def estimate(prompt: composition.Prompt) -> int:
    """Return the prompt's size in the provider's tokens, in which windows and limits are given."""
    return int(prompt.prompt_tokens * prompt.calibration)
