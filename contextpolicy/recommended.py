"""Drafts with the recommended values, for policies created before those values.

A draft adds the recommended fields that a policy does not set and keeps all others. Nothing is
published: each draft goes through the usual review and publishing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext

from contextpolicy import policy_refusals, publish
from contextpolicy.models import ContextPolicy, PolicyAssignment, PolicyVersion
from contextpolicy.presets import DEMO, RETRIEVED

NOTE = "Recommended values: retrieved context and dates"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A policy without the recommended values.

    `draft` is its unpublished version, if any, which must be published or replaced first.
    `fields` are the recommended values that the policy does not set.
    """

    policy: ContextPolicy
    draft: PolicyVersion | None
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreatedDrafts:
    """The new drafts, and by slug the reason for each policy that got none."""

    drafts: Sequence[PolicyVersion]
    skipped: Mapping[str, str]


def find_missing_values(
    values: Mapping[str, Any], *, slug: str, is_default: bool
) -> dict[str, Any]:
    """Return the recommended values that a policy does not set.

    Dates are not recommended for prompts without day lines: text layouts and plain sections.
    `is_default`: the policy is the one for everyone. Three kinds of policies get no
    recommendation: other policies without a strategy, because they only change single
    fields of another policy; policies with the strategy `entity_state`, which sends no past
    dialogue; and the demo policy, which is meant to lose past dialogue.
    """
    strategy = values.get("strategy", "dynamic_summary" if is_default else "")
    if slug == DEMO or strategy in ("", "entity_state"):
        return {}
    # A policy that sets one of the reference fields keeps all its reference values.
    decided = values.keys() & {"references", "reference_share"}
    shows_days = values.get("layout", "multi_turn") == "multi_turn" and not values.get(
        "plain_sections"
    )
    return {
        name: value
        for name, value in RETRIEVED.items()
        if name not in values
        and not (decided and name.startswith("reference"))
        and (shows_days or name != "dates")
    }


def list_recommendations() -> list[Recommendation]:
    """Return the active policies without the recommended values, by name."""
    default = PolicyAssignment.objects.filter(level="instance").values_list("policy", flat=True)
    is_default = set(default)
    rows = ContextPolicy.objects.filter(retired=False, current__isnull=False)
    found = []
    for policy in rows.select_related("current").prefetch_related("versions"):
        current = policy.current
        if current is None:
            continue
        fields = find_missing_values(
            current.values, slug=policy.slug, is_default=policy.pk in is_default
        )
        newest = max(policy.versions.all(), key=lambda version: version.number)
        if fields:
            draft = None if newest.pk == current.pk else newest
            found.append(Recommendation(policy, draft, fields))
    return found


def create_drafts(*, actor: str, now: datetime) -> CreatedDrafts:
    """Create a draft with the recommended values for each policy that has no draft yet."""
    drafts: list[PolicyVersion] = []
    skipped: dict[str, str] = {}
    for found in list_recommendations():
        slug = found.policy.slug
        if found.draft is not None:
            skipped[slug] = gettext(
                "Version {number} is an unpublished draft. Publish or replace it first."
            ).format(number=found.draft.number)
            continue
        current = found.policy.current
        if current is None:
            continue
        try:
            draft = publish.create_policy_version(
                policy=found.policy,
                values={**current.values, **found.fields},
                locks=current.locks,
                note=NOTE,
                actor=actor,
                now=now,
                based_on=current.number,
                is_draft=True,
            )
        except (policy_refusals.PolicyProblems, policy_refusals.PolicyChangedMeanwhile) as error:
            skipped[slug] = str(error)
        else:
            drafts.append(draft)
    return CreatedDrafts(drafts, skipped)
