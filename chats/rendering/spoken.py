"""The words of a message as people read them: an agent's own, without labels and markers.

The store keeps what was said. What is shown is a pure function of it, so an erasure finds the
stored HTML of either.
"""

import re

from chats.models import Message
from contextpolicy.engine.markers import unmarked
from contextpolicy.engine.team_view import Said, folded, said


def shown(message: Message) -> Said:
    """Return the words that a message is shown with, and those it says in a mate's name."""
    if not message.speaker or message.speaker["type"] != "ai":
        return Said(message.text)
    found = said(message.text, name=str(message.speaker["roleName"]))
    return Said(unmarked(found.own), found.for_others)


def texts_shown(message: Message) -> set[str]:
    """Return every text of a message that may have been rendered."""
    return {message.text, shown(message).own}


_MARKER = re.compile(r"[ \t]*\[(FROM|NEXT):([^\]\n]*)\]", re.IGNORECASE | re.ASCII)
# The beginning of a marker at the end of what has come so far.
_OPEN_MARKER = re.compile(
    r"[ \t]+\Z|[ \t]*\[(?:(?:F|FR|FRO|FROM|N|NE|NEX|NEXT)?|(?:FROM|NEXT):[^\]\n]{0,200})\Z",
    re.IGNORECASE | re.ASCII,
)


class SpokenSoFar:
    """The words of an agent's reply while it is written, as `shown` will show the whole.

    What may become a label or a marker is held back until it is decided, a few characters; from
    words for somebody else on, nothing more is shown. Markers in code are shown when it ends.
    """

    def __init__(self, name: str, *, at_start: bool = True) -> None:
        self.name = name
        # The text before its first words, which may be the agent's own label.
        self.head = "" if at_start else None
        self.held = ""
        self.is_over = False

    def take(self, text: str) -> str:
        """Take more of the reply, and return what is shown of it now."""
        if self.is_over:
            return ""
        if self.head is not None:
            self.head += text
            if self.may_be_label(self.head):
                return ""
            text, self.head = said(self.head, name=self.name).own, None
        return self.without_markers(self.held + text)

    def may_be_label(self, head: str) -> bool:
        """Tell whether the text so far may still become a label."""
        begun = head.lstrip().casefold()
        own = self.name.casefold()
        labels = (f"[from:{own}]:", f"{own}:", f"{own}：", f"**{own}**:", f"**{own}:**")
        return any(label.startswith(begun) for label in labels)

    def without_markers(self, text: str) -> str:
        """Return the text up to what may become a marker, without those that it has."""
        made, place = [], 0
        for marker in _MARKER.finditer(text):
            made.append(text[place : marker.start()])
            place = marker.end()
            if marker[1].upper() == "FROM" and folded(marker[2]) != folded(self.name):
                self.is_over = True
                return "".join(made)
        rest = text[place:]
        tail = rest[-250:]
        opened = _OPEN_MARKER.search(tail)
        self.held = tail[opened.start() :] if opened else ""
        made.append(rest[: len(rest) - len(self.held)])
        return "".join(made)
