"""Learns a smaller context window of a model from overflow errors.

Operators can see and reset the learned window on the model's admin page.
"""

from datetime import datetime

from django.db import transaction

from chats.prompt import built_prompt
from chats.providers.base import ProviderError
from chats.turns.calling import ModelCall
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

# A smaller limit does not describe the model's window, or is too small for every policy. Storing it
# would block all chats of the model.
SMALLEST_WINDOW = 4_000


@transaction.atomic
def store_learned_window(*, model_id: int, limit: int, now: datetime) -> bool:
    """Store that the model accepts at most `limit` tokens. Return False if nothing changes.

    A limit below `SMALLEST_WINDOW` or not below the current window changes nothing.
    """
    model = ModelSpec.objects.select_for_update(no_key=True).filter(pk=model_id).first()
    if model is None or limit < SMALLEST_WINDOW:
        return False
    if model.window is not None and limit >= model.window:
        return False
    data = {"model": model.slug, "from": model.window, "to": limit}
    model.learned_window = limit
    model.save(update_fields=["learned_window"])
    ledger.record_event("model.limit_learned", actor="worker", now=now, data=data)
    return True


@transaction.atomic
def reset_learned_window(*, model: ModelSpec, actor: str, now: datetime) -> ModelSpec:
    """Remove the learned window. Does nothing if there is none."""
    model = ModelSpec.objects.select_for_update(no_key=True).get(pk=model.pk)
    if model.learned_window is None:
        return model
    data = {"model": model.slug, "from": model.learned_window, "to": model.context_window}
    model.learned_window = None
    model.save(update_fields=["learned_window"])
    ledger.record_event("model.limit_reset", actor=actor, now=now, data=data)
    return model


def detect_overflow(call: ModelCall, *, model: ModelSpec | None) -> ProviderError | None:
    """Return the overflow error of a call, or None if the prompt was not too long.

    Also None if the error arrived after the start of the reply.
    The error comes from the provider, or is created here if the billed input exceeds the model's
    window. Some servers silently truncate such a prompt and reply to the rest.
    """
    if call.error is not None:
        is_overflow = call.error.code == "context_overflow" and not call.is_useful
        return call.error if is_overflow else None
    window = model.window if model else None
    billed = call.usage.get("input", 0)
    if window is None or billed <= window:
        return None
    return ProviderError("context_overflow", limit=window, actual=billed)


def compute_learned_window(prompt: built_prompt.Prompt, overflow: ProviderError) -> int:
    """Return the window that would have prevented an overflow, in tokens.

    This is the limit in the error. If our estimate of the prompt was already below that limit, the
    estimate is too low for this model, and a smaller window compensates for that.
    """
    if overflow.limit and estimate_prompt_size(prompt) + prompt.reserve > overflow.limit:
        return overflow.limit
    return shrink_window(prompt, overflow)


def shrink_window(prompt: built_prompt.Prompt, error: ProviderError) -> int:
    """Return a smaller window after an overflow, in tokens, including the reserve.

    The provider's token counts may differ from our estimate, so only their ratio is used, less a
    margin of 10%.
    """
    room = min(prompt.prompt_limit, estimate_prompt_size(prompt))
    if error.limit and error.actual:
        room = min(room, estimate_prompt_size(prompt) * error.limit // error.actual)
    return room * 9 // 10 + prompt.reserve


def estimate_prompt_size(prompt: built_prompt.Prompt) -> int:
    """Estimate the prompt size in the provider's tokens, the unit of windows and limits."""
    return int(prompt.prompt_tokens * prompt.calibration)
