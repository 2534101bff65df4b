"""Formats document excerpts for a prompt."""

from chats.memory.search.references import format_iso_day, get_known_time
from chats.models import FileExcerpt, Turn
from contextpolicy.engine.messages.files import LONGEST_LABEL, build_file_label
from contextpolicy.engine.messages.transcript import TextEntry


def build_file_entries(
    turn: Turn, *, is_plain: bool = False, zone: str = ""
) -> tuple[TextEntry, ...]:
    """Return the document excerpts that are sent with a turn's question, in order.

    Each excerpt begins with the name of the file and the page. `is_plain`: without the day, as for
    an undated question. Excerpts of erased files are left out.
    """
    if turn.trigger is None or (turn.tail or {}).get("files") != "":
        return ()
    rows = FileExcerpt.objects.filter(turn=turn.pk).order_by("place")
    columns = ("chunk__file__name", "chunk__page", "chunk__text")
    day = "" if is_plain else format_iso_day(get_known_time(turn.trigger), zone=zone)
    return tuple(
        TextEntry("user", f"({format_place(name, page)}) {text.strip()}", day=day)
        for name, page, text in rows.values_list(*columns)
    )


def format_place(name: str, page: int) -> str:
    """Return the label of an excerpt. Characters of a name that could end it are replaced."""
    label = build_file_label(name, limit=LONGEST_LABEL)
    return f"{label}, page {page}" if page else label
