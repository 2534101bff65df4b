"""Lists the messages of a chat as UI messages, with the steps of a reply as one message."""

import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, cast

from chats.exchange.foreign_metadata import restore_client_metadata
from chats.exchange.ui_approvals import mark_denied_calls
from chats.exchange.ui_files import name_file_addresses
from chats.exchange.ui_lookup import load_branch, select_by_ui_id, select_path
from chats.exchange.writing import order_metadata, restore_source_parts, to_milliseconds
from chats.ground.refusals import NotFound
from chats.models import Branch, Chat, Message, Turn
from chats.models.turns import UNFINISHED
from chats.record import messages
from contextpolicy.engine.messages.messages import (
    Part,
    TextPart,
    parse_parts,
)
from contextpolicy.engine.messages.ui_messages import (
    UIMessage,
    serialize_ui_message,
)


def list_ui_messages(
    chat: Chat, *, limit: int, before: str = ""
) -> tuple[list[dict[str, Any]], bool]:
    """Return the newest UI messages of the active path, and whether there are earlier messages.

    `limit` counts stored messages; a reply with tool calls has several. `before`: the id of the
    first UI message that the client has. Raises `NotFound` for an unknown id.
    """
    branch = load_branch(chat)
    waiting = [] if before else list(messages.list_waiting_messages(branch_id=branch.pk))
    branch.refresh_from_db(fields=["last_seq"])
    path = select_path(branch)
    if before:
        found = list(select_by_ui_id(path, before))
        if not found:
            raise NotFound
        steps = [row for row in found if row.role == Message.Role.ASSISTANT]
        path = path.filter(seq__lt=(steps or found)[0].seq)
    newest = list(path.order_by("-seq")[: limit + 1])
    has_earlier = len(newest) > limit
    rows = newest[:limit][::-1]
    if has_earlier:
        # A reply is never split.
        split = newest[limit].turn_id
        while len(rows) > 1 and split and is_step(rows[0]) and rows[0].turn_id == split:
            rows = rows[1:]
    taken = {row.pk for row in rows}
    rows += [row for row in waiting if row.pk not in taken]
    return list(serialize_ui_rows(rows, branch=branch)), has_earlier


def is_step(row: Message) -> bool:
    """Return True if a message is a step of a turn."""
    return row.role == Message.Role.ASSISTANT and row.turn_id is not None


def serialize_ui_rows(rows: Sequence[Message], *, branch: Branch) -> Iterator[dict[str, Any]]:
    """Yield UI messages. Consecutive steps of a turn form one message."""
    running = set(
        Turn.objects.filter(branch=branch, status__in=UNFINISHED).values_list("pk", flat=True)
    )
    written: set[uuid.UUID] = set()
    for (turn_id, _), group in groupby(rows, key=get_group):
        steps = list(group)
        if turn_id is None:
            yield from (serialize_one(row) for row in steps)
        elif turn_id not in running:
            # Steps after a message that was accepted during the turn get another id.
            own = turn_id if turn_id not in written else steps[0].pk
            written.add(turn_id)
            yield serialize_steps(steps, own_id=str(own))


def get_group(row: Message) -> tuple[uuid.UUID | None, str]:
    """Return the key of a message's group: the turn if it is a step of a reply, else itself."""
    return (row.turn_id, "") if is_step(row) else (None, str(row.pk))


def serialize_one(row: Message) -> dict[str, Any]:
    """Return a message that is not a step, with all data from its client."""
    source = row.metadata.get("source") or {}
    role = "user" if row.role == Message.Role.USER else "assistant"
    metadata = {**describe_row(row), **restore_client_metadata(source.get("metadata") or {})}
    own = str(source.get("id") or row.pk)
    parts: tuple[Part, ...] = name_file_addresses(row, parse_parts(row.parts)) or (TextPart(""),)
    made: dict[str, Any] = serialize_ui_message(
        UIMessage(own, cast(Any, role), parts, order_metadata(metadata))
    )
    made["parts"] = restore_source_parts(row, made["parts"])
    return made


def serialize_steps(rows: Sequence[Message], *, own_id: str) -> dict[str, Any]:
    """Return a reply: the parts of all its steps, each step after a `step-start` part."""
    last, parts = rows[-1], []
    for row in rows:
        step = name_file_addresses(row, parse_parts(row.parts))
        made: dict[str, Any] = serialize_ui_message(UIMessage(own_id, "assistant", step, {}))
        own = [part for part in made["parts"] if part["type"] != "step-start"]
        parts += [{"type": "step-start"}, *mark_denied_calls(own)]
    metadata = {"model": last.model_name, "finish": last.finish, **describe_row(last)}
    return {"id": own_id, "role": "assistant", "parts": parts, "metadata": metadata}


def describe_row(row: Message) -> dict[str, object]:
    return {} if row.undated else {"ts": to_milliseconds(row.created_at)}
