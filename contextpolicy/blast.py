"""Decides when the chats that a policy would change have to be counted before it governs them.

The setting `BLAST_RADIUS_LIMIT` says so, and it is off by default. Then a version comes into force
where it governs people only after a count of exactly this content over the version in force: a
random sample suffices where its upper bound keeps below the limit and no chat would refuse, else
every chat in use. What was in force lately returns at once, and so does what has the reason of an
emergency.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet

from contextpolicy.models import (
    BlastRadius,
    ContextPolicy,
    LedgerHead,
    PolicyAssignment,
    PolicyVersion,
)

# A count tells of the chats as they were; an older one is made anew.
FRESH = timedelta(days=7)
COUNTED = (PolicyAssignment.Level.INSTANCE, PolicyAssignment.Level.GROUP)
GOVERNING = (
    PolicyAssignment.Level.INSTANCE,
    PolicyAssignment.Level.GROUP,
    PolicyAssignment.Level.USER,
)


PUT_IN_FORCE = (
    "Keep it as a draft, count its blast radius, and put it in force then. In an emergency put it "
    "in force with a reason; the ledger keeps it."
)
ASSIGN = (
    "Count its blast radius for exactly this place, on the policy's page or with "
    "POST /api/v1/blast-radius, and assign it then."
)


class BlastRadiusNeeded(Exception):
    """A policy was about to govern people before it was counted how many chats it changes."""

    code = "blast_radius_needed"

    def __init__(self, row: BlastRadius | None, *, do: str) -> None:
        limit = f"{settings.BLAST_RADIUS_LIMIT or 0:.0%}"
        said = "It was not counted yet how many chats this content would change."
        if row is not None:
            done = f"{row.judged:,} of {row.in_use:,} chats are counted"
            said = f"The count of this content is not finished: {done}."
            if row.sampled_refuse:
                said += " A sample found chats in which the next message would be refused."
            elif row.high is not None:
                said += f" By a sample up to {row.high:.0%} of the chats would change."
        super().__init__(
            f"This instance asks for a count before a policy governs people, of every chat in use "
            f"where more than {limit} may change or any would refuse. {said} {do}"
        )


def digest_of(values: Mapping[str, Any], locks: Collection[str]) -> str:
    """Return what names the content of a version."""
    said = json.dumps([dict(values), sorted(locks)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()


def base_of(policy: ContextPolicy) -> int:
    """Return the number of the version in force; 0 for none."""
    return policy.current.number if policy.current else 0


def check_version(
    policy: ContextPolicy,
    *,
    values: Mapping[str, Any],
    locks: Collection[str],
    before: PolicyVersion | None,
    now: datetime,
) -> BlastRadius | None:
    """Let a version come into force; return the count that lets it. Raises `BlastRadiusNeeded`."""
    is_same = before is not None and digest_of(before.values, before.locks) == digest_of(
        values, locks
    )
    governs = not is_same and policy.assignments.filter(level__in=GOVERNING).exists()
    if not governs or not is_asked_for():
        return None
    rows = radii(policy, digest=digest_of(values, locks), now=now).filter(group=None)
    return sufficient(rows, do=PUT_IN_FORCE)


def check_assignment(
    policy: ContextPolicy,
    *,
    level: str,
    group: Group | None,
    user: User | None,
    share: float,
    now: datetime,
) -> BlastRadius | None:
    """Let a policy govern everyone, a group or a person; return the count that lets it.

    A person counts where their `share` of the chats in use is over the limit; then a count over
    everyone is asked for. Raises `BlastRadiusNeeded`.
    """
    version = policy.current
    limit = settings.BLAST_RADIUS_LIMIT
    is_wide = level in COUNTED or (user is not None and limit is not None and share > limit)
    if version is None or not is_wide or not is_asked_for():
        return None
    if policy.assignments.filter(level=level, group=group, user=user).exists():
        return None
    rows = radii(policy, digest=digest_of(version.values, version.locks), now=now)
    rows = rows.filter(place=BlastRadius.Place.INSTANCE, group=group)
    return sufficient(rows, do=ASSIGN)


def is_asked_for() -> bool:
    """Tell whether this instance asks for counts, and has ever had a chat."""
    if settings.BLAST_RADIUS_LIMIT is None:
        return False
    return LedgerHead.objects.filter(scope__startswith="chat:").exists()


def radii(policy: ContextPolicy, *, digest: str, now: datetime) -> QuerySet[BlastRadius]:
    """Return the fresh counts of a content over what is in force, the newest first."""
    rows = BlastRadius.objects.filter(
        policy=policy, digest=digest, base=base_of(policy), started_at__gte=now - FRESH
    )
    return rows.exclude(state=BlastRadius.State.VOID).order_by("-started_at")


def sufficient(rows: QuerySet[BlastRadius], *, do: str) -> BlastRadius:
    """Return a count that suffices; `do` says what to do where none does.

    Raises `BlastRadiusNeeded`.
    """
    newest = list(rows)
    for row in newest:
        if suffices(row):
            return row
    raise BlastRadiusNeeded(newest[0] if newest else None, do=do)


def suffices(row: BlastRadius) -> bool:
    """Tell whether a count lets its content come into force: a whole one, or a harmless sample."""
    if row.state == BlastRadius.State.FINISHED:
        return True
    limit = settings.BLAST_RADIUS_LIMIT
    is_small = limit is not None and row.high is not None and row.high <= limit
    return is_small and not row.sampled_refuse and not row.would_refuse


def numbers(row: BlastRadius) -> dict[str, Any]:
    """Return what the ledger says of a count."""
    told: dict[str, Any] = {
        "radius": str(row.pk),
        "policy": row.policy.slug,
        "digest": row.digest,
        "base": row.base,
        "place": row.place,
        "in_use": row.in_use,
        "judged": row.judged,
        "changed": row.changed,
        "would_refuse": row.would_refuse,
        "failed": row.failed,
    }
    if row.group_id is not None:
        told["group"] = row.group_id
    if row.sampled is not None:
        told |= {
            "sampled": row.sampled,
            "sampled_changed": row.sampled_changed,
            "sampled_refuse": row.sampled_refuse,
        }
    return told


def counted(row: BlastRadius | None) -> dict[str, Any]:
    """Return what the event of a change says of the count that let it."""
    if row is None:
        return {}
    return {"counted": {name: said for name, said in numbers(row).items() if name != "policy"}}
