"""Parses the exports of DeepSeek, Grok and Gemini.

The formats are public: DeepSeek's `conversations.json` (github.com/DavidShiang/DeepSeek2md), Grok's
`prod-grok-backend.json` (github.com/hugoamorales/grok_export_toolkit), and the activities that
Google Takeout writes for Gemini (github.com/AlexArchitect-Dev/gemini-takeout-refinery).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from html import unescape
from typing import Any

from django.utils.translation import gettext_noop

from chats.exchange.bounds import MOST_DIGITS
from chats.exchange.citations import link_citation_numbers, remove_citation_cards
from chats.exchange.draft_builder import Builder, Unreadable
from chats.exchange.drafts import ChatDraft
from chats.exchange.entry_values import parse_milliseconds, select_texts
from chats.exchange.jsonstream import get_list_items, is_json_list, release_lazy_value
from chats.exchange.trees import build_unreadable_tree, read_tree_messages
from contextpolicy.engine.messages.messages import Part, ReasoningPart, TextPart

Found = ChatDraft | Unreadable
# Prefix of a user's text in an activity.
PROMPTED = "Prompted "
CONVERSATION = re.compile(r"https://gemini\.google\.com/app/([0-9a-zA-Z_-]{1,60})")


def parse_deepseek_chat(chat: Mapping[str, Any]) -> Found:
    """Parse a DeepSeek conversation: a tree of nodes whose messages consist of fragments."""
    mapping, title = chat["mapping"], chat.get("title")
    if not isinstance(mapping, Mapping):
        return build_unreadable_tree(title)
    builder = Builder()
    for own, parent, message in read_tree_messages(mapping, builder=builder):
        is_user, parts = parse_deepseek_parts(message, builder)
        parts += builder.files(get_list_items(message.get("files")))
        builder.add(
            own,
            parent=parent,
            role="user" if is_user else "assistant",
            parts=parts,
            ts=message.get("inserted_at"),
            model=message.get("model"),
        )
    source = str(chat.get("id") or "")
    release_lazy_value(mapping)
    return builder.draft(source=source, title=title)


def parse_deepseek_parts(message: Mapping[str, Any], builder: Builder) -> tuple[bool, list[Part]]:
    """Return True if a user wrote the message, and its parts."""
    listed = message.get("fragments")
    fragments = [item for item in get_list_items(listed) if isinstance(item, Mapping)]
    others = get_list_items(listed) if is_json_list(listed) else [listed]
    strange = builder.texts(item for item in others if not isinstance(item, Mapping))
    is_user = str(message.get("role") or "").upper() == "USER"
    results = [one for item in fragments for one in get_list_items(item.get("results"))]
    parts: list[Part] = [TextPart(text) for text in strange]
    for fragment in fragments:
        kind = str(fragment.get("type") or "")
        is_user = is_user or kind == "REQUEST"
        for text in builder.texts([fragment.get("content")]):
            if kind == "THINK":
                parts.append(ReasoningPart(text))
            elif kind in ("REQUEST", "RESPONSE", "TEXT"):
                parts.append(TextPart(link_citation_numbers(text, results)))
            else:
                builder.losses.append(f"content_dropped:{kind[:40]}")
        if kind == "SEARCH":
            builder.losses.append("part_dropped:SEARCH")
    if not fragments:
        # Older exports have a text and separate thoughts.
        thoughts = [message.get("reasoning_content"), message.get("thinking_content")]
        parts += [ReasoningPart(text) for text in select_texts(thoughts)]
        parts += [TextPart(text) for text in builder.texts([message.get("content")])]
    return is_user, parts


def parse_grok_chat(chat: Mapping[str, Any]) -> Found:
    """Parse a Grok conversation: responses in order.

    Newer exports also name the parents of responses.
    """
    about = chat["conversation"]
    title = about.get("title") if isinstance(about, Mapping) else None
    if not isinstance(about, Mapping):
        return Unreadable(
            "", gettext_noop("The entry’s `conversation` is not an object. Export the chat again.")
        )
    builder = Builder(is_chain=True)
    before: str | None = None
    for place, item in enumerate(get_list_items(chat.get("responses")), start=1):
        message = item.get("response", item) if isinstance(item, Mapping) else None
        if not isinstance(message, Mapping):
            builder.drop(f"message_dropped:{place}")
            continue
        own = str(message.get("_id") or message.get("response_id") or f"response-{place}")
        parent = message.get("parent_response_id") or message.get("parentResponseId") or before
        is_user = str(message.get("sender") or "").lower() in ("human", "user")
        thoughts = select_texts([message.get("thinking_trace")])
        parts: list[Part] = [ReasoningPart(text) for text in thoughts]
        texts = builder.texts([message.get("message")])
        parts += [TextPart(remove_citation_cards(text)) for text in texts]
        parts += builder.files(get_list_items(message.get("file_attachments")))
        before = builder.add(
            own,
            parent=parent if isinstance(parent, str) else None,
            role="user" if is_user else "assistant",
            parts=parts,
            ts=parse_grok_time(message.get("create_time")),
            model=message.get("model"),
        )
    source = str(about.get("id") or "")
    return builder.draft(source=source, title=title, pinned=about.get("starred"))


def parse_grok_time(value: object) -> object:
    """Return a time from ISO 8601, or from milliseconds in MongoDB's extended JSON."""
    date = value.get("$date") if isinstance(value, Mapping) else value
    number = date.get("$numberLong") if isinstance(date, Mapping) else None
    if isinstance(number, str) and number.isdecimal() and len(number) <= MOST_DIGITS:
        return int(number)
    return date


