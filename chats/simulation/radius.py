"""Counts over all chats in use how many a policy as it is written would change.

A chat is judged by the preview's own function, one after the other, and its words are let go at
once. The count goes through the chats by their ids, a page at a time; counts and place of a page
are one statement under a lease, so a worker that is killed loses a page of work and nothing counts
twice. It is void once another version came into force.
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import F, QuerySet

from chats.ground import databases, leases, queue
from chats.ground.computing import alone, give_way
from chats.ground.leases import LeaseLost
from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat
from chats.record.simulations import free
from chats.simulation import sampling
from chats.simulation.preview import Preview, preview, previewable
from chats.simulation.proposals import PolicyProposal, for_group
from chats.simulation.sampling import WORST, Judged, judge_chat
from contextpolicy import blast, ledger
from contextpolicy.controls import person_of
from contextpolicy.linter.errors import check
from contextpolicy.models import BlastRadius, ContextPolicy
from contextpolicy.publish import PolicyProblems

logger = logging.getLogger(__name__)
# Chats that one statement counts, and what is done again after a kill.
PAGE = 100
# Seconds that one task takes.
SECONDS = 20.0
# Between two chats: who waits for the lock of background work gets it.
REST = 0.001
OPEN = (BlastRadius.State.COUNTING, BlastRadius.State.STOPPED)


class RadiusOver(Refusal):
    """A count that is finished or void is not stopped or taken up."""

    code = "radius_over"
    status = 409
    sentence = "This count is over: it is {state}. Begin another one."


@dataclass(frozen=True, slots=True)
class CountLease:
    """The right to work on a count."""

    radius_id: uuid.UUID
    token: uuid.UUID


@dataclass(slots=True)
class CountedPage:
    """The counts of a page of chats."""

    judged: int = 0
    changed: int = 0
    would_refuse: int = 0
    failed: int = 0


def begin(
    *,
    policy: ContextPolicy,
    values: Mapping[str, Any],
    locks: Collection[str],
    place: str,
    actor: str,
    now: datetime,
    group: Group | None = None,
) -> BlastRadius:
    """Begin a count in the background, or take up the open one of the same content.

    With a `group` the chats of its members are counted, as if the policy were assigned to it. An
    open count of other content of the policy is void then. Raises `PolicyProblems`.
    """
    found = check(values, locks=locks)
    if found:
        raise PolicyProblems(found)
    digest = blast.digest_of(values, locks)
    with transaction.atomic():
        locked = ContextPolicy.objects.select_for_update().get(pk=policy.pk)
        base = blast.base_of(locked)
        opened = BlastRadius.objects.select_for_update(of=("self",)).select_related("policy")
        other = opened.filter(policy=locked, state__in=OPEN).first()
        if other is not None:
            same = (digest, base, place, group.pk if group else None)
            if (other.digest, other.base, other.place, other.group_id) == same:
                if other.state == BlastRadius.State.STOPPED:
                    return resume(radius_id=other.pk, actor=actor, now=now)
                return other
            end(other, state=BlastRadius.State.VOID, actor=actor, now=now)
        row = BlastRadius.objects.create(
            policy=locked,
            values=dict(values),
            locks=sorted(locks),
            digest=digest,
            base=base,
            place=place,
            group=group,
            started_by_id=person_of(actor),
            started_at=now,
            in_use=sampling.in_use(now=now, group_id=group.pk if group else None).count(),
        )
        ledger.record("radius.started", actor=actor, now=now, data=blast.numbers(row))
        queue.enqueue(queue.COUNT_RADIUS, radius_id=row.pk)
    return row


def stop(*, radius_id: uuid.UUID, actor: str, now: datetime) -> BlastRadius:
    """Stop a count at its place; one that is stopped stays so. Raises `RadiusOver`, `NotFound`."""
    with transaction.atomic():
        row = locked_row(radius_id)
        if row.state == BlastRadius.State.COUNTING:
            end(row, state=BlastRadius.State.STOPPED, actor=actor, now=now)
    return row


def resume(*, radius_id: uuid.UUID, actor: str, now: datetime) -> BlastRadius:
    """Take a stopped count up behind its place. Raises `RadiusOver` and `NotFound`."""
    with transaction.atomic():
        row = locked_row(radius_id)
        if row.state == BlastRadius.State.STOPPED:
            row.state = BlastRadius.State.COUNTING
            row.save(update_fields=["state"])
            ledger.record("radius.resumed", actor=actor, now=now, data=blast.numbers(row))
            queue.enqueue(queue.COUNT_RADIUS, radius_id=row.pk)
    return row


def locked_row(radius_id: uuid.UUID) -> BlastRadius:
    """Lock a count that is not over. Raises `RadiusOver` and `NotFound`."""
    rows = BlastRadius.objects.select_for_update(of=("self",)).select_related("policy")
    row = rows.filter(pk=radius_id).first()
    if row is None:
        raise NotFound
    if row.state not in OPEN:
        raise RadiusOver(state=row.get_state_display().lower())
    return row


def end(row: BlastRadius, *, state: str, actor: str, now: datetime) -> None:
    """Take a count from whoever works on it, and tell the ledger how far it came."""
    row.state, row.lease_until, row.lease_token = state, None, None
    row.save(update_fields=["state", "lease_until", "lease_token"])
    void = {"void": True} if state == BlastRadius.State.VOID else {}
    ledger.record("radius.stopped", actor=actor, now=now, data={**blast.numbers(row), **void})


def go_on(
    *, radius_id: uuid.UUID, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> None:
    """Count for some seconds, and ask for the next task if more is left."""
    lease = claim(radius_id)
    if lease is None:
        return
    until = time.monotonic() + SECONDS
    try:
        for _ in steps(lease, clock=clock, is_closing=is_closing):
            if is_closing() or time.monotonic() > until:
                mine(lease).update(lease_until=None, lease_token=None)
                queue.enqueue(queue.COUNT_RADIUS, radius_id=radius_id)
                return
    except LeaseLost:
        return


def claim(radius_id: uuid.UUID) -> CountLease | None:
    """Take an open count; None if it is not open, or somebody works on it."""
    token = uuid.uuid4()
    rows = BlastRadius.objects.filter(free(), pk=radius_id, state=BlastRadius.State.COUNTING)
    taken = rows.update(lease_token=token, lease_until=leases.until())
    return CountLease(radius_id, token) if taken else None


def mine(lease: CountLease) -> QuerySet[BlastRadius]:
    """Return the row that a lease lets one write, if it still does."""
    return BlastRadius.objects.filter(
        pk=lease.radius_id, lease_token=lease.token, state=BlastRadius.State.COUNTING
    )


def book(lease: CountLease, **changes: Any) -> None:
    """Write down how far a count has come, and renew its lease. Raises `LeaseLost`."""
    if not mine(lease).update(**changes, lease_until=leases.until()):
        raise LeaseLost(lease.radius_id)


def steps(
    lease: CountLease, *, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> Iterator[None]:
    """Count page by page from the place to the end; first a sample. Raises `LeaseLost`."""
    row = BlastRadius.objects.select_related("policy").get(pk=lease.radius_id)
    proposal = proposal_of(row)
    if row.high is None:
        # Nothing renews the lease while the sample is taken.
        found = sampling.sample(
            proposal=proposal, now=clock(), patience=settings.LEASE_SECONDS / 2, guard=alone
        )
        book(
            lease,
            sampled=found.judged,
            sampled_changed=found.changed,
            sampled_refuse=found.would_refuse,
            low=found.low,
            high=found.high,
        )
        yield
    worst, cursor = list(row.worst), row.cursor
    while not is_void(row):
        ids = page_after(cursor, row=row)
        if not ids:
            finish(lease, now=clock())
            return
        page = judged_page(
            ids, lease=lease, proposal=proposal, worst=worst, clock=clock, is_closing=is_closing
        )
        if page is None:
            # Asked to end in mid-page: it is counted anew by whoever goes on.
            yield
            return
        worst = sorted(worst, key=weight, reverse=True)[:WORST]
        cursor = ids[-1]
        book(
            lease,
            cursor=cursor,
            worst=worst,
            judged=F("judged") + page.judged,
            changed=F("changed") + page.changed,
            would_refuse=F("would_refuse") + page.would_refuse,
            failed=F("failed") + page.failed,
        )
        yield
    with transaction.atomic():
        book(lease)
        row.refresh_from_db()
        end(row, state=BlastRadius.State.VOID, actor="system", now=clock())


def is_void(row: BlastRadius) -> bool:
    """Tell whether another version than the one that a count is over came into force."""
    policies = ContextPolicy.objects.filter(pk=row.policy_id)
    return (policies.values_list("current__number", flat=True).first() or 0) != row.base


def page_after(cursor: uuid.UUID | None, *, row: BlastRadius) -> list[uuid.UUID]:
    """Return the ids of the next chats that were there and in use when the count began."""
    ids = sampling.in_use(now=row.started_at, group_id=row.group_id)
    ids = ids.filter(created_at__lte=row.started_at)
    if cursor is not None:
        ids = ids.filter(pk__gt=cursor)
    return list(ids.order_by("pk")[:PAGE])


def judged_page(
    ids: Collection[uuid.UUID],
    *,
    lease: CountLease,
    proposal: PolicyProposal,
    worst: list[dict[str, Any]],
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> CountedPage | None:
    """Judge chats and add those that change to `worst`; None if the process is to end.

    Raises `LeaseLost`.
    """
    page, renewed = CountedPage(), time.monotonic()
    for pk in ids:
        if is_closing():
            return None
        if time.monotonic() - renewed > settings.HEARTBEAT_EVERY:
            book(lease)
            renewed = time.monotonic()
        try:
            with alone:
                found = judge_chat(pk, proposal=proposal, now=clock())
        except Exception as error:
            if databases.may_pass(error):
                # The database's trouble, not this chat's: a later task begins here again.
                raise
            # Never its text: a database puts the row's values into it.
            logger.error("chat %s was not judged: %s", pk, type(error).__name__)  # noqa: TRY400
            page.failed += 1
            continue
        give_way(REST)
        if found is None:
            continue
        page.judged += 1
        page.changed += found.changes
        page.would_refuse += found.would_refuse
        if found.changes:
            worst.append(told(found))
    return page


def told(found: Judged) -> dict[str, Any]:
    """Write a chat down that changes: its id and numbers."""
    return {
        "chat": str(found.chat.pk),
        "refuses": found.would_refuse,
        "code": found.proposed.code,
        "now": found.now.tokens,
        "proposed": found.proposed.tokens,
        "full_now": found.now.full,
        "full_proposed": found.proposed.full,
    }


def weight(said: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return what the worst are found by: as in a sample, and the same whoever counts."""
    return bool(said["refuses"]), abs(said["proposed"] - said["now"]), str(said["chat"])


def finish(lease: CountLease, *, now: datetime) -> None:
    """End a count that is whole, and tell the ledger its numbers. Raises `LeaseLost`."""
    with transaction.atomic():
        book(lease)
        row = BlastRadius.objects.select_related("policy").get(pk=lease.radius_id)
        row.state, row.finished_at = BlastRadius.State.FINISHED, now
        row.lease_until, row.lease_token = None, None
        row.save(update_fields=["state", "finished_at", "lease_until", "lease_token"])
        ledger.record("radius.finished", actor="system", now=now, data=blast.numbers(row))


def proposal_of(row: BlastRadius) -> PolicyProposal:
    """Return the policy that a count is of."""
    if row.group_id is not None:
        return for_group(
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
    )


def preview_of(row: BlastRadius, *, chat_id: uuid.UUID, now: datetime) -> Preview | None:
    """Compose the next prompt of a chat both ways, exactly; None if there is no such chat."""
    chat: Chat | None = previewable(chat_id)
    return preview(chat, proposal=proposal_of(row), now=now) if chat else None
