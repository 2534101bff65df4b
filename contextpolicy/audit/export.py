"""Exports the audit log: JSON Lines for verification, CSV for reading.

Nothing is truncated. Rows are in the order of their chains, so a row that commits late is included.
A JSON line is exactly the text that the row's hash is computed from. The last JSON line contains
the counts, the SHA-256 of all lines before it, and a checkpoint.
"""

import csv
import hashlib
import io
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from django.db import transaction
from django.db.models import Q

from contextpolicy import ledger
from contextpolicy.audit.search import LedgerSearch
from contextpolicy.models import AuditEvent

Form = Literal["jsonl", "csv"]
FORMS: dict[Form, str] = {"jsonl": "application/jsonl", "csv": "text/csv; charset=utf-8"}
PAGE = 1000
# Up to this many matching rows are sorted for each page; for more, the whole ledger is scanned.
MOST_SORTED = 5 * PAGE
COLUMNS = ("scope", "seq", "at", "type", "actor", "chat_id", "turn_id", "data", "hash")
# Spreadsheets treat cells that begin with these characters as formulas.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(slots=True)
class ExportUnderWay:
    """A running export: its search, and its progress.

    `walks`: the export scans the ledger in chain order and filters the rows itself. Otherwise the
    database filters them, and sorts all matching rows for each page.
    """

    search: LedgerSearch
    form: Form
    actor: str
    walks: bool = False
    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    rows: int = 0
    chains: int = 0
    place: tuple[str, int] = ("", 0)
    chain: str = ""
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def next_piece(self) -> bytes | None:
        """Read the next rows, at most a thousand, and return them as bytes; None at the end.

        The bytes may be empty.
        """
        scope, seq = self.place
        beyond = Q(scope=scope, seq__gt=seq) | Q(scope__gt=scope)
        rows = AuditEvent.objects.order_by("scope", "seq")
        ahead = rows.filter(Q(scope__gte=scope) & beyond)
        fitting = Q(self.search.condition)
        if self.walks:
            stretch = list(ahead.values_list("scope", "seq", "pk")[:PAGE])
            found = list(rows.filter(fitting, pk__in=[pk for _, _, pk in stretch]))
            place = stretch[-1][:2] if stretch else None
        else:
            found = list(ahead.filter(fitting)[:PAGE])
            place = (found[-1].scope, found[-1].seq) if found else None
        if place is None:
            return None
        self.place = place
        for event in found:
            self.rows += 1
            self.chains += event.scope != self.chain
            self.chain = event.scope
        return self.said("".join(self.written(event) for event in found))

    def said(self, text: str) -> bytes:
        """Encode a text, update the file's hash, and return the bytes."""
        piece = text.encode()
        self.digest.update(piece)
        return piece

    def written(self, event: AuditEvent) -> str:
        if self.form == "jsonl":
            return ledger.format_event_line(event) + "\n"
        at = event.at.astimezone(UTC).isoformat(timespec="microseconds")
        data = json.dumps(event.data, sort_keys=True, ensure_ascii=False)
        cells = (
            event.scope,
            event.seq,
            at,
            event.type,
            event.actor,
            event.chat_id or "",
            event.turn_id or "",
            data,
            event.hash,
        )
        return format_csv_row(cells)

    def head(self) -> bytes:
        # Without a byte order mark Excel does not read the file as UTF-8.
        return self.said("\ufeff" + format_csv_row(COLUMNS)) if self.form == "csv" else b""

    def foot(self, *, checkpoint: str) -> bytes:
        """Return the last line of JSON Lines: search, counts, SHA-256, checkpoint. CSV has none."""
        if self.form == "csv":
            return b""
        told = {
            "export": self.key,
            "search": self.search.text,
            "rows": self.rows,
            "chains": self.chains,
            "sha256": self.digest.hexdigest(),
            "checkpoint": checkpoint,
        }
        return (json.dumps(told, sort_keys=True) + "\n").encode()


def start_ledger_export(
    *, search: LedgerSearch, form: Form, actor: str, now: datetime
) -> ExportUnderWay:
    """Record the start of an export, and return the export."""
    export = ExportUnderWay(search, form, actor, walks=has_many_matches(search))
    data = {"export": export.key, "form": form, "search": search.text}
    with transaction.atomic():
        ledger.record_event("ledger.export_started", actor=actor, now=now, data=data)
    return export


def has_many_matches(search: LedgerSearch) -> bool:
    """Return True if a search filters rows and still matches more than `MOST_SORTED`."""
    if not search.terms:
        return False
    found = AuditEvent.objects.filter(search.condition)[: MOST_SORTED + 1]
    return found.count() > MOST_SORTED


def finish_ledger_export(export: ExportUnderWay, *, now: datetime) -> None:
    """Record the end of an export in the ledger: its search, row count and SHA-256."""
    data = {
        "export": export.key,
        "form": export.form,
        "search": export.search.text,
        "rows": export.rows,
        "sha256": export.digest.hexdigest(),
    }
    with transaction.atomic():
        ledger.record_event("ledger.exported", actor=export.actor, now=now, data=data)


def stream_ledger_export(export: ExportUnderWay, *, checkpoint: str) -> Iterator[bytes]:
    """Yield an export in pieces; a piece may be empty."""
    if head := export.head():
        yield head
    while (piece := export.next_piece()) is not None:
        yield piece
    if foot := export.foot(checkpoint=checkpoint):
        yield foot


def format_csv_row(cells: tuple[object, ...]) -> str:
    """Return cells as a CSV line, with formulas escaped (see `escape_csv_formula`)."""
    held = io.StringIO()
    csv.writer(held, quoting=csv.QUOTE_ALL).writerow(
        [escape_csv_formula(str(cell)) for cell in cells]
    )
    return held.getvalue()


def escape_csv_formula(text: str) -> str:
    """Prefix text that a spreadsheet would evaluate as a formula with an apostrophe."""
    return f"'{text}" if text.startswith(FORMULAS) else text
