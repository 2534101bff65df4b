"""Replaces citation marks of other products in replies with links, or removes them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from chats.exchange.bounds import SEARCHED_TEXT
from chats.exchange.jsonstream import get_list_items
from chats.ground.texts import replace_tagged_blocks

# The blanks before a mark. A match begins only at the first of a run, because otherwise a long run
# would take quadratic time.
BLANKS = r"(?<![ \t])[ \t]*"
# ChatGPT: U+E200, a kind, fields after U+E202, U+E201. These characters can also occur alone.
MARK = re.compile(BLANKS + r"\ue200([a-z_]*)((?:\ue202[^\ue200\ue201]*)?)\ue201")
STRAY = re.compile("[\ue200-\ue20f]")
OLD_MARK = re.compile(BLANKS + r"【\d+(?::\d+)?†[^】\n]{0,200}】")
# Grok: elements around a citation's number. DeepSeek: numbers of its search results.
CARD_TAG = re.compile(BLANKS + r"<(?P<slash>/?)(?P<name>grok:render)\b[^<>]*>?")
NUMBER = re.compile(BLANKS + r"\[citation:(\d{1,4})\]")
LONGEST_TITLE = 100
# The maximum references of a text, each of which takes time for the whole text. Marks of further
# ones are removed.
MOST_REFERENCES = 500
SPECIAL = re.compile(r"[\[\]`*_<>!\\]")


@dataclass(slots=True)
class LinkRoom:
    """The characters that links may still add to a text. A short mark can stand for a long link."""

    left: int = SEARCHED_TEXT

    def take(self, link: str) -> str:
        """Return a link; empty if there is no room for it."""
        if len(link) > self.left:
            return ""
        self.left -= len(link)
        return link


def replace_citation_marks(text: str, references: Iterable[Any]) -> str:
    """Return text from ChatGPT with links in place of its citation marks.

    Marks without a link are removed.
    """
    if "\ue200" not in text and "†" not in text and not STRAY.search(text):
        return text
    if len(text) > SEARCHED_TEXT:
        return text
    room = LinkRoom()
    for reference in islice(references, MOST_REFERENCES):
        if isinstance(reference, Mapping):
            mark = reference.get("matched_text")
            if isinstance(mark, str) and ("\ue200" in mark or "†" in mark):
                words = format_citation_links(reference) or extract_mark_text(mark)
                text = replace_citation_mark(text, mark, words, room=room)
    text = MARK.sub(render_spaced_mark, text)
    return STRAY.sub("", OLD_MARK.sub("", text))


def replace_citation_mark(text: str, mark: str, words: str, *, room: LinkRoom) -> str:
    """Replace a mark in a text with words; without words, also remove the spaces before it."""
    first, *rest = text.split(mark)
    pieces = [first]
    for piece in rest:
        link = room.take(words)
        if not link:
            pieces[-1] = pieces[-1].rstrip(" \t")
        pieces += [link, piece]
    return "".join(pieces)


def render_spaced_mark(found: re.Match[str]) -> str:
    """Return the text of a mark with the spaces before it; empty if it has no text."""
    words = extract_mark_text(found[0].strip())
    return found[0][: found[0].index("\ue200")] + words if words else ""


def format_citation_links(reference: Mapping[str, Any]) -> str:
    """Return the links of a citation; empty if it does not name a page."""
    found = [item for item in get_list_items(reference.get("items")) if isinstance(item, Mapping)]
    links = [link for item in (found or [reference]) if (link := format_citation_link(item))]
    return f"({', '.join(links)})" if links else ""


def format_citation_link(item: Mapping[str, Any]) -> str:
    """Return a Markdown link to a web page; empty if the item has no valid URL."""
    address = item.get("url")
    if not isinstance(address, str) or not re.fullmatch(r"https?://[^\s<>()\\]+", address):
        return ""
    title = item.get("title") or item.get("attribution") or address
    words = " ".join(str(title).split())[:LONGEST_TITLE]
    return f"[{SPECIAL.sub(escape_markdown_character, words)}]({address})"


def escape_markdown_character(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def extract_mark_text(mark: str) -> str:
    """Return the visible text of an entity or link mark; empty for any other mark."""
    found = MARK.fullmatch(mark)
    fields = found[2].split("\ue202")[1:] if found else []
    if found is None or not fields:
        return ""
    if found[1] == "entity":
        try:
            listed = json.loads(fields[0])
        except (ValueError, RecursionError):
            return ""
        names = [name for name in get_list_items(listed)[1:2] if isinstance(name, str)]
        return names[0] if names else ""
    return fields[0] if found[1] in ("url", "link_title") and "turn0" not in fields[0] else ""


def remove_citation_cards(text: str) -> str:
    """Return text from Grok without its citation elements."""
    return replace_tagged_blocks(text, tags=CARD_TAG) if "<grok:render" in text else text


def link_citation_numbers(text: str, results: Iterable[Any]) -> str:
    """Return text from DeepSeek with links in place of its citation numbers."""
    if "[citation:" not in text:
        return text
    links = {
        str(item.get("cite_index")): link
        for item in results
        if isinstance(item, Mapping) and (link := format_citation_link(item))
    }
    room = LinkRoom()
    return NUMBER.sub(
        lambda found: room.take(f" ({links[found[1]]})") if found[1] in links else "", text
    )
