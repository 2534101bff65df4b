"""PostgreSQL's index over search texts names the stretch of ids in which each of them stands."""

from typing import Any

from django.db import migrations

BEFORE = "array_to_tsvector(string_to_array(words, ' '))"
AFTER = "array_to_tsvector(string_to_array(words, ' ') || ('#' || (id >> 12)::text))"


def indexed(words: str, schema_editor: Any) -> None:
    """Put an index over these words in the place of the one that there is."""
    if schema_editor.connection.vendor != "postgresql":
        return
    schema_editor.execute("DROP INDEX chats_searchtext_words")
    schema_editor.execute(
        f"CREATE INDEX chats_searchtext_words ON chats_searchtext USING gin ({words})"
        " WITH (fastupdate = off)"
    )


def name_stretches(apps: Any, schema_editor: Any) -> None:
    del apps
    indexed(AFTER, schema_editor)


def leave_them_out(apps: Any, schema_editor: Any) -> None:
    del apps
    indexed(BEFORE, schema_editor)


class Migration(migrations.Migration):
    dependencies = [("chats", "0016_request_outcome")]

    operations = [migrations.RunPython(name_stretches, leave_them_out)]
