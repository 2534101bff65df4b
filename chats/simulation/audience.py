"""Tells the checks of policies who is reached besides assignments, and how many chats are whose."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F

from chats.models import Agent, Chat
from chats.simulation import sampling
from contextpolicy import controls
from contextpolicy.models import ContextPolicy


def is_named(policy: ContextPolicy) -> bool:
    """Return True if a chat was opened with the policy, or an agent of a team has it."""
    if Chat.objects.filter(policy=policy).exists():
        return True
    current = Agent.objects.filter(version=F("version__team__current"))
    return current.filter(policy=policy).exists()


def share_of(user: User, now: datetime) -> float:
    """Return the share of the chats in use that are a person's; 0 where there are none."""
    chats = sampling.in_use(now=now)
    everyone = chats.count()
    return chats.filter(owner=user).count() / everyone if everyone else 0.0


controls.OTHER_USES.append(is_named)
controls.SHARES.append(share_of)
