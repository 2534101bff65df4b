"""`chat_history_search`: the model looks up what was said before its prompt begins.

Read-only, within the chat that calls it: its arguments name no chat. The result is a JSON list of
standard messages, best first, within a fixed number of tokens.
"""

import json
from collections.abc import Sequence
from typing import Any

from chats.memory import archive
from chats.memory.search import search
from chats.models import Branch, Message
from contextpolicy.engine.messages import ToolSpec
from contextpolicy.engine.schema import violations
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.truncation import cut

SPEC = ToolSpec(
    name="chat_history_search",
    description=(
        "Search the earlier messages of this chat that are no longer in the prompt. Use it when"
        " the summary lacks a detail that was said before: a name, a number, a date, a wording."
        " Returns the original messages, best match first."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 500,
                "description": "Words that stand in the message, or a question in plain words.",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 10},
        },
        "required": ["query"],
        "additionalProperties": False,
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
    wrong = violations(SPEC.parameters, given)
    if wrong:
        return MALFORMED.format(reason=wrong[0][:200]), {}
    most = given.get("limit", USUAL_LIMIT)
    found = search(branch, question=given["query"], most=most)
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
        room -= counter.count(json.dumps(entry, ensure_ascii=False))
        if room < 0 and shown:
            break
        shown.append(entry)
    return shown
