"""What overflows teach about a model: a smaller window, stored with it, shown, resettable."""

from datetime import datetime

from django.db import transaction

from chats import context
from chats.providers.base import ProviderError
from chats.turns.call import Call
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

# Below this an error speaks of something else than a model's window, or of one that no policy works
# with: to remember it would close every chat of the model.
SMALLEST_WINDOW = 4_000


@transaction.atomic
def learn(*, model_id: int, limit: int, now: datetime) -> bool:
    """Remember that the model takes at most `limit` tokens. False when that is nothing new."""
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
    """Believe the model's own window again; without a learned one nothing changes."""
    model = ModelSpec.objects.select_for_update(no_key=True).get(pk=model.pk)
    if model.learned_window is None:
        return model
    data = {"model": model.slug, "from": model.learned_window, "to": model.context_window}
    model.learned_window = None
    model.save(update_fields=["learned_window"])
    ledger.record("model.limit_reset", actor=actor, now=now, data=data)
    return model


def overflow_of(call: Call, *, model: ModelSpec | None) -> ProviderError | None:
    """The overflow that a call met: as an error, or as a bill above the model's window.

    Some servers cut a prompt that is too long and answer what is left of it.
    """
    if call.error is not None:
        is_overflow = call.error.code == "context_overflow" and not call.is_useful
        return call.error if is_overflow else None
    window = model.window if model else None
    billed = call.usage.get("input", 0)
    if window is None or billed <= window:
        return None
    return ProviderError("context_overflow", limit=window, actual=billed)


def taught(prompt: context.Prompt, overflow: ProviderError) -> int:
    """The window that would have prevented an overflow, in tokens.

    The one that the error names, unless our estimate of the prompt was below it already: then the
    estimate is too low for this model, and the window has to make up for that.
    """
    if overflow.limit and estimate(prompt) + prompt.reserve > overflow.limit:
        return overflow.limit
    return shrunk(prompt, overflow)


def shrunk(prompt: context.Prompt, error: ProviderError) -> int:
    """A smaller window after an overflow, in tokens, reserve included.

    What the error names was counted by the provider and need not be what our estimate says, so
    their ratio counts. A tenth is taken off, for the same reason.
    """
    room = min(prompt.prompt_limit, estimate(prompt))
    if error.limit and error.actual:
        room = min(room, estimate(prompt) * error.limit // error.actual)
    return room * 9 // 10 + prompt.reserve


def estimate(prompt: context.Prompt) -> int:
    """The prompt in the provider's tokens, which windows and limits are named in."""
    return int(prompt.prompt_tokens * prompt.calibration)
