"""Numbers and days in the words of the pages."""

from datetime import date, timedelta


def grouped(number: int) -> str:
    """Write a number with separators: 12418 → 12,418."""
    return f"{number:,}"


def short(number: int) -> str:
    """Write a number in short: 12418 → 12.4k.

    Below a thousand it is written as it is, from ten million on in millions.
    """
    if number < 1000:
        return str(number)
    if number < 10_000_000:
        return f"{number / 1000:.1f}k".replace(".0k", "k")
    return f"{number / 1_000_000:.1f}M".replace(".0M", "M")


def counted(number: int, one: str) -> str:
    """Write a number with its noun: 1 message, 2 messages."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def day_name(day: date, *, today: date) -> str:
    """Name a day: Today, Yesterday, Tuesday 17 November; with the year if it is another one."""
    if day == today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    name = f"{day:%A} {day.day} {day:%B}"
    return name if day.year == today.year else f"{name} {day.year}"


def clipped(text: str, length: int) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[:length].rstrip()}…"


def cut_words(cut_to: int | None, results_to: int | None) -> list[str]:
    """Say to what length a message's texts and its tool results were cut."""
    limits = (("cut", cut_to), ("results cut", results_to))
    return [f"{what} to {counted(to, 'character')}" for what, to in limits if to is not None]
