"""Counts how many of the chats in use an edited policy would change.

Each chat is compared as in a preview, and its text is discarded immediately. The count pages
through the chats by id. One statement under a lease stores the counts and the position of a page,
so a killed worker loses one page of work and counts nothing twice. The count becomes void when
another version of the policy is published.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import F
from django.utils.functional import lazy
from django.utils.translation import gettext_noop

from chats.ground import queue
from chats.ground.background_lock import alone, give_way
from chats.ground.jobs import JobLease, PacedRenewal
from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat
from chats.simulation import sampling
from chats.simulation.due import RADIUS_COUNTS
from chats.simulation.preview import Preview, find_previewable_chat, preview_proposal
from chats.simulation.proposals import PolicyProposal, build_group_proposal
from chats.simulation.sampling import WORST, EvaluatedChat, compare_chat
from contextpolicy import blast, ledger
from contextpolicy.controls import parse_actor_user
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.models import BlastRadius, ContextPolicy
from contextpolicy.policy_refusals import PolicyNotInUse, PolicyProblems

# Chats counted by one statement, and repeated after a killed worker.
PAGE = 100
# Maximum duration of one task in seconds.
SECONDS = 20.0
# Pause between two chats, so that other background work can take the lock.
REST = 0.001
OPEN = (BlastRadius.State.COUNTING, BlastRadius.State.STOPPED)


class RadiusOver(Refusal):
    """The count has finished or is void, so it cannot be stopped or resumed."""

    code = "radius_over"
    status = 409
    sentence = gettext_noop("This count has ended with the status “{state}”. Start another count.")


CountLease = JobLease[BlastRadius]


@dataclass(slots=True)
class CountedPage:
    judged: int = 0
    changed: int = 0
    would_refuse: int = 0
    failed: int = 0


def start_radius_count(
    *,
    policy: ContextPolicy,
    values: Mapping[str, Any],
    locks: Collection[str],
    place: str,
    actor: str,
    now: datetime,
    group: Group | None = None,
) -> BlastRadius:
    """Start a count in the background, or resume the open one with the same content.

    With a `group`, counts the chats of its members, as if the policy were assigned to it.
    With the place `REMOVED`, the active version's content is used instead of the given one.
    An open count of the policy with other content becomes void. Raises `PolicyProblems` and
    `PolicyNotInUse`.
    """
    if place == BlastRadius.Place.REMOVED:
        if policy.current is None:
            raise PolicyNotInUse
        values, locks = policy.current.values, policy.current.locks
    found = find_policy_errors(values, locks=locks)
    if found:
        raise PolicyProblems(found)
    digest = blast.compute_content_digest(values, locks)
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        base = blast.get_active_number(locked)
        opened = BlastRadius.objects.select_for_update(of=("self",)).select_related("policy")
        other = opened.filter(policy=locked, state__in=OPEN).first()
        if other is not None:
            same = (digest, base, place, group.pk if group else None)
            if (other.digest, other.base, other.place, other.group_id) == same:
                if other.state == BlastRadius.State.STOPPED:
                    return resume_radius_count(radius_id=other.pk, actor=actor, now=now)
                return other
            end_radius_count(other, state=BlastRadius.State.VOID, actor=actor, now=now)
        row = BlastRadius.objects.create(
            policy=locked,
            values=dict(values),
            locks=sorted(locks),
            digest=digest,
            base=base,
            place=place,
            group=group,
            started_by_id=parse_actor_user(actor),
            started_at=now,
            in_use=sampling.select_chats_in_use(
                now=now, group_id=group.pk if group else None
            ).count(),
        )
        ledger.record_event(
            "radius.started", actor=actor, now=now, data=blast.build_radius_data(row)
        )
        queue.enqueue(queue.COUNT_RADIUS, radius_id=row.pk)
    return row


def stop_radius_count(*, radius_id: uuid.UUID, actor: str, now: datetime) -> BlastRadius:
    """Stop a count at its current position. Raises `RadiusOver` and `NotFound`."""
    with transaction.atomic():
        row = lock_radius_count(radius_id)
        if row.state == BlastRadius.State.COUNTING:
            end_radius_count(row, state=BlastRadius.State.STOPPED, actor=actor, now=now)
    return row


def resume_radius_count(*, radius_id: uuid.UUID, actor: str, now: datetime) -> BlastRadius:
    """Resume a stopped count at its position. Raises `RadiusOver` and `NotFound`."""
    with transaction.atomic():
        row = lock_radius_count(radius_id)
        if row.state == BlastRadius.State.STOPPED:
            row.state = BlastRadius.State.COUNTING
            row.save(update_fields=["state"])
            ledger.record_event(
                "radius.resumed", actor=actor, now=now, data=blast.build_radius_data(row)
            )
            queue.enqueue(queue.COUNT_RADIUS, radius_id=row.pk)
    return row


def lock_radius_count(radius_id: uuid.UUID) -> BlastRadius:
    """Lock an open count. Raises `RadiusOver` and `NotFound`."""
    rows = BlastRadius.objects.select_for_update(of=("self",)).select_related("policy")
    row = rows.filter(pk=radius_id).first()
    if row is None:
        raise NotFound
    if row.state not in OPEN:
        state = lazy(lambda: row.get_state_display().lower(), str)()
        raise RadiusOver(state=state)
    return row


def end_radius_count(row: BlastRadius, *, state: str, actor: str, now: datetime) -> None:
    """Set the state of a stopped or void count, release its lease, and record its numbers."""
    row.state, row.lease_until, row.lease_token = state, None, None
    row.save(update_fields=["state", "lease_until", "lease_token"])
    void = {"void": True} if state == BlastRadius.State.VOID else {}
    ledger.record_event(
        "radius.stopped", actor=actor, now=now, data={**blast.build_radius_data(row), **void}
    )


def continue_radius_count(
    *, radius_id: uuid.UUID, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> None:
    """Count for a few seconds, and enqueue the next task if chats are left."""
    lease = RADIUS_COUNTS.claim(radius_id)
    if lease is None:
        return
    steps = run_count_steps(lease, clock=clock, is_closing=is_closing)
    lease.run_steps(steps, seconds=SECONDS, is_closing=is_closing)


def run_count_steps(
    lease: CountLease, *, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> Iterator[None]:
    """Process the sample first, then the remaining pages. Raises `LeaseLost`."""
    row = BlastRadius.objects.select_related("policy").get(pk=lease.key)
    proposal = build_radius_proposal(row)
    if row.high is None:
        # The lease is not renewed during the sample.
        found = sampling.sample_chats(
            proposal=proposal, now=clock(), patience=settings.LEASE_SECONDS / 2, guard=alone
        )
        lease.renew(
            sampled=found.judged,
            sampled_changed=found.changed,
            sampled_refuse=found.would_refuse,
            low=found.low,
            high=found.high,
        )
        yield
    worst, cursor = list(row.worst), row.cursor
    while not is_void(row):
        ids = list_next_chat_ids(cursor, row=row)
        if not ids:
            finish_radius_count(lease, now=clock())
            return
        page = compare_page(
            ids, lease=lease, proposal=proposal, worst=worst, clock=clock, is_closing=is_closing
        )
        if page is None:
            # Interrupted in mid-page: the next worker counts the page again.
            yield
            return
        worst = sorted(worst, key=rank_chat_change, reverse=True)[:WORST]
        cursor = ids[-1]
        lease.renew(
            cursor=cursor,
            worst=worst,
            judged=F("judged") + page.judged,
            changed=F("changed") + page.changed,
            would_refuse=F("would_refuse") + page.would_refuse,
            failed=F("failed") + page.failed,
        )
        yield
    with transaction.atomic():
        lease.renew()
        row.refresh_from_db()
        end_radius_count(row, state=BlastRadius.State.VOID, actor="system", now=clock())


def is_void(row: BlastRadius) -> bool:
    """Return True if another version was published since the count began."""
    policies = ContextPolicy.objects.filter(pk=row.policy_id)
    return (policies.values_list("current__number", flat=True).first() or 0) != row.base


def list_next_chat_ids(cursor: uuid.UUID | None, *, row: BlastRadius) -> list[uuid.UUID]:
    """Return the next ids of chats that existed and were in use when the count began."""
    ids = sampling.select_chats_in_use(now=row.started_at, group_id=row.group_id)
    ids = ids.filter(created_at__lte=row.started_at)
    if cursor is not None:
        ids = ids.filter(pk__gt=cursor)
    return list(ids.order_by("pk")[:PAGE])


def compare_page(
    ids: Collection[uuid.UUID],
    *,
    lease: CountLease,
    proposal: PolicyProposal,
    worst: list[dict[str, Any]],
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> CountedPage | None:
    """Compare chats and add the changed ones to `worst`. Return None if the process is closing.

    Raises `LeaseLost`.
    """
    page, renew = CountedPage(), PacedRenewal(lease)
    for pk in ids:
        if is_closing():
            return None
        renew()
        try:
            with alone:
                found = compare_chat(pk, proposal=proposal, now=clock())
        except Exception as error:  # noqa: BLE001 - one chat must not prevent the count
            sampling.log_failed_comparison(pk, error)
            page.failed += 1
            continue
        give_way(REST)
        if found is None:
            continue
        page.judged += 1
        page.changed += found.changes
        page.would_refuse += found.would_refuse
        if found.changes:
            worst.append(serialize_changed_chat(found))
    return page


def serialize_changed_chat(found: EvaluatedChat) -> dict[str, Any]:
    """Return the id and numbers of a changed chat, in the format that is stored."""
    return {
        "chat": str(found.chat.pk),
        "refuses": found.would_refuse,
        "code": found.proposed.code,
        "now": found.now.tokens,
        "proposed": found.proposed.tokens,
        "full_now": found.now.full,
        "full_proposed": found.proposed.full,
    }


def rank_chat_change(said: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return the sort key for the largest changes, as in a sample. Ties are broken by id."""
    return bool(said["refuses"]), abs(said["proposed"] - said["now"]), str(said["chat"])


