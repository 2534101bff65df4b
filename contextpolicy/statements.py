"""The SQL statements that policies and the ledger run for every reply."""

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from contextpolicy.models import EffectivePolicy, LedgerHead, PolicyAssignment, Skill
from speed import prepared


def select_assignments(*, user: Any, groups: Any, chat: Any) -> QuerySet[PolicyAssignment, Any]:
    """Select the columns of a `Layer` for each assignment that applies. `chat` may be None."""
    applies = Q(level="instance") | Q(level="user", user_id=user)
    applies |= Q(level="group", group_id__in=groups)
    if chat is not None:
        applies |= Q(level="chat", chat_id=chat)
    assigned = PolicyAssignment.objects.filter(applies, policy__current__isnull=False)
    return assigned.order_by().values_list(
        "level",
        "policy__slug",
        "policy__name",
        "policy__current__number",
        Cast("policy__current__values", TextField()),
        Cast("policy__current__locks", TextField()),
    )


LEDGER_HEAD = prepared.Select(
    lambda at: LedgerHead.objects.select_for_update().filter(pk=at("scope"))
)


EVENT_COUNT = prepared.Select(
    lambda at: LedgerHead.objects.filter(pk=at("scope")).values_list("count")
)


# The digest determines the values, so they are loaded only on a miss of the cache in `resolution`.
POLICY_BY_DIGEST = prepared.Select(
    lambda at: EffectivePolicy.objects.only("label").filter(pk=at("digest"))
)


ASSIGNMENTS = prepared.Select(
    lambda at: select_assignments(
        user=at("user"),
        groups=User.groups.through.objects.filter(user=at("user")).values("group"),
        chat=at("chat"),
    )
)


# The skills of a user's groups, and of the team of a chat (None: no team).
OWN_SKILLS = prepared.Select(
    lambda at: Skill.objects.filter(
        Q(group__in=User.groups.through.objects.filter(user=at("user")).values("group"))
        | Q(team_id=at("team")),
        enabled=True,
    ).order_by()
)
