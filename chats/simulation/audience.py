"""Lets policy checks know which people a policy reaches without an assignment.

Also gives each person's share of the chats.
"""

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F, QuerySet

from chats.models import Agent, Chat
from chats.simulation import sampling
from contextpolicy import controls
from contextpolicy.models import ContextPolicy


def is_policy_referenced(policy: ContextPolicy) -> bool:
    """Return True if a chat was opened with the policy, or an agent of a team uses it."""
    if Chat.objects.filter(policy=policy).exists():
        return True
    return list_policy_agents(policy).exists()


def is_shared(policy: ContextPolicy) -> bool:
    """Return True if an agent of a shared team uses the policy."""
    teams = {"version__team__owner": None, "version__team__deleted_at": None}
    return list_policy_agents(policy).filter(**teams).exists()


def list_policy_agents(policy: ContextPolicy) -> QuerySet[Agent]:
    """Return the agents in current team versions that use the policy."""
    return Agent.objects.filter(version=F("version__team__current"), policy=policy)


def calculate_chat_share(user: User, now: datetime) -> float:
    """Return the person's share of the chats in use; 0 if there are none."""
    chats = sampling.select_chats_in_use(now=now)
    everyone = chats.count()
    return chats.filter(owner=user).count() / everyone if everyone else 0.0


controls.OTHER_USES.append(is_policy_referenced)
controls.SHARED_USES.append(is_shared)
controls.SHARES.append(calculate_chat_share)
