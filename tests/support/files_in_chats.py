"""Files in chats: their stored texts, and the prompts that contain them."""

from collections.abc import Callable
from typing import Any

from django.db import connection

from chats.models import FileChunk, Turn

Work = Callable[..., Any]


def get_accepted_turn(answer: Any) -> Turn:
    """Return the turn of an accepted message."""
    assert answer.status_code == 202, answer.json()
    return Turn.objects.get(pk=answer.json()["turn"]["id"])


def get_last_sent_message(worker: Any) -> Any:
    """Return the last message of the request to the model."""
    return worker.scripted.requests[-1].messages[-1]


def dump_database() -> str:
    """Return every text of the database."""
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        found = []
        for table in tables:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608
            found += [str(row) for row in cursor.fetchall()]
    return "\n".join(found)


def read_stored_text(file_id: Any) -> str:
    """Return the stored text of a file."""
    rows = FileChunk.objects.filter(file=file_id).order_by("number")
    return "".join(rows.values_list("text", flat=True))
