"""Builds the text and the search keys under which a message is indexed."""

import uuid
from collections.abc import Iterable

from chats.memory.search import fulltext
from chats.memory.search.words import split_words
from chats.models import Branch, Message, SearchText
from contextpolicy.engine.messages.messages import FilePart, parse_result_image

# Maximum characters indexed per message, because a tool's output can have megabytes.
MOST_CHARACTERS = 20_000


def build_indexed_text(row: Message) -> SearchText:
    """Return the searchable text of a message: keys, speaker's name, words and day."""
    text = " ".join(collect_searchable_texts(row.parts))[:MOST_CHARACTERS]
    speaker = str((row.speaker or {}).get("roleName", ""))
    day = "" if row.undated else row.created_at.strftime("%-d %B %Y %A")
    return SearchText(
        message=row,
        keys=build_search_keys(row.branch, role=row.role),
        speaker=" ".join(split_words(speaker)[1])[:200],
        written_at=row.created_at,
        **build_word_fields(f"{speaker}: {text} {day}"),
    )


def build_word_fields(text: str) -> dict[str, str]:
    """Return the columns of a text for the full-text index: its stems and its full words."""
    stems, full = split_words(text)
    return {"words": " ".join(stems), "full": " ".join(fulltext.FULL + word for word in full)}


def build_search_keys(branch: Branch, *, role: str) -> str:
    """Return the search keys of a text: owner, chat and role."""
    named = (
        build_owner_key(branch.chat.owner_id),
        build_chat_key(branch.chat_id),
        build_role_key(role),
    )
    return " ".join(fulltext.KEY + key for key in named)


def collect_searchable_texts(parts: Iterable[dict[str, object]]) -> Iterable[str]:
    """Yield the texts of a message's parts and tool results, without reasoning and arguments.

    The names and text of files follow, so that a long file does not displace words of the message.
    """
    parts = list(parts)
    for part in parts:
        if part["type"] == "text":
            yield str(part["text"])
        elif part["type"] == "tool_result":
            yield str(part["content"])
    for part in parts:
        if part["type"] == "file" and part.get("text"):
            yield f"{part['name']}\n{part['text']}"
    # Last, so that the offsets of stored excerpts stay valid.
    yield from list_names_of_images(parts)


def list_names_of_images(parts: Iterable[dict[str, object]]) -> list[str]:
    """Return the names of files without text, such as images. Tool results have none."""
    files = [
        FilePart(str(part["media_type"]), str(part["name"]), str(part["reference"]))
        for part in parts
        if part["type"] == "file" and not part.get("text")
    ]
    return [file.name for file in files if file.name and not parse_result_image(file)[0]]


def build_owner_key(owner_id: int) -> str:
    """Return the key that all texts of a user share."""
    return f"o{owner_id}"


def build_chat_key(chat_id: uuid.UUID) -> str:
    return f"c{chat_id.hex}"


def build_role_key(role: str) -> str:
    """Return the key that all texts of this role share: user, assistant or summary."""
    return f"r{role}"