def is_gemini_activity(value: object) -> bool:
    """Return True if a value is an activity of Gemini in a Google export."""
    if not isinstance(value, Mapping) or "title" not in value or "time" not in value:
        return False
    names = [
        str(value.get("header") or ""),
        *(str(name) for name in get_list_items(value.get("products"))),
    ]
    return any("Gemini" in name or "Bard" in name for name in names)


def get_gemini_conversation(activity: Mapping[str, Any]) -> str:
    """Return the conversation id of an activity, or its day if it has none."""
    for detail in get_list_items(activity.get("details")):
        url = detail.get("url") if isinstance(detail, Mapping) else None
        found = CONVERSATION.match(url) if isinstance(url, str) else None
        if found:
            return found[1]
    return f"day-{str(activity['time'])[:10]}"


def parse_gemini_activities(activities: Sequence[Mapping[str, Any]]) -> Found:
    """Parse the activities of one conversation or day: questions with their replies."""
    builder = Builder()
    before: str | None = None
    title = ""
    listed = sorted(activities, key=lambda one: parse_milliseconds(one["time"]) or 0)
    for activity in listed:
        ts, words = activity["time"], str(activity["title"])
        replies = [
            convert_html_to_markdown(item["html"])
            for item in get_list_items(activity.get("safeHtmlItem"))
            if isinstance(item, Mapping) and isinstance(item.get("html"), str)
        ]
        if not words.startswith(PROMPTED) and not any(replies):
            builder.losses.append("entry_dropped:activity")
            continue
        words = words.removeprefix(PROMPTED)
        title = title or words
        digest = hashlib.sha256(f"{ts}\n{words}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        files = builder.files(get_list_items(activity.get("attachedFiles")))
        question: list[Part] = [TextPart(text) for text in select_texts([words])]
        before = builder.add(
            f"{ts}-{digest}", parent=before, role="user", parts=[*question, *files], ts=ts
        )
        if select_texts(replies):
            reply = [TextPart("\n\n".join(select_texts(replies)))]
            before = builder.add(
                f"{ts}-{digest}-reply", parent=before, role="assistant", parts=reply, ts=ts
            )
    group = get_gemini_conversation(listed[0])
    title = f"Gemini, {group[4:]}" if group.startswith("day-") else title[:100]
    return builder.draft(source=group, title=title)


BLOCKS = ("p", "div", "ul", "ol", "table", "blockquote", "section")
AROUND = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~"}
# Markdown for the start and for the end of an element.
OPENING: Mapping[str, str] = {
    **dict.fromkeys(BLOCKS, "\n\n"),
    **{f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)},
    **AROUND,
    "pre": "\n\n```\n",
    "br": "\n",
    "tr": "\n",
    "li": "\n- ",
    "td": " | ",
    "th": " | ",
}
CLOSING: Mapping[str, str] = {
    **dict.fromkeys((*BLOCKS, *(f"h{level}" for level in range(1, 7))), "\n\n"),
    **AROUND,
    "pre": "\n```\n\n",
}


# A comment, a declaration, or a tag with its attributes. Python's own parser takes quadratic time
# for broken HTML.
TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<[!?][^>]*+>?"
    r"|<(?P<slash>/?)(?P<tag>[a-z][^\s/>]*+)"
    r"(?P<attributes>(?:[^\"'>]++|\"[^\"]*+\"|'[^']*+')*+)>?",
    re.DOTALL | re.IGNORECASE,
)
HREF = re.compile(
    r"(?<![^\s\"'/])href\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'>]++))", re.IGNORECASE
)
# The ends of elements whose content is not text.
SILENT = {
    tag: re.compile(rf"</{tag}\b|\Z", re.IGNORECASE | re.ASCII) for tag in ("script", "style")
}


class _Words:
    """Converts HTML to Markdown, in linear time for any text."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.address = ""
        self.is_code = False

    def feed(self, html: str) -> None:
        """Convert HTML text."""
        place = 0
        while found := TOKEN.search(html, place):
            self.handle_data(unescape(html[place : found.start()]))
            place = found.end()
            tag = (found["tag"] or "").lower()
            if found["slash"]:
                self.handle_endtag(tag)
            elif tag in SILENT:
                ending = SILENT[tag].search(html, place)
                place = ending.start() if ending else len(html)
            elif tag:
                self.handle_starttag(tag, found["attributes"])
        self.handle_data(unescape(html[place:]))

    def handle_starttag(self, tag: str, attributes: str) -> None:
        if tag == "a":
            href = HREF.search(attributes)
            self.address = unescape(href[href.lastindex or 0]) if href else ""
            self.pieces.append("[" if self.address else "")
        elif tag == "code" and not self.is_code:
            self.pieces.append("`")
        self.is_code = self.is_code or tag == "pre"
        self.pieces.append(OPENING.get(tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self.address:
            self.pieces.append(f"]({self.address})")
            self.address = ""
        elif tag == "code" and not self.is_code:
            self.pieces.append("`")
        self.is_code = self.is_code and tag != "pre"
        self.pieces.append(CLOSING.get(tag, ""))

    def handle_data(self, data: str) -> None:
        """Add text. Whitespace is preserved only in code."""
        self.pieces.append(data if self.is_code else re.sub(r"\s+", " ", data))


def convert_html_to_markdown(html: str) -> str:
    words = _Words()
    words.feed(html)
    # A match begins only at the first blank of a run: otherwise a long run takes quadratic time.
    text = re.sub(r"(?<![ \t])[ \t]+\n", "\n", "".join(words.pieces))
    return re.sub(r"\n{3,}", "\n\n", text).strip()
