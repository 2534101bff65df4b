"""All operations of the API: paths, methods, valid bodies, and ids that do not exist."""

import re
import uuid
from typing import Any

from django.contrib.auth.models import User

from chats.models import Branch, Chat, Message, Turn
from tests.support.api_schema import describe_api

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
VALID_BODIES: dict[str, Any] = {
    "chats_create": {"title": "mine"},
    "chats_change": {"title": "stolen"},
    "chats_messages_send": {"text": "hello"},
    "chats_messages_edit": {"text": "other words"},
    "chats_compactions_create": {"focus": "the price"},
    "chats_compactions_revise": {"text": "stolen"},
    "folders_create": {"name": "mine"},
    "folders_rename": {"name": "stolen"},
    "chats_state_restore": {"version": 1, "to": 1},
    "preferences_change": {"text": "stolen"},
    "keys_create": {"name": "k", "scopes": ["chats:read"]},
    "policies_change": {"name": "stolen"},
    "policies_versions_create": {"values": {"strategy": "simple"}, "based_on": 1},
    "teams_create": {"name": "mine", "agents": [{"name": "Writer"}]},
    "teams_change": {"name": "stolen", "agents": [{"name": "Writer"}]},
    "webhooks_change": {"is_on": False},
    "holds_release": {"reason": "stolen"},
}
WRITABLE_FIELDS = {
    "title",
    "model",
    "text",
    "system_text",
    "pinned",
    "archived",
    "folder",
    "temporary",
    "team",
}
# Every column, its raw ids, and some names often used in mass-assignment attacks.
READ_ONLY_FIELDS = sorted(
    {
        name
        for row in (Chat, Branch, Message, Turn, User)
        for field in row._meta.get_fields()
        for name in (field.name, f"{field.name}_id")
    }
    - WRITABLE_FIELDS
    | {"pk", "policy", "tokens", "_state", "__class__", "role"}
)


# Every path of the schema with its operations.
PATHS: dict[str, Any] = describe_api()["paths"]


def replace_ids(ids: dict[str, str]) -> dict[str, str]:
    """The same names with ids and hashes that do not exist."""
    return {name: replace_id(value) for name, value in ids.items()}


def replace_id(value: str) -> str:
    """An id or a hash of the same kind that does not exist."""
    if re.fullmatch("[0-9a-f]{64}", value):
        return uuid.uuid4().hex * 2
    return "987654321" if value.isdecimal() else str(uuid.uuid4())
