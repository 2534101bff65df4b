"""Brings older history back into prompts when a policy or a model with more room applies.

A window stays in place until history reaches the high mark, so that requests keep their prefix.
After a window move for a smaller limit, the new room would therefore stay unused for many turns.
The first prompt under the new policy or for the new model moves the window back once, to the new
low mark.
"""

from copy import copy
from dataclasses import replace

from chats.models import Branch, Compaction, Receipt
from chats.prompt import model_choice
from contextpolicy.engine.compose.assembly import WindowNeeded
from contextpolicy.engine.policy.budget import (
    compute_low_mark,
    compute_prompt_limit,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.policy import can_compact_messages
from contextpolicy.engine.window import MoveReason

# Reason of a window that was moved back under another policy.
WIDENED: MoveReason = "widened"
# The new low mark must gain at least this share of the prompt limit: a smaller gain is not worth
# losing the provider's cache.
SMALLEST_GAIN = 0.1


def can_widen_window(branch: Branch, *, choice: model_choice.ChosenModel) -> bool:
    """Return True if the active window was moved under a policy or for a model with less room.

    `branch` must be loaded with its active compaction. A window moved by a team's cap never
    widens, and neither does one that the policy ignores, because another policy may use it again.
    """
    if not can_compact_messages(choice.values):
        return False
    active = branch.active_compaction
    if active is None or active.kind != Compaction.Kind.WINDOW or active.reason == "cap":
        return False
    if not active.tokens_after:
        return False
    limit = compute_prompt_limit(choice.values, model_window=choice.model.window)
    low = compute_low_mark(choice.values, prompt_limit=limit)
    factor = choice.model.factors.lowest
    if active.tokens_after + SMALLEST_GAIN * limit >= convert_provider_tokens(
        low, calibration=factor
    ):
        return False
    if active.effective_policy_id != choice.effective.pk:
        return True
    # Only another model: the same one may have refused a longer prompt.
    return load_window_model(active) not in ("", choice.model.name)


def load_window_model(window: Compaction) -> str:
    """Return the name of the model that received the first prompt with a window; empty if none."""
    receipts = Receipt.objects.filter(compaction=window).order_by("created_at")
    return receipts.values_list("model_name", flat=True).first() or ""


def copy_without_window(branch: Branch) -> Branch:
    """Return a copy of the branch without its window. Stores nothing."""
    found = copy(branch)
    found.active_compaction = branch.active_compaction and branch.active_compaction.base
    return found


def find_wider(found: WindowNeeded | None, *, branch: Branch) -> WindowNeeded | None:
    """Return the move that widens the branch's window. None if it would gain nothing.

    `found`: the move that the prompt without a window requires. None: all history fits.
    """
    active = branch.active_compaction
    if active is None:
        return None
    base = active.base.to_seq if active.base else 0
    if found is None:
        return WindowNeeded(base, active.tokens_before, active.tokens_before, WIDENED)
    if found.to_seq >= active.to_seq:
        return None
    return replace(found, reason=WIDENED)
