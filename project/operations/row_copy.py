"""Copies the rows of a model from one database to another, and computes their checksum.

Rows pass through the fields of the model, because the two databases store dates, JSON and numbers
differently. The checksum adds up the SHA-256 of each row, so the order of the rows does not matter.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
from django.apps import apps
from django.db import connection, models
from psycopg.types.json import Jsonb

from project.operations.postgres_rows import build_copy_statement
from project.operations.refused import OperationRefused

BATCH = 2000
MODULUS = 1 << 256
# PostgreSQL names the line of COPY that it refuses.
LINE = re.compile(r"line (\d+)")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of rows, and the sum of their hashes."""

    rows: int = 0
    digest: int = 0

    def add(self, rows: Iterable[Row]) -> "Checksum":
        """Return a checksum that also includes these rows."""
        count, digest = self.rows, self.digest
        for row in rows:
            count += 1
            text = json.dumps([format_value(value) for value in row])
            digest += int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
        return Checksum(count, digest % MODULUS)


@dataclass(frozen=True, slots=True)
class CopiedTable:
    name: str
    model: type[models.Model]
    fields: "Sequence[models.Field[Any, Any]]"

    def count_rows(self, alias: str) -> int:
        return self._rows(alias).count()

    def iter_batches(self, alias: str, after: Any = None) -> Iterator[tuple[list[Row], Any]]:
        """Yield the rows in batches in the order of their key, each with its last key.

        `after` is the last key of an earlier batch.
        """
        names = [field.attname for field in self.fields]
        ordered = self._rows(alias).order_by("pk")
        while True:
            rows = ordered.filter(pk__gt=after) if after is not None else ordered
            batch = list(rows.values_list("pk", *names)[:BATCH])
            if not batch:
                return
            after = batch[-1][0]
            yield [row[1:] for row in batch], after

    def compute_checksum(self, alias: str) -> Checksum:
        names = [field.attname for field in self.fields]
        return Checksum().add(self._rows(alias).values_list(*names).iterator(chunk_size=BATCH))

    def write_rows(self, cursor: Any, rows: Sequence[Row]) -> None:
        """Write rows with COPY, in the open transaction.

        Raises OperationRefused, with the key of the row, if PostgreSQL cannot store it.
        """
        columns = [str(field.column) for field in self.fields]
        number = 0
        try:
            with cursor.copy(build_copy_statement(self.name, columns, "FROM STDIN")) as copy:
                for number, row in enumerate(rows):  # noqa: B007  # read after an error
                    fields = zip(self.fields, row, strict=True)
                    copy.write_row([adapt_value(field, value) for field, value in fields])
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            line = LINE.search(error.diag.context or "")
            raise self._refuse(rows[int(line[1]) - 1 if line else number], error) from None

    def decode_key(self, key: Any) -> Any:
        """Decode a primary key that was stored as JSON."""
        if isinstance(key, list):
            return tuple(key)
        primary = self.model._meta.pk  # noqa: SLF001  # Django's public interface
        return key if key is None else primary.to_python(key)

    def _rows(self, alias: str) -> "models.QuerySet[Any]":
        return self.model._base_manager.using(alias)  # noqa: SLF001  # as above

    def _refuse(self, row: Row, error: psycopg.Error) -> OperationRefused:
        # The detail is left out, because it quotes the row.
        said = error.diag.message_primary or str(error)
        return OperationRefused(
            "value_refused",
            f"PostgreSQL cannot store the row {row[0]} of {self.name}: {said}. Correct it in"
            " SQLite, then run the command with --replace.",
        )


def list_copied_tables() -> list[CopiedTable]:
    """Return the tables of all managed models, including those of many-to-many relations."""
    found = []
    for model in apps.get_models(include_auto_created=True):
        facts = model._meta  # noqa: SLF001  # as above
        if facts.managed and not facts.proxy:
            fields = [field for field in facts.concrete_fields if field.column]
            found.append(CopiedTable(facts.db_table, model, fields))
    return sorted(found, key=lambda table: table.name)


def encode_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return [encode_key(part) for part in key]
    return str(key) if isinstance(key, uuid.UUID) else key


def adapt_value(field: "models.Field[Any, Any]", value: Any) -> Any:
    """Return a value of a model as PostgreSQL stores it."""
    if value is None and isinstance(field, models.JSONField) and not field.null:
        # JSON's null, which differs from SQL's NULL.
        return Jsonb(None)
    return field.get_db_prep_save(value, connection=connection)


def format_value(value: Any) -> Any:
    """Return a value in the form that is hashed: the same for both databases."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date | uuid.UUID):
        return str(value)
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {key: format_value(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [format_value(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        # PostgreSQL's JSON has one kind of number, and stores the digits that are written: 1e23 is
        # returned as 10**23, which differs from int(1e23).
        return int(Decimal(repr(value)))
    return value
