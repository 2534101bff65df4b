"""Determines where a policy is used without an assignment, and shares of chats in use."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet

from chats.models import Agent, ApiKey, Chat
from chats.simulation import sampling
from contextpolicy import controls
from contextpolicy.models import ContextPolicy


def is_policy_referenced(policy: ContextPolicy) -> bool:
    """Return True if a chat was opened with the policy, or an API key or an agent uses it."""
    if Chat.objects.filter(policy=policy).exists():
        return True
    if ApiKey.objects.filter(policy=policy, revoked_at=None).exists():
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
    """Return the share of the chats in use that belong to a user.

    0 if no chats are in use.
    """
    return compute_chat_share(Q(owner=user), now=now)


def compute_policy_share(policy: ContextPolicy, now: datetime) -> float:
    """Return the share of the chats in use that were opened with a policy.

    0 if no chats are in use.
    """
    return compute_chat_share(Q(policy=policy), now=now)


def compute_chat_share(wanted: Q, *, now: datetime) -> float:
    """Return the share of the chats in use that match a condition."""
    chats = sampling.select_chats_in_use(now=now)
    found = chats.filter(wanted).count()
    return found / chats.count() if found else 0.0


controls.OTHER_USES.append(is_policy_referenced)
controls.SHARED_USES.append(is_shared)
controls.SHARES.append(calculate_chat_share)
controls.NAMED_SHARES.append(compute_policy_share)
