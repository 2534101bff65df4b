"""The summary that the next prompt publishes: whether it is current, and whether a window stays."""

from copy import copy

from chats.models import Branch, Compaction
from chats.prompt.prompt_facts import get_calibration_factor
from contextpolicy.engine.policy.budget import compute_prompt_limit, convert_provider_tokens
from contextpolicy.engine.policy.policy import parse_policy_values
from contextpolicy.engine.window import MoveReason

# Reason of a window that was moved by a team's message cap, not by a prompt.
CAP: MoveReason = "cap"


def find_prepared_summary(branch: Branch) -> Compaction | None:
    """Return the summary that a turn may publish; None if there is none or it needs approval."""
    rows = branch.compactions.filter(status=Compaction.Status.PREPARED, needs_approval=False)
    return rows.select_related("displaced", "effective_policy", "branch__chat__model").first()


def is_current_summary(row: Compaction, branch: Branch) -> bool:
    """Return True if the branch still has the active summary and revision of the row's plan.

    A window published in the meantime does not matter.
    """
    active = branch.active_compaction
    is_window = active is not None and active.kind == Compaction.Kind.WINDOW
    base_id = active.base_id if active is not None and is_window else branch.active_compaction_id
    return (base_id, branch.context_revision) == (row.displaced_id, row.context_revision)


def is_window_kept(row: Compaction, *, active: Compaction) -> bool:
    """Return True if the active window stays over a new summary.

    It stays if prompts would exceed their limit without it. A chat that needs several summaries to
    catch up keeps its window, because the next prompt would otherwise create the same window again.
    A window of a team's cap stays as long as it leaves out more than the summary covers.
    """
    if active.kind != Compaction.Kind.WINDOW or active.to_seq <= row.to_seq:
        return False
    model = row.branch.chat.model
    values = parse_policy_values(row.effective_policy.values)
    limit = compute_prompt_limit(values, model_window=model.window if model else None)
    factor = get_calibration_factor(row.branch, model=model) if model else 1.0
    fits = row.tokens_after <= convert_provider_tokens(limit, calibration=factor)
    return not fits or active.reason == CAP


def simulate_publication(branch: Branch) -> Branch | None:
    """Return the branch with its prepared summary published in memory. Stores nothing.

    None if there is no summary that a turn may publish. The skills of a kept window are not set.
    """
    row = find_prepared_summary(branch)
    if row is None or not is_current_summary(row, branch):
        return None
    found, active = copy(branch), branch.active_compaction
    found.active_compaction = row
    if active is not None and is_window_kept(row, active=active):
        found.active_compaction = Compaction(
            kind=Compaction.Kind.WINDOW, base=row, to_seq=active.to_seq, reason=active.reason
        )
    return found
