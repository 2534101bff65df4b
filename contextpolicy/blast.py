"""Requires a count of the affected chats before a policy change applies.

Controlled by the setting `BLAST_RADIUS_LIMIT`; off by default. If it is on, a change that affects
many people or chats requires a count of exactly this change against the active version. Such a
change is a new version, an assignment, or the removal of an assignment. A random sample suffices if
its upper bound does not exceed the limit and no chat would be refused; otherwise all active chats
are counted. No count is needed to restore a recently active version, or if the change states an
emergency reason.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet
from django.utils.translation import gettext, gettext_lazy
from django_stubs_ext import StrOrPromise

from contextpolicy.models import (
    BlastRadius,
    ContextPolicy,
    LedgerHead,
    PolicyAssignment,
    PolicyVersion,
)
from contextpolicy.wording import join_sentences

# A count describes the chats at the time of counting; an older count is repeated.
FRESH = timedelta(days=7)
COUNTED = (PolicyAssignment.Level.INSTANCE, PolicyAssignment.Level.GROUP)
GOVERNING = (
    PolicyAssignment.Level.INSTANCE,
    PolicyAssignment.Level.GROUP,
    PolicyAssignment.Level.USER,
)


PUBLISH_VERSION = gettext_lazy(
    "Save the change as a draft, count the affected chats, then publish the draft. In an "
    "emergency, publish it with a reason, which the audit log records."
)
ASSIGN = gettext_lazy(
    "Count the affected chats for exactly this target, on the policy page or with POST "
    "/api/v1/blast-radius. Then assign the policy."
)
REMOVE = gettext_lazy(
    "Count the affected chats as if this policy were removed, on the policy page or with POST "
    "/api/v1/blast-radius. Then remove the assignment."
)


class BlastRadiusNeeded(Exception):
    """The instance requires a count of the affected chats before this change.

    `count` is the newest unfinished count, if there is one; `next_step` describes how to continue.
    """

    code = "blast_radius_needed"

    def __init__(self, row: BlastRadius | None, *, do: StrOrPromise) -> None:
        self.count, self.next_step = row, do
        rule = gettext(
            "This instance requires a count before a policy change that affects more than "
            "{limit} of the active chats or causes messages to be refused."
        ).format(limit=f"{settings.BLAST_RADIUS_LIMIT or 0:.0%}")
        super().__init__(join_sentences(rule, describe_count_progress(row), do))


def describe_count_progress(row: BlastRadius | None) -> str:
    """Return a localized sentence about the progress of a count.

    `row` is None if no count was started.
    """
    if row is None:
        return gettext("The affected chats have not been counted yet.")
    said = gettext(
        "The count of affected chats is not finished: {judged:,} of {in_use:,} checked so far."
    )
    if row.sampled_refuse:
        said = gettext(
            "The count of affected chats is not finished: {judged:,} of {in_use:,} checked "
            "so far. In a sample, the next message in some chats would be refused."
        )
    elif row.high is not None:
        said = gettext(
            "The count of affected chats is still running: {judged:,} of {in_use:,} checked so "
            "far. According to a sample, up to {share} of the chats would change."
        )
    share = f"{row.high or 0:.0%}"
    return said.format(judged=row.judged, in_use=row.in_use, share=share)


def compute_content_digest(values: Mapping[str, Any], locks: Collection[str]) -> str:
    content = json.dumps([dict(values), sorted(locks)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def get_active_number(policy: ContextPolicy) -> int:
    """Return the number of the active version; 0 if there is none."""
    return policy.current.number if policy.current else 0


def check_version_count(
    policy: ContextPolicy,
    *,
    values: Mapping[str, Any],
    locks: Collection[str],
    before: PolicyVersion | None,
    share: float,
    now: datetime,
) -> BlastRadius | None:
    """Check that a version has a sufficient count to become active. Return that count.

    Returns None if it needs no count: its content is unchanged, or the policy applies to few chats.
    A policy applies to few chats if it is not assigned to people, and if `share`, the share of
    active chats that name the policy, does not exceed the limit. Raises `BlastRadiusNeeded`.
    """
    is_same = before is not None and compute_content_digest(
        before.values, before.locks
    ) == compute_content_digest(values, locks)
    is_assigned = policy.assignments.filter(level__in=GOVERNING).exists()
    is_wide = is_assigned or share > (settings.BLAST_RADIUS_LIMIT or 0)
    if is_same or not is_wide or not is_count_required():
        return None
    rows = filter_fresh_radii(policy, digest=compute_content_digest(values, locks), now=now).filter(
        group=None
    )
    return require_sufficient_count(rows, do=PUBLISH_VERSION)


def check_assignment_count(
    policy: ContextPolicy,
    *,
    level: str,
    group: Group | None,
    user: User | None,
    share: float,
    now: datetime,
) -> BlastRadius | None:
    """Check that a policy may apply to everyone, a group or a user; return its count.

    Returns None if the assignment needs no count. `share`: the user's share of the active
    chats. Above the limit, a count over everyone is required. Raises `BlastRadiusNeeded`.
    """
    version = policy.current
    limit = settings.BLAST_RADIUS_LIMIT
    is_wide = level in COUNTED or (user is not None and limit is not None and share > limit)
    if version is None or not is_wide or not is_count_required():
        return None
    if policy.assignments.filter(level=level, group=group, user=user).exists():
        return None
    rows = filter_fresh_radii(
        policy, digest=compute_content_digest(version.values, version.locks), now=now
    )
    rows = rows.filter(place=BlastRadius.Place.INSTANCE, group=group)
    return require_sufficient_count(rows, do=ASSIGN)


def check_removal_count(
    policy: ContextPolicy,
    *,
    levels: Collection[str],
    group: Group | None,
    share: float,
    now: datetime,
) -> BlastRadius | None:
    """Check that a policy may stop applying; return its count, or None if it needs none.

    A count is needed at the levels of the instance and of groups. At other levels it is needed if
    `share` exceeds the limit: the user's share of the active chats, or the share of the active
    chats that name the policy. A count of the policy removed everywhere also allows its removal
    from one group. Raises `BlastRadiusNeeded`.
    """
    is_wide = bool(set(levels).intersection(COUNTED)) or share > (settings.BLAST_RADIUS_LIMIT or 0)
    if policy.current is None or not is_wide or not is_count_required():
        return None
    digest = compute_content_digest(policy.current.values, policy.current.locks)
    rows = filter_fresh_radii(policy, digest=digest, now=now).filter(
        Q(group=None) | Q(group=group), place=BlastRadius.Place.REMOVED
    )
    return require_sufficient_count(rows, do=REMOVE)


def is_count_required() -> bool:
    """Return True if this instance requires counts and has ever had a chat."""
    if settings.BLAST_RADIUS_LIMIT is None:
        return False
    return LedgerHead.objects.filter(scope__startswith="chat:").exists()


def filter_fresh_radii(
    policy: ContextPolicy, *, digest: str, now: datetime
) -> QuerySet[BlastRadius]:
    """Return the valid blast radii of these values against the active version, newest first.

    Those that were started more than `FRESH` ago are left out.
    """
    rows = BlastRadius.objects.filter(
        policy=policy, digest=digest, base=get_active_number(policy), started_at__gte=now - FRESH
    )
    return rows.exclude(state=BlastRadius.State.VOID).order_by("-started_at")


def require_sufficient_count(rows: QuerySet[BlastRadius], *, do: StrOrPromise) -> BlastRadius:
    """Return the newest sufficient count of `rows`.

    Raises `BlastRadiusNeeded` if there is none, with `do` as the next step.
    """
    newest = list(rows)
    for row in newest:
        if is_sufficient_count(row):
            return row
    raise BlastRadiusNeeded(newest[0] if newest else None, do=do)


def is_sufficient_count(row: BlastRadius) -> bool:
    """Return True if a count is complete, or if its sample is sufficient.

    A sample is sufficient if its upper bound does not exceed the limit and no chat would be
    refused.
    """
    if row.state == BlastRadius.State.FINISHED:
        return True
    limit = settings.BLAST_RADIUS_LIMIT
    is_small = limit is not None and row.high is not None and row.high <= limit
    return is_small and not row.sampled_refuse and not row.would_refuse


def build_radius_data(row: BlastRadius) -> dict[str, Any]:
    """Return the numbers of a count for its ledger events, without text."""
    data: dict[str, Any] = {
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
        data["group"] = row.group_id
    if row.sampled is not None:
        data |= {
            "sampled": row.sampled,
            "sampled_changed": row.sampled_changed,
            "sampled_refuse": row.sampled_refuse,
        }
    return data


def build_count_data(row: BlastRadius | None) -> dict[str, Any]:
    """Return the event data of the count that permitted a change."""
    if row is None:
        return {}
    return {
        "counted": {name: said for name, said in build_radius_data(row).items() if name != "policy"}
    }
