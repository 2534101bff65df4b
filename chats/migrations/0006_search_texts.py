"""The words of archived messages and the index over them, in each database's own way.

SQLite's full-text table keeps no copy of the words and follows their table by triggers, which a
later migration that rebuilds that table must create again.
"""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

import chats.models.search

CREATE = {
    "sqlite": [
        "CREATE VIRTUAL TABLE chats_searchtext_words USING fts5("
        "words, content='chats_searchtext', content_rowid='id', tokenize='ascii')",
        "CREATE TRIGGER chats_searchtext_added AFTER INSERT ON chats_searchtext BEGIN "
        "INSERT INTO chats_searchtext_words(rowid, words) VALUES (NEW.id, NEW.words); END",
        "CREATE TRIGGER chats_searchtext_removed AFTER DELETE ON chats_searchtext BEGIN "
        "INSERT INTO chats_searchtext_words(chats_searchtext_words, rowid, words) "
        "VALUES ('delete', OLD.id, OLD.words); END",
        "CREATE TRIGGER chats_searchtext_changed AFTER UPDATE ON chats_searchtext BEGIN "
        "INSERT INTO chats_searchtext_words(chats_searchtext_words, rowid, words) "
        "VALUES ('delete', OLD.id, OLD.words); "
        "INSERT INTO chats_searchtext_words(rowid, words) VALUES (NEW.id, NEW.words); END",
    ],
    "postgresql": [
        "CREATE INDEX chats_searchtext_words ON chats_searchtext "
        "USING gin (array_to_tsvector(string_to_array(words, ' ')))",
    ],
}
DROP = {
    "sqlite": [
        "DROP TRIGGER chats_searchtext_added",
        "DROP TRIGGER chats_searchtext_removed",
        "DROP TRIGGER chats_searchtext_changed",
        "DROP TABLE chats_searchtext_words",
    ],
    "postgresql": ["DROP INDEX chats_searchtext_words"],
}


def create(apps: Any, schema_editor: Any) -> None:
    for statement in CREATE[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def drop(apps: Any, schema_editor: Any) -> None:
    for statement in DROP[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("chats", "0005_name_what_was_displaced")]

    operations = [
        migrations.AddField(
            "branch", "searchable_to", models.PositiveBigIntegerField(default=0)
        ),
        migrations.CreateModel(
            name="SearchText",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "message",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="search_text",
                        to="chats.message",
                    ),
                ),
                ("words", chats.models.search.SearchWords()),
            ],
        ),
        migrations.RunPython(create, drop),
    ]
