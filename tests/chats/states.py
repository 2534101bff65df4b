"""Helpers for chat states: a policy that extracts a state, and state versions."""

from datetime import datetime
from typing import Any

from django.db import transaction

from chats.models import Branch, Chat, ChatState
from chats.record import states
from contextpolicy.models import ContextPolicy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "destination": {"type": "string", "title": "Destination", "maxLength": 80},
        "date": {"type": "string", "format": "date"},
        "people": {"type": "integer", "minimum": 1},
        "class": {"enum": ["first", "second"]},
        "insured": {"type": "boolean"},
        "wishes": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": False,
}


def keep_a_state(*, now: datetime, **values: Any) -> ContextPolicy:
    """Assign a policy that extracts a state, and return it."""
    made = create_policy(
        slug="booking",
        name="Booking",
        values={"strategy": "entity_state", "state_schema": SCHEMA, **values},
        actor="system",
        now=now,
    )
    assign_policy(policy=made, level="instance", actor="system", now=now)
    return made


def lay(
    chat: Chat, values: dict[str, Any], *, now: datetime, kind: str = "extracted", seq: int = 1
) -> ChatState:
    """Append a version of the chat's state."""
    assert chat.active_branch is not None
    with transaction.atomic():
        return states.append_state_version(
            branch_id=chat.active_branch.pk,
            base=states.find_newest_state(Branch.objects.get(pk=chat.active_branch.pk)),
            kind=kind,
            values=values,
            to_seq=seq,
            now=now,
        )
