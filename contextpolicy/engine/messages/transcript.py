"""Formats chats as text: sections with titles, and entries that begin with a role.

Text is built from values and never parsed back. A line inside an entry that looks like a title or
another entry is indented by one space. A message therefore cannot add sections or impersonate
another speaker.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

EntryRole = Literal["user", "assistant", "system"]

# Fixed words of the format, never translated.
PREFIXES: Mapping[EntryRole, str] = {
    "user": "User:",
    "assistant": "Assistant:",
    "system": "System:",
}
PREFERENCES = "User Preferences:"
PROFILE = "User Profile:"
SUMMARY_TITLE = "Conversation (summary):"
PINNED_TITLE = "Conversation (pinned):"
STATE_TITLE = "Conversation state:"
RECENT_TITLE = "Conversation (recent):"
OTHER_CHATS_TITLE = "Other chats (recent):"
REFERENCES_TITLE = "Relevant reference (semantic):"
DATE = "Date:"
SECTION_JOINT = "\n\n"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

# The characters that a model may treat as a line end.
_LINE_ENDS = "\n\r\v\f\x85\u2028\u2029"


def compile_imitation_pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for lines that begin with one of `words`, ignoring case."""
    listed = "|".join(re.escape(word) for word in words)
    return re.compile(f"(?:(?<=[{_LINE_ENDS}])|\\A)(?=(?:{listed}))", re.IGNORECASE)


def indent_matching_lines(text: str, pattern: re.Pattern[str]) -> str:
    """Insert a space before each line that matches the pattern."""
    return pattern.sub(" ", text)


def format_day_line(day: str) -> str:
    """Return the line for an ISO day: "[Mon 2023-05-08]"."""
    return f"[{WEEKDAYS[date.fromisoformat(day).weekday()]} {day}]"


_DAY_LINES = compile_imitation_pattern(f"[{weekday} " for weekday in WEEKDAYS)


@dataclass(frozen=True, slots=True)
class TextEntry:
    """One message in a transcript.

    `day` is its ISO day. A line with the day precedes the first entry of each day.
    """

    role: EntryRole
    text: str
    day: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Knowledge from outside the chat, for the prompt's tail; each part may be empty.

    `profile` contains the user's instructions for every chat, `state` the JSON of a stored
    state, `date` the date, if the policy includes it, `recent` the newest messages of the
    user's other chats, and `references` the results of semantic search.
    """

    preferences: str = ""
    profile: str = ""
    state: str = ""
    recent: tuple[TextEntry, ...] = ()
    references: tuple[TextEntry, ...] = ()
    date: str = ""


class TranscriptWriter:
    """Formats entries and sections, and indents lines that imitate a title or an entry.

    `question_prefix` is one more prefix that texts cannot imitate.
    """

    def __init__(self, *, question_prefix: str = "") -> None:
        words = [
            *PREFIXES.values(),
            PREFERENCES,
            PROFILE,
            SUMMARY_TITLE,
            PINNED_TITLE,
            STATE_TITLE,
            RECENT_TITLE,
            OTHER_CHATS_TITLE,
            REFERENCES_TITLE,
            DATE,
        ]
        own = question_prefix.strip()
        self._pattern = compile_imitation_pattern([*words, own] if own else words)

    def entry(self, role: EntryRole, text: str) -> str:
        # The first line follows the role and cannot imitate anything.
        guarded = indent_matching_lines(f"\0{text}", self._pattern)[1:]
        return f"{PREFIXES[role]} {guarded}"

    def inline(self, title: str, text: str) -> str:
        """Format a section whose text is on the line of its title."""
        return f"{title} {indent_matching_lines(chr(0) + text, self._pattern)[1:]}"

    def section(self, title: str, text: str) -> str:
        return f"{title}\n{self.guarded(text)}"

    def guarded(self, text: str) -> str:
        """Indent the lines of a text that imitate a title or an entry."""
        return indent_matching_lines(text, self._pattern)

    def listed(self, title: str, entries: Sequence[TextEntry]) -> str:
        """Format a section of entries under its title; empty if there are no entries.

        A line inside an entry that imitates a day line is indented if any entry has a day.
        """
        lines: list[str] = []
        day = ""
        has_days = any(item.day for item in entries)
        for item in entries:
            if item.day and item.day != day:
                lines.append(format_day_line(item.day))
                day = item.day
            line = self.entry(item.role, item.text)
            lines.append(indent_matching_lines(line, _DAY_LINES) if has_days else line)
        return "\n".join([title, *lines]) if lines else ""

    def background(self, background: Background) -> list[tuple[str, str]]:
        """Format all sections of the background by name, in the tail's order, even empty ones."""
        told, profile = background.preferences, background.profile
        return [
            ("preferences", self.inline(PREFERENCES, told) if told else ""),
            ("profile", self.inline(PROFILE, profile) if profile else ""),
            ("state", self.section(STATE_TITLE, background.state) if background.state else ""),
            ("recent", self.listed(OTHER_CHATS_TITLE, background.recent)),
            ("references", self.listed(REFERENCES_TITLE, background.references)),
            ("date", self.inline(DATE, background.date) if background.date else ""),
        ]
