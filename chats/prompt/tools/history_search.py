"""`chat_history_search`: the model searches messages in its chat that its prompt leaves out.

Read-only and limited to the calling chat, because the arguments cannot name another. Returns a JSON
list of standard messages within a token limit: the best match first, with its neighbours.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from chats.ground.texts import sanitise_text
from chats.memory.search import searchable_text
from chats.memory.search.meaning import Look
from chats.memory.search.recall import remove_speaker_names
from chats.memory.search.search import LONGEST, search_unsent
from chats.models import Branch, Chat, Message
from chats.record.history import select_path_messages
from chats.record.sendable import build_sendable_filter
from chats.record.zones import convert_to_zone, get_branch_zone
from contextpolicy.engine.history.truncation import cut_text
from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.text.schema import find_schema_violations

PROPERTIES: dict[str, object] = {
    "query": {
        "type": "string",
        "minLength": 1,
        "maxLength": 500,
        "description": "Words that stand in the message, or a question in plain words.",
    },
    "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 10},
}
SPEC = ToolSpec(
    name="chat_history_search",
    description=(
        "Search the earlier messages of this chat that are no longer in the prompt. Use it when"
        " the summary lacks a detail that was said before: a name, a number, a date, a wording."
        " Returns the original messages with their dates, best match first, each between the"
        " messages before and after it."
    ),
    parameters={
        "type": "object",
        "properties": PROPERTIES,
        "required": ["query"],
        "additionalProperties": False,
    },
)
# The tool for a team's chat, which can limit the search to one member's messages.
SPEC_OF_TEAM = replace(
    SPEC,
    parameters={
        **SPEC.parameters,
        "properties": {
            **PROPERTIES,
            "speaker": {
                "type": "string",
                "maxLength": 200,
                "description": "Only what this member of the team said, by name.",
            },
        },
    },
)
USUAL_LIMIT = 10
# Limits of a result: tokens of all messages, and characters of one message's text.
MOST_TOKENS = 2_000
MOST_CHARACTERS = 1_500
# Maximum characters of one neighbour's text.
NEIGHBOUR_CHARACTERS = 300
NOTHING = "No earlier message of this chat matches. Try other words."
# Appended to the result while the index is incomplete.
MISSING = "\n{missing} of the earlier messages cannot be searched yet; ask again in a minute."
MALFORMED = "The arguments are not valid: {reason}. Send {{query: text, limit: 1 to 20}}."


def build_search_spec(chat: Chat) -> ToolSpec:
    return SPEC if chat.team_id is None else SPEC_OF_TEAM


def query_in(arguments: str, *, owner_id: int) -> str:
    """Return the query of a call for the vector search; empty if it is missing or invalid."""
    try:
        query = json.loads(arguments)["query"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    if not isinstance(query, str) or len(query) > LONGEST:
        return ""
    return remove_speaker_names(owner_id, query)


def run_history_search(
    arguments: str,
    *,
    branch: Branch,
    counter: TokenCounter,
    sent: Collection[int],
    look: Look | None = None,
) -> tuple[str, dict[str, Any]]:
    """Search the chat's messages that the prompt leaves out.

    Returns the text for the model, and ids and numbers for the ledger. `sent` and `look` are those
    of `memory.search.search.search_unsent`. The ledger gets no hash of the query: the query is part
    of the step's message, which the commitment to the next call covers.
    """
    try:
        given = json.loads(arguments)
        # JSON can encode half of a surrogate pair, which is not valid text.
        json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return MALFORMED.format(reason="they are not valid JSON"), {}
    wrong = find_schema_violations(build_search_spec(branch.chat).parameters, given)
    if wrong:
        return MALFORMED.format(reason=wrong[0][:200]), {}
    most = given.get("limit", USUAL_LIMIT)
    # PostgreSQL compares no names with a NUL.
    speaker = sanitise_text(given.get("speaker", ""))
    found = search_unsent(
        branch, question=given["query"], most=most, speaker=speaker, sent=sent, look=look
    )
    shown = build_match_entries(found.rows, branch=branch, sent=sent, counter=counter)
    content = json.dumps(shown, ensure_ascii=False) if shown else NOTHING
    note = MISSING.format(missing=found.missing) if found.missing else ""
    return content + note, {
        "tool": SPEC.name,
        "messages": [entry["id"] for entry in shown],
    }


def build_match_entries(
    found: Sequence[Message], *, branch: Branch, sent: Collection[int], counter: TokenCounter
) -> list[dict[str, Any]]:
    """Return matches with their neighbours, within the token limit, each message once.

    At least one match is returned.
    """
    matches = {row.seq or 0: row for row in found}
    zone = get_branch_zone(branch)
    near = {**load_neighbours(found, branch=branch, sent=sent), **matches}
    shown: dict[int, dict[str, Any]] = {}
    room = MOST_TOKENS
    for row in found:
        seq = row.seq or 0
        group: dict[int, dict[str, Any]] = {}
        for at in (seq, *get_neighbour_seqs(seq)):
            message = row if at == seq else near.get(at)
            if message is None or at in shown:
                continue
            most = MOST_CHARACTERS if at in matches else NEIGHBOUR_CHARACTERS
            entry = format_history_entry(message, most=most, zone=zone)
            tokens = counter.count(json.dumps(entry, ensure_ascii=False))
            if tokens > room and (shown or group):
                break
            group[at] = entry
            room -= tokens
        # A match may have been shown next to an earlier one.
        if seq not in group and seq not in shown:
            break
        shown |= {at: group[at] for at in sorted(group)}
    return list(shown.values())


def get_neighbour_seqs(seq: int) -> tuple[int, int]:
    return seq - 1, seq + 1


def load_neighbours(
    found: Sequence[Message], *, branch: Branch, sent: Collection[int]
) -> dict[int, Message]:
    """Return the neighbours of some messages by `seq`, except those in the prompt."""
    own = {row.seq for row in found}
    wanted = {near for row in found for near in get_neighbour_seqs(row.seq or 0)} - {*own, *sent}
    rows = select_path_messages(branch, after=0, before=branch.last_seq + 1).filter(
        build_sendable_filter(), seq__in=wanted
    )
    return {row.seq or 0: row for row in rows}


def format_history_entry(row: Message, *, most: int, zone: str) -> dict[str, Any]:
    """Return a row as a standard message, with its text cut to `most` characters.

    Its time is in the given zone, so that its day matches the dates in the prompt. An undated
    message has no time.
    """
    text = "\n".join(searchable_text.collect_searchable_texts(row.parts))
    entry = {
        "id": str(row.pk),
        "seq": row.seq,
        "role": row.role,
        "content": cut_text(text, limit=most, style="head_tail").text,
    }
    if not row.undated:
        entry["created_at"] = convert_to_zone(zone, row.created_at).isoformat(timespec="seconds")
    if row.speaker:
        entry["speaker"] = row.speaker["roleName"]
    return entry
