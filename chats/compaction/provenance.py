"""The sources of each line of a summary: its source marks, validated against its messages."""

from typing import Any

from chats.compaction.sections import parse_sections
from chats.models import Branch
from chats.record import history
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan


def attribute_sections(text: str, *, plan: CompactionPlan, branch: Branch) -> list[dict[str, Any]]:
    """Return the sections of a summary, each bullet with the ids of its source messages.

    Marks that do not name a covered message are listed in `invalid`. A bullet without a valid
    source is `unsupported`.
    """
    return validate_sections(
        parse_sections(text),
        first=plan.from_seq,
        last=plan.to_seq,
        exceptions=plan.exceptions,
        branch=branch,
    )


def validate_sections(
    sections: list[dict[str, Any]],
    *,
    first: int,
    last: int,
    exceptions: tuple[int, ...],
    branch: Branch,
) -> list[dict[str, Any]]:
    """Return the sections with their marks validated against the range and its exceptions."""
    bullets = [bullet for section in sections for bullet in section["bullets"]]
    named = {seq for bullet in bullets for seq in bullet["sources"]}
    covered = {seq for seq in named if first <= seq <= last} - set(exceptions)
    rows = history.select_path_messages(branch, after=first - 1, before=last + 1).filter(
        seq__in=covered
    )
    ids = {seq: str(pk) for seq, pk in rows.values_list("seq", "pk")}
    for bullet in bullets:
        marks = bullet["sources"]
        bullet["sources"] = [seq for seq in marks if seq in ids]
        bullet["source_ids"] = [ids[seq] for seq in bullet["sources"]]
        bullet["invalid"] = [seq for seq in marks if seq not in ids]
        bullet["unsupported"] = not bullet["sources"]
    return sections
