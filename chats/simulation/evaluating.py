"""Shadow evaluations of a draft: start, end and publish.

An evaluation changes no prompt and calls no model. After each reply, a background job
compares the prompt that was sent with the one under the draft (`shadow.py`). Publishing
the draft goes through `publish.activate_version` with all its checks.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground.refusals import NotFound, Refusal
from contextpolicy import blast, controls, ledger, policy_refusals, publish
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.models import AuditEvent, ContextPolicy, Evaluation, VirtualCoverage

DAYS, MOST_DAYS = 7, 30
# Each turn is compared once for each open evaluation.
MOST_OPEN = 3
COUNTS = (
    "turns",
    "unknown",
    "changed",
    "would_refuse",
    "compactions_now",
    "compactions_then",
    "tokens_now",
    "tokens_then",
)


class NothingToEvaluate(Refusal):
    """The version is not a draft, or a newer version of its policy exists."""

    code = "nothing_to_evaluate"
    status = 409
    sentence = gettext_noop(
        "Only the newest version can be evaluated, and only while it is a draft. Save the policy "
        "as a draft, then evaluate it."
    )


class TooManyEvaluations(Refusal):
    """Three evaluations are running, which is the limit. End one of them first."""

    code = "too_many_evaluations"
    status = 409
    sentence = gettext_noop(
        "{most} evaluations are running, which is the limit. End one of them first."
    )


class EvaluationOver(Refusal):
    """The evaluation has already ended."""

    code = "evaluation_over"
    status = 409
    sentence = gettext_noop("This evaluation has ended. Publish its version on the policy page.")


def start_evaluation(
    *,
    policy: ContextPolicy,
    number: int,
    actor: str,
    now: datetime,
    place: str = "assigned",
    days: int = DAYS,
    share: int = 100,
) -> Evaluation:
    """Evaluate the newest draft of a policy for some days, or return its open evaluation.

    `share`: percentage of the branches. An open evaluation of another draft of the policy ends.
    Raises `NothingToEvaluate`, `TooManyEvaluations` and `policy_refusals.PolicyProblems`.
    """
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        version = locked.newest
        if version is None or version.number != number or version.pk == locked.current_id:
            raise NothingToEvaluate
        found = find_policy_errors(version.values, locks=version.locks)
        if found:
            raise policy_refusals.PolicyProblems(found)
        open_ones = Evaluation.objects.filter(state=Evaluation.State.OPEN)
        other = open_ones.filter(policy=locked).first()
        if other is not None:
            if other.version_id == version.pk:
                return other
            conclude_evaluation(other, reason="other_version", actor=actor, now=now)
        if open_ones.count() >= MOST_OPEN:
            raise TooManyEvaluations(most=MOST_OPEN)
        newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first()
        row = Evaluation.objects.create(
            policy=locked,
            version=version,
            base=blast.get_active_number(locked),
            place=place,
            share=share,
            started_by_id=controls.parse_actor_user(actor),
            started_at=now,
            ends_at=now + timedelta(days=days),
            cursor=newest or 0,
        )
        data = {**identify_evaluation(row), "place": place, "days": days, "share": share}
        ledger.record_event("evaluation.started", actor=actor, now=now, data=data)
    return row


def end_evaluation_early(*, evaluation_id: uuid.UUID, actor: str, now: datetime) -> Evaluation:
    """End an evaluation early. Raises `EvaluationOver` and `NotFound`."""
    with transaction.atomic():
        row = lock_evaluation(evaluation_id)
        conclude_evaluation(row, reason="person", actor=actor, now=now)
    return row


def promote_evaluation(
    *, evaluation_id: uuid.UUID, actor: str, now: datetime, emergency: str = ""
) -> Evaluation:
    """Publish the evaluated version, record the numbers in the ledger, and end the evaluation.

    Raises `EvaluationOver`, `NotFound`, and the errors of `publish.activate_version`.
    """
    with transaction.atomic():
        row = lock_evaluation(evaluation_id)
        publish.activate_version(
            policy=row.policy,
            number=row.version.number,
            actor=actor,
            now=now,
            emergency=emergency,
        )
        row.state, row.reason, row.ended_at = Evaluation.State.PROMOTED, "promoted", now
        release_evaluation(row)
        ledger.record_event(
            "evaluation.promoted", actor=actor, now=now, data=collect_evaluation_numbers(row)
        )
    return row


def end_if_due(row: Evaluation, *, now: datetime) -> bool:
    """End an evaluation after its time or a change of its policy. Return True if it has ended."""
    policy = row.policy
    moved = blast.get_active_number(policy) != row.base
    if now < row.ends_at and not moved:
        return False
    with transaction.atomic():
        try:
            locked = lock_evaluation(row.pk)
        except EvaluationOver:
            return True
        conclude_evaluation(
            locked, reason="other_version" if moved else "time", actor="system", now=now
        )
    return True


def lock_evaluation(evaluation_id: uuid.UUID) -> Evaluation:
    """Lock an open evaluation. Raises `EvaluationOver` and `NotFound`."""
    rows = Evaluation.objects.select_for_update(of=("self",))
    row = rows.select_related("policy__current", "version").filter(pk=evaluation_id).first()
    if row is None:
        raise NotFound
    if row.state != Evaluation.State.OPEN:
        raise EvaluationOver
    return row


def conclude_evaluation(row: Evaluation, *, reason: str, actor: str, now: datetime) -> None:
    """End an evaluation and record its totals in the ledger."""
    row.state, row.reason, row.ended_at = Evaluation.State.ENDED, reason, now
    release_evaluation(row)
    data = {**collect_evaluation_numbers(row), "reason": reason}
    ledger.record_event("evaluation.ended", actor=actor, now=now, data=data)


def release_evaluation(row: Evaluation) -> None:
    """Release the lease of an ended evaluation, and delete its virtual coverage."""
    row.lease_until, row.lease_token = None, None
    fields = ["state", "reason", "ended_at", "lease_until", "lease_token"]
    row.save(update_fields=fields)
    VirtualCoverage.objects.filter(evaluation=row).delete()


def identify_evaluation(row: Evaluation) -> dict[str, Any]:
    return {
        "evaluation": str(row.pk),
        "policy": row.policy.slug,
        "version": row.version.number,
        "base": row.base,
    }


def collect_evaluation_numbers(row: Evaluation) -> dict[str, Any]:
    """Return the ledger data of an ended evaluation: the numbers that its page shows."""
    return {
        **identify_evaluation(row),
        "judged": row.judged,
        **{name: getattr(row, name) for name in COUNTS},
    }
