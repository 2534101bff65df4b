"""Approves tool definitions exactly as an administrator saw them."""

from datetime import datetime

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from contextpolicy.models import ToolDefinition
from contextpolicy.tool_servers import approve_definition


class ToolHasChanged(Refusal):
    """The definition of the tool changed after it was shown."""

    code = "tool_has_changed"
    status = 409
    sentence = gettext_noop(
        "The definition changed after it was shown. Read the new definition, then approve the "
        "tool again."
    )


def approve_tool(row: ToolDefinition, *, digest: str, actor: str, now: datetime) -> None:
    """Approve a tool whose definition has this digest. Raises ToolHasChanged."""
    if not approve_definition(row, digest=digest, actor=actor, now=now):
        raise ToolHasChanged
