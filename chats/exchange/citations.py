"""Replace other products' citation marks in replies with links, or remove them."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

# ChatGPT: U+E200, a kind, fields after U+E202, U+E201. These characters can also occur alone.
MARK = re.compile(r"[ \t]*\ue200([a-z_]*)((?:\ue202[^\ue200\ue201]*)*)\ue201")
STRAY = re.compile("[\ue200-\ue20f]")
OLD_MARK = re.compile(r"[ \t]*【\d+(?::\d+)?†[^】\n]{0,200}】")
# Grok: elements around a citation's number. DeepSeek: numbers of its search results.
CARD = re.compile(r"[ \t]*<grok:render\b.*?</grok:render>", re.DOTALL)
NUMBER = re.compile(r"[ \t]*\[citation:(\d{1,4})\]")
LONGEST_TITLE = 100
SPECIAL = re.compile(r"[\[\]`*_<>!\\]")


def without_marks(text: str, references: Iterable[Any]) -> str:
    """Return a ChatGPT text with links in place of its marks; marks without a link are removed."""
    if "\ue200" not in text and "†" not in text and not STRAY.search(text):
        return text
    for reference in references:
        if isinstance(reference, Mapping):
            mark = reference.get("matched_text")
            if isinstance(mark, str) and ("\ue200" in mark or "†" in mark):
                words = links_of(reference) or words_of_mark(mark)
                spaced = re.compile(rf"([ \t]*){re.escape(mark)}")
                text = spaced.sub(lambda found, words=words: words and found[1] + words, text)  # type: ignore[misc]  # bound now
    text = MARK.sub(spaced_words, text)
    return STRAY.sub("", OLD_MARK.sub("", text))


def spaced_words(found: re.Match[str]) -> str:
    """Return the text of a mark with the spaces before it; empty if it has no text."""
    words = words_of_mark(found[0].strip())
    return found[0][: found[0].index("\ue200")] + words if words else ""


def links_of(reference: Mapping[str, Any]) -> str:
    """Return the links of a citation; empty if it names no page."""
    items = reference.get("items")
    found = [item for item in items or [] if isinstance(item, Mapping)]
    links = [link for item in (found or [reference]) if (link := link_of(item))]
    return f"({', '.join(links)})" if links else ""


def link_of(item: Mapping[str, Any]) -> str:
    """Return a Markdown link to a web page; empty without one."""
    address = item.get("url")
    if not isinstance(address, str) or not re.fullmatch(r"https?://[^\s<>()\\]+", address):
        return ""
    title = item.get("title") or item.get("attribution") or address
    words = " ".join(str(title).split())[:LONGEST_TITLE]
    return f"[{SPECIAL.sub(escaped, words)}]({address})"


def escaped(found: re.Match[str]) -> str:
    """Return a character escaped for Markdown."""
    return f"\\{found[0]}"


def words_of_mark(mark: str) -> str:
    """Return the visible text of a mark: that of an entity or a link."""
    found = MARK.fullmatch(mark)
    fields = found[2].split("\ue202")[1:] if found else []
    if found is None or not fields:
        return ""
    if found[1] == "entity":
        try:
            listed = json.loads(fields[0])
        except (ValueError, RecursionError):
            return ""
        names = [name for name in listed[1:2] if isinstance(name, str)]
        return names[0] if names else ""
    return fields[0] if found[1] in ("url", "link_title") and "turn0" not in fields[0] else ""


def without_cards(text: str) -> str:
    """Return a Grok text without its citation elements."""
    return CARD.sub("", text) if "<grok:render" in text else text


def without_numbers(text: str, results: Iterable[Any]) -> str:
    """Return a DeepSeek text with links in place of the numbers of its search results."""
    if "[citation:" not in text:
        return text
    links = {
        str(item.get("cite_index")): link
        for item in results
        if isinstance(item, Mapping) and (link := link_of(item))
    }
    return NUMBER.sub(lambda found: f" ({links[found[1]]})" if found[1] in links else "", text)
