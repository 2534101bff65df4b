"""Formats numbers and dates for pages."""

from datetime import date, timedelta

from django.utils import dateformat
from django.utils.translation import gettext, ngettext


def format_number(number: int) -> str:
    """Format an integer with separators: 12418 → 12,418."""
    return f"{number:,}"


def abbreviate_number(number: int) -> str:
    """Abbreviate a number: 12418 → 12.4k.

    Numbers below 1,000 are not abbreviated. The unit is a million from 10 million upwards.
    """
    if number < 1000:
        return str(number)
    if number < 10_000_000:
        return f"{number / 1000:.1f}k".replace(".0k", "k")
    return f"{number / 1_000_000:.1f}M".replace(".0M", "M")


def format_message_count(number: int) -> str:
    return ngettext("{n:,} message", "{n:,} messages", number).format(n=number)


def format_token_count(number: int) -> str:
    return ngettext("{n:,} token", "{n:,} tokens", number).format(n=number)


def format_day(day: date, *, today: date) -> str:
    """Format a day: Today, Yesterday, Tuesday 17 November.

    The year is included unless it is the current one.
    """
    if day == today:
        return gettext("Today")
    if day == today - timedelta(days=1):
        return gettext("Yesterday")
    form = gettext("l j F") if day.year == today.year else gettext("l j F Y")
    return dateformat.format(day, form)


def truncate_line(text: str, length: int) -> str:
    """Return the text on one line, cut to `length` characters plus an ellipsis if it is longer."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[:length].rstrip()}…"


def cut_words(cut_to: int | None, results_to: int | None) -> list[str]:
    """Return labels for the lengths to which a message and its tool results were cut."""
    words = []
    if cut_to is not None:
        cut = ngettext("cut to {n:,} character", "cut to {n:,} characters", cut_to)
        words.append(cut.format(n=cut_to))
    if results_to is not None:
        cut = ngettext(
            "results cut to {n:,} character", "results cut to {n:,} characters", results_to
        )
        words.append(cut.format(n=results_to))
    return words
