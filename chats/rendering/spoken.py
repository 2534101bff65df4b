"""The displayed text of a message: an agent's own words without labels and markers.

The original text is stored. The displayed text is a pure function of it, so an erasure finds the
stored HTML of both.
"""

import re

from chats.models import Message
from contextpolicy.engine.team.markers import NEXT_BRACKETS, strip_display_markers
from contextpolicy.engine.team.team_view import Said, fold_member_name, split_reply_speakers


def extract_displayed_text(message: Message) -> Said:
    """Return the text that is displayed for a message.

    Parts that the agent wrote in another member's name are returned separately.
    """
    if not message.speaker or message.speaker["type"] != "ai":
        return Said(message.text)
    found = split_reply_speakers(message.text, name=str(message.speaker["roleName"]))
    return Said(strip_display_markers(found.own), found.for_others)


def list_rendered_texts(message: Message) -> set[str]:
    """Return all texts of a message that may have been rendered."""
    return {message.text, extract_displayed_text(message).own}


# A match begins at the first blank of a run and is bounded. Otherwise hostile texts would take
# quadratic time.
_NEXT = "|".join(
    rf"{re.escape(opening)}NEXT[:：][^{re.escape(closing)}\n]{{0,200}}{re.escape(closing)}"
    for opening, closing in NEXT_BRACKETS
)
_MARKER = re.compile(
    rf"(?<![ \t])[ \t]*(?:\[(FROM):([^\]\n]{{0,200}})\]|{_NEXT})", re.IGNORECASE | re.ASCII
)
# An incomplete marker at the end of the text so far.
_OPEN_MARKER = re.compile(
    r"[ \t]+\Z|[ \t]*[\[［【](?:(?:F|FR|FRO|FROM|N|NE|NEX|NEXT)?"
    r"|(?:FROM|NEXT)[:：][^\]］】\n]{0,200})\Z",
    re.IGNORECASE | re.ASCII,
)


class SpokenSoFar:
    """The displayed text of a reply that is still being written.

    When the reply ends, the page replaces it with `extract_displayed_text` of the whole reply.
    Until then, a few characters that may become a label or marker are held back, and markers in
    code are not shown. Text after another member's name is never shown.
    """

    def __init__(self, name: str, *, at_start: bool = True) -> None:
        self.name = name
        # The start of the text, which may be the agent's own label.
        self.head = "" if at_start else None
        self.held = ""
        self.is_over = False

    def take(self, text: str) -> str:
        """Add a piece of the reply. Return the text to display."""
        if self.is_over:
            return ""
        if self.head is not None:
            self.head += text
            if self.may_be_label(self.head):
                return ""
            text, self.head = split_reply_speakers(self.head, name=self.name).own, None
        return self.without_markers(self.held + text)

    def may_be_label(self, head: str) -> bool:
        """Return True if the text so far may still become a label."""
        begun = head.lstrip().casefold()
        own = self.name.casefold()
        labels = (f"[from:{own}]:", f"{own}:", f"{own}：", f"**{own}**:", f"**{own}:**")
        return any(label.startswith(begun) for label in labels)

    def without_markers(self, text: str) -> str:
        """Return the text without markers. An ending that may begin a marker is held back."""
        made, place = [], 0
        for marker in _MARKER.finditer(text):
            made.append(text[place : marker.start()])
            place = marker.end()
            if marker[1] and fold_member_name(marker[2]) != fold_member_name(self.name):
                self.is_over = True
                return "".join(made)
        rest = text[place:]
        tail = rest[-250:]
        opened = _OPEN_MARKER.search(tail)
        self.held = tail[opened.start() :] if opened else ""
        made.append(rest[: len(rest) - len(self.held)])
        return "".join(made)
