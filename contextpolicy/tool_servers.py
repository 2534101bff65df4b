"""Tool definitions: stores the descriptions from tool servers, approves them, and loads them.

A definition that changes on its server is stored and needs approval again. The callers check
permissions.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from contextpolicy import ledger
from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.messages.tokens import TokenCounter, count_tool_tokens
from contextpolicy.engine.messages.tool_outputs import SEPARATOR
from contextpolicy.engine.policy.allow_lists import is_name_allowed
from contextpolicy.models import ToolDefinition, ToolServer

# The longest name that model servers accept.
LONGEST_WIRE_NAME = 64
# The hints of a server that the product reads or shows.
HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True, slots=True)
class DescribedTool:
    """A tool as its server describes it. `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The SHA-256, in hex, of everything that an administrator approves."""
        facts = [self.name, self.description, self.schema, self.annotations]
        canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def size(self) -> int:
        return len(self.name) + len(self.description) + len(json.dumps(self.schema))


def build_wire_name(server: str, name: str) -> str:
    """Return the name of a tool for models: `server__tool`.

    The name has at most 64 letters, digits, _ and -. A name that had to be changed ends
    with a part of its hash, so that two tools never have the same name.
    """
    plain = f"{server}{SEPARATOR}{name}"
    wire = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    if wire == plain and len(wire) <= LONGEST_WIRE_NAME:
        return wire
    return mark_wire_name(wire, unique=plain)


def mark_wire_name(wire: str, *, unique: str) -> str:
    """Return the name, shortened and with eight hex digits of the hash of `unique` appended."""
    mark = hashlib.sha256(unique.encode()).hexdigest()[:8]
    return f"{wire[: LONGEST_WIRE_NAME - len(mark) - 1]}_{mark}"


def choose_wire_name(server: ToolServer, name: str) -> str:
    """Return a free name for models for a new tool of a server.

    The tool `b__c` of a server `a` and the tool `c` of a server `a__b` would have the same name.
    """
    wire = build_wire_name(server.slug, name)
    if not ToolDefinition.objects.filter(wire_name=wire).exists():
        return wire
    return mark_wire_name(wire, unique=f"{server.slug}/{name}")


def build_tool_spec(row: ToolDefinition) -> ToolSpec:
    """Return the definition that models get.

    The definition names the server, because the server wrote the description.
    """
    return ToolSpec(
        name=row.wire_name,
        description=f"Tool of the server “{row.server.slug}”. {row.description}".strip(),
        parameters=row.schema,
    )


def load_allowed_tools(allowed: Sequence[str]) -> list[ToolDefinition]:
    """Return the callable tools of an allow-list, sorted by name.

    These tools are approved in their current form, and their server is enabled and lists them. Runs
    no query for an empty list.
    """
    if not allowed:
        return []
    servers = {name.partition("/")[0] for name in allowed}
    rows = ToolDefinition.objects.select_related("server").filter(
        server__slug__in=servers, server__enabled=True, is_listed=True
    )
    return [row for row in rows if row.is_approved and is_name_allowed(str(row), allowed)]


@transaction.atomic
def pin_definitions(
    server: ToolServer,
    *,
    described: Sequence[DescribedTool],
    counter: TokenCounter,
    actor: str,
    now: datetime,
) -> None:
    """Store the tools that a server lists. New and changed ones need approval.

    A tool that the server no longer lists keeps its row and is not offered.
    """
    known = {row.name: row for row in server.tools.select_for_update()}
    listed = {tool.name: tool for tool in described}
    for tool in listed.values():
        row = known.get(tool.name)
        if row is None:
            row = ToolDefinition(
                server=server, name=tool.name, wire_name=choose_wire_name(server, tool.name)
            )
        pin_definition(row, tool, counter=counter, now=now)
    for name, row in known.items():
        if name not in listed and row.is_listed:
            row.is_listed, row.changed_at = False, now
            row.save(update_fields=["is_listed", "changed_at"])
    data = {"server": server.slug, "tools": len(listed)}
    ledger.record_event("tool_server.read", actor=actor, now=now, data=data)


def pin_definition(
    row: ToolDefinition, tool: DescribedTool, *, counter: TokenCounter, now: datetime
) -> None:
    """Store a definition. If the previous form was approved, the ledger records the change."""
    if row.pk and row.digest == tool.digest and row.is_listed:
        return
    was_approved = row.is_approved
    row.description, row.schema = tool.description, dict(tool.schema)
    row.annotations, row.digest = dict(tool.annotations), tool.digest
    row.is_listed, row.changed_at = True, now
    row.tokens = count_tool_tokens((build_tool_spec(row),), counter)
    row.save()
    if was_approved and not row.is_approved:
        data = {"server": row.server.slug, "tool": row.name}
        ledger.record_event("tool.changed", actor="worker", now=now, data=data)


@transaction.atomic
def approve_definition(row: ToolDefinition, *, digest: str, actor: str, now: datetime) -> bool:
    """Approve a definition if it still has this digest.

    Returns False if the definition has changed since.
    """
    changed = ToolDefinition.objects.filter(pk=row.pk, digest=digest)
    if not changed.update(approved_digest=digest):
        return False
    data = {"server": row.server.slug, "tool": row.name, "digest": digest}
    ledger.record_event("tool.approved", actor=actor, now=now, data=data)
    return True


@transaction.atomic
def withdraw_tool(row: ToolDefinition, *, actor: str, now: datetime) -> None:
    """Withdraw the approval of a tool. Models no longer get it, and further calls are refused."""
    ToolDefinition.objects.filter(pk=row.pk).update(approved_digest="")
    data = {"server": row.server.slug, "tool": row.name}
    ledger.record_event("tool.withdrawn", actor=actor, now=now, data=data)


@transaction.atomic
def set_tool_consent(row: ToolDefinition, *, asks: bool, actor: str, now: datetime) -> None:
    """Store whether each call of a tool waits for the user's consent."""
    ToolDefinition.objects.filter(pk=row.pk).update(asks=asks)
    data = {"server": row.server.slug, "tool": row.name, "asks": asks}
    ledger.record_event("tool.consent_changed", actor=actor, now=now, data=data)