def finish_radius_count(lease: CountLease, *, now: datetime) -> None:
    """Finish a complete count and record its numbers in the ledger. Raises `LeaseLost`."""
    with transaction.atomic():
        lease.finish(state=BlastRadius.State.FINISHED, finished_at=now)
        row = BlastRadius.objects.select_related("policy").get(pk=lease.key)
        ledger.record_event(
            "radius.finished", actor="system", now=now, data=blast.build_radius_data(row)
        )


def build_radius_proposal(row: BlastRadius) -> PolicyProposal:
    """Return the values that a count of affected chats tests, at its level or group."""
    if row.group_id is not None and row.place != BlastRadius.Place.REMOVED:
        return build_group_proposal(
            row.group_id,
            slug=row.policy.slug,
            name=row.policy.name,
            version=row.base,
            values=row.values,
            locks=row.locks,
        )
    return PolicyProposal(
        slug=row.policy.slug,
        name=row.policy.name,
        version=row.base,
        values=row.values,
        locks=row.locks,
        level=row.place,
        group_id=row.group_id,
    )


def preview_radius_chat(row: BlastRadius, *, chat_id: uuid.UUID, now: datetime) -> Preview | None:
    """Compose the next prompt of a chat under both policies; None if there is no such chat."""
    chat: Chat | None = find_previewable_chat(chat_id)
    return preview_proposal(chat, proposal=build_radius_proposal(row), now=now) if chat else None
