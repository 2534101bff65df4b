"""`chat_history_search`: the model looks up what was said before its prompt begins.

Read-only, within the chat that calls it: its arguments name no chat. The result is a JSON list of
standard messages, best first, within a fixed number of tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chats.memory import archive
from chats.memory.search import search
from chats.models import Branch, Chat, Message
from contextpolicy.engine.messages import ToolSpec
from contextpolicy.engine.schema import violations
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.truncation import cut

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
        " Returns the original messages, best match first."
    ),
    parameters={
        "type": "object",
        "properties": PROPERTIES,
        "required": ["query"],
        "additionalProperties": False,
    },
)
# The same in a chat of a team: what one member said can be asked for.
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
# All messages of a result together, in tokens, and one message's text, in characters.
MOST_TOKENS = 2_000
MOST_CHARACTERS = 1_500
NOTHING = "No earlier message of this chat matches. Try other words."
# Follows the result while the index is behind.
MISSING = "\n{missing} of the earlier messages cannot be searched yet; ask again in a minute."
MALFORMED = "The arguments are not valid: {reason}. Send {{query: text, limit: 1 to 20}}."


def spec_for(chat: Chat) -> ToolSpec:
    """Return the tool as it is offered in a chat."""
    return SPEC if chat.team_id is None else SPEC_OF_TEAM


def answer(arguments: str, *, branch: Branch, counter: TokenCounter) -> tuple[str, dict[str, Any]]:
    """Search; return what the model reads, and what the ledger records: ids and numbers, no words.

    It records no hash of the query either: the query stands in the message of the step, and the
    commitment to the next call holds it with everything else that was sent.
    """
    try:
        given = json.loads(arguments)
        # JSON can spell half of a surrogate pair, which no text can hold.
        json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return MALFORMED.format(reason="they are no JSON text"), {}
    wrong = violations(spec_for(branch.chat).parameters, given)
    if wrong:
        return MALFORMED.format(reason=wrong[0][:200]), {}
    most = given.get("limit", USUAL_LIMIT)
    speaker = given.get("speaker", "")
    found = search(branch, question=given["query"], most=most, speaker=speaker)
    shown = within(found.rows, counter=counter)
    content = json.dumps(shown, ensure_ascii=False) if shown else NOTHING
    note = MISSING.format(missing=found.missing) if found.missing else ""
    return content + note, {
        "tool": SPEC.name,
        "messages": [entry["id"] for entry in shown],
    }


def within(found: Sequence[Message], *, counter: TokenCounter) -> list[dict[str, Any]]:
    """Return the messages as the model reads them, as many as the token limit holds.

    At least one is returned.
    """
    shown: list[dict[str, Any]] = []
    room = MOST_TOKENS
    for row in found:
        text = "\n".join(archive.texts_of(row.parts))
        entry = {
            "id": str(row.pk),
            "seq": row.seq,
            "role": row.role,
            "content": cut(text, limit=MOST_CHARACTERS, style="head_tail").text,
            "created_at": row.created_at.isoformat(timespec="seconds"),
        }
        if row.speaker:
            entry["speaker"] = row.speaker["roleName"]
        room -= counter.count(json.dumps(entry, ensure_ascii=False))
        if room < 0 and shown:
            break
        shown.append(entry)
    return shown
