"""Stores the steps of turns as messages.

An interrupted step is stored with a result for each of its calls to tool servers: the result that
arrived, or a note that the outcome is unknown or that the tool was not called. Later prompts
contain these results, because the model would call the tools again otherwise.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from chats.models import Chat, Message, ToolCall, Turn
from chats.prompt.tokenizer import O200kCounter
from chats.record import images, messages
from chats.tool_servers.results import format_failure
from chats.turns import rounds, tool_steps
from chats.turns.call_receipts import close_call
from chats.turns.result_images import load_step_images
from chats.turns.step_results import StepResult
from contextpolicy.engine.messages.messages import serialize_parts


def store_step(
    *, turn: Turn, chat: Chat, ending: StepResult, counted: messages.Counted, now: datetime
) -> Message:
    """Store the step's assistant message and complete its receipt."""
    if ending.receipt_id:
        close_call(receipt_id=ending.receipt_id, ending=ending, now=now)
    if ending.runs_servers:
        tool_steps.delete_tool_steps(turn)
    speaker = rounds.build_speaker_fields(turn, ending.parts) if turn.agent_id is not None else {}
    message = messages.append_step(
        turn=turn,
        chat=chat,
        parts=ending.parts,
        finish=ending.finish,
        counted=counted,
        now=now,
        kept=ending.has_calls and ending.finish == Message.Finish.INCOMPLETE,
        **speaker,
    )
    images.store_message_images([message], found=ending.images)
    return message


def store_lost_step(turn: Turn, *, chat: Chat, finish: str, now: datetime) -> Message | None:
    """Store the calls of a turn that ends without a worker as the turn's reply; return the reply.

    None if it started no call. The caller has locked the chat and the turn, saves `Turn.reply`, and
    then ends the open calls.
    """
    ending = add_call_results(turn, ending=StepResult(finish=finish))
    if not ending.has_calls:
        return None
    counted = messages.count_parts_tokens(
        ending.parts, role=Message.Role.ASSISTANT, counter=O200kCounter()
    )
    turn.branch.refresh_from_db()
    message = store_step(turn=turn, chat=chat, ending=ending, counted=counted, now=now)
    chat.save(update_fields=["accepted_count"])
    return message


def has_started_calls(turn: Turn) -> bool:
    """Return True if the turn's current step is stored and started a call to a tool server."""
    started = ToolCall.objects.filter(turn=turn, step=turn.step, attempt__gt=0)
    return started.exists() and tool_steps.find_tool_step(turn) is not None


def add_call_results(
    turn: Turn, *, ending: StepResult, code: str = tool_steps.LOST_CODE
) -> StepResult:
    """Return the ending of a turn with its current step's calls, and a result for each.

    `code`: why a call of this attempt did not end. Nothing is added if no call was started. A reply
    with added results is incomplete unless it was stopped.
    """
    if not has_started_calls(turn):
        return ending
    parts = [*ending.parts]
    stored = tool_steps.find_tool_step(turn)
    if not parts and stored is not None:
        parts = [part for part in stored.parts if part["type"] != "file"]
    rows = {row.place: row for row in ToolCall.objects.filter(turn=turn, step=turn.step)}
    answered = {part["call_id"] for part in parts if part["type"] == "tool_result"}
    found = dict(ending.images)
    left = "stopped" if ending.finish == Message.Finish.STOPPED else "not_reached"
    added: list[Mapping[str, Any]] = []
    for place, call in enumerate([part for part in parts if part["type"] == "tool_call"]):
        call_id = call["call_id"]
        if call_id in answered:
            continue
        shown = load_step_images(turn, call_id=call_id)
        found |= {each.image.sha256: each.copy for each in shown}
        content = format_call_outcome(rows.get(place), turn=turn, code=code, left=left)
        added += serialize_parts([each.build_part(call_id) for each in shown])
        added.append(build_result_part(call, content=content))
    stop, incomplete = Message.Finish.STOP, Message.Finish.INCOMPLETE
    finish = incomplete if ending.finish == stop else ending.finish
    return replace(ending, parts=(*parts, *added), images=found, has_calls=True, finish=finish)


def format_call_outcome(row: ToolCall | None, *, turn: Turn, code: str, left: str) -> str:
    """Return the result of a call for the model. `row` is None if the call was not reached.

    `code`: why a call of this attempt did not end. `left`: why a call was not started.
    """
    if row is not None and row.outcome != ToolCall.Outcome.OPEN and row.content:
        return row.content
    if row is None or not row.attempt:
        return format_failure(left, is_unknown=False)
    own = code if row.attempt == turn.attempt else tool_steps.LOST_CODE
    return format_failure(own, is_unknown=True)


def build_result_part(call: Mapping[str, Any], *, content: str) -> dict[str, str]:
    """Return the message part that contains the result of a call."""
    return {
        "type": "tool_result",
        "call_id": call["call_id"],
        "name": call["name"],
        "content": content,
    }
