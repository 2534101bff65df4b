"""Applies the policy's rules that cut or omit tool results in prompts.

A stub replaces an omitted result. Rules apply by tool name; `*` covers all others except
`skill_load`. The stored result is never cut.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from contextpolicy.engine.history.truncation import cut_tool_result
from contextpolicy.engine.messages.messages import Message, ToolResultPart, WireMessage
from contextpolicy.engine.messages.skill_files import MOST_PART_CHARACTERS
from contextpolicy.engine.messages.skills import LONGEST_RESULT, SKILL_LOAD
from contextpolicy.engine.messages.tool_outputs import format_output_pointer, is_tool_of_servers
from contextpolicy.engine.policy.policy import PolicyValues

# Omitted results: the ids of their calls by the seq of their message.
Stubbed = Mapping[int, frozenset[str]]
# Begins the note about a message with omitted results.
RESULTS_LEFT_OUT = "results_left_out"


def format_result_stub(name: str, characters: int) -> str:
    """Return the text that replaces an omitted result."""
    return f"[The result of {name}, {characters:,} characters, is left out here.]"


def get_result_limit(values: PolicyValues, name: str) -> int:
    """Return the maximum length of a result of this tool, in characters.

    The text of a skill is not cut unless a rule names its tool, because a truncated
    instruction could mislead the model.
    """
    if name == SKILL_LOAD:
        return _rule(values, name).get("limit", LONGEST_RESULT)
    return min(values.tool_output_limit, _rule(values, name).get("limit", values.tool_output_limit))


def get_file_part_limit(values: PolicyValues) -> int:
    """Return the maximum number of characters of a skill's file that one call loads.

    The limit for other tool results also applies to file parts, so a loaded part is never
    cut afterwards. The text of a skill may be longer.
    """
    limit = min(values.tool_output_limit, MOST_PART_CHARACTERS)
    return min(limit, _rule(values, SKILL_LOAD).get("limit", limit))


def find_stubbed_results(messages: Sequence[Message], *, values: PolicyValues) -> Stubbed:
    """Find the results of finished turns that `keep_newest` omits.

    Replays the messages: when there are more than twice as many results of a tool as are kept, the
    oldest are omitted in one batch. A batch therefore depends only on earlier messages, and between
    two batches the prompt is append-only. With `keep_newest` 0 each result is omitted at once. A
    window move changes the prefix anyway, so it restarts the replay.
    """
    if not any("keep_newest" in rule for rule in values.tool_output_rules.values()):
        return {}
    gone: dict[int, frozenset[str]] = {}
    standing: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for message in messages:
        for part in message.parts:
            if not isinstance(part, ToolResultPart):
                continue
            keep = _rule(values, part.name).get("keep_newest")
            if keep is None:
                continue
            kept = standing[part.name]
            kept.append((message.seq, part.call_id))
            if len(kept) > 2 * keep:
                border = len(kept) - keep
                for seq, call_id in kept[:border]:
                    gone[seq] = gone.get(seq, frozenset()) | {call_id}
                del kept[:border]
    return gone


def format_stub_note(message: Message, gone: frozenset[str]) -> str:
    """Return the note about the omitted results of a message: the ids of their calls as JSON."""
    results = (part for part in message.parts if isinstance(part, ToolResultPart))
    ids = dict.fromkeys(part.call_id for part in results if part.call_id in gone)
    return f"{RESULTS_LEFT_OUT}:{json.dumps([*ids])}"


def parse_stub_notes(notes: Iterable[str]) -> dict[int, frozenset[str] | None]:
    """Return the omitted results that a prompt's notes list, by the seq of their message.

    None for a message whose note has no ids, as in receipts from older versions.
    """
    found: dict[int, frozenset[str] | None] = {}
    for note in notes:
        seq, _, rest = note.partition(":")
        name, _, ids = rest.partition(":")
        if name == RESULTS_LEFT_OUT and seq.isdecimal():
            found[int(seq)] = frozenset(json.loads(ids)) if ids else None
    return found


def list_omittable_results(message: Message, *, values: PolicyValues) -> frozenset[str]:
    """Return the call ids of a message's results that the policy may omit (`keep_newest`)."""
    return frozenset(
        part.call_id
        for part in message.parts
        if isinstance(part, ToolResultPart) and "keep_newest" in _rule(values, part.name)
    )


def apply_tool_rules(
    wires: Sequence[WireMessage],
    *,
    values: PolicyValues,
    most: int | None,
    stubbed: frozenset[str],
) -> tuple[WireMessage, ...]:
    """Apply the rules for tool results to wire messages.

    `most` is a further limit in characters; `stubbed` contains the call ids of results to omit.
    Messages without changes are returned unchanged.
    """
    names = {call.call_id: call.name for wire in wires for call in wire.tool_calls}
    return tuple(
        _apply_rule(wire, names.get(wire.tool_call_id, ""), values, most, stubbed)
        if wire.role == "tool"
        else wire
        for wire in wires
    )


def _apply_rule(
    wire: WireMessage, name: str, values: PolicyValues, most: int | None, stubbed: frozenset[str]
) -> WireMessage:
    if wire.tool_call_id in stubbed:
        short = format_result_stub(name, len(wire.content))
        if len(wire.content) <= len(short) and not wire.images:
            return wire
        return wire._replace(content=short, images=())
    limit = get_result_limit(values, name)
    limit = limit if most is None else min(limit, most)
    if len(wire.content) <= limit:
        return wire
    is_readable = is_tool_of_servers(name, allowed=values.tools)
    return wire._replace(content=_cut(wire, limit, is_readable=is_readable))


def _cut(wire: WireMessage, limit: int, *, is_readable: bool) -> str:
    """Return the beginning and the end of a result, and its id if the model can read the rest."""
    pointer = ""
    if is_readable:
        pointer = format_output_pointer(wire.tool_call_id, characters=len(wire.content))
    if 2 * len(pointer) > limit:
        pointer = ""
    return cut_tool_result(wire.content, limit=limit - len(pointer)).text + pointer


def _rule(values: PolicyValues, name: str) -> Mapping[str, int]:
    rules = values.tool_output_rules
    others = {} if name == SKILL_LOAD else rules.get("*", {})
    return rules.get(name, others)
