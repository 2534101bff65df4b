"""All messages of a person's chats become searchable, and the summaries in force; counts by person.

What was searchable is made anew in the background: it is all in the messages, and each branch is
asked for by the sweep. SQLite's full-text table keeps no copy of the words and follows their table
by triggers, which a later migration that rebuilds that table must create again.
"""

from importlib import import_module
from typing import Any, ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import chats.models.search

of_branches: Any = import_module("chats.migrations.0006_search_texts")
stretches: Any = import_module("chats.migrations.0017_search_stretches")
COLUMNS = "keys, words, full"
NEW = "NEW.id, NEW.keys, NEW.words, NEW.full"
OLD = "OLD.id, OLD.keys, OLD.words, OLD.full"
ADD = f"INSERT INTO chats_searchtext_words(rowid, {COLUMNS}) VALUES ({NEW}); "
REMOVE = (
    f"INSERT INTO chats_searchtext_words(chats_searchtext_words, rowid, {COLUMNS}) "
    f"VALUES ('delete', {OLD}); "
)
CREATE = {
    "sqlite": [
        # Of each word the columns alone: no phrase is looked for. `ascii`: words are folded already.
        f"CREATE VIRTUAL TABLE chats_searchtext_words USING fts5({COLUMNS}, "
        "content='chats_searchtext', content_rowid='id', tokenize='ascii', detail=column, "
        "prefix='2 3')",
        f"CREATE TRIGGER chats_searchtext_added AFTER INSERT ON chats_searchtext BEGIN {ADD}END",
        f"CREATE TRIGGER chats_searchtext_removed AFTER DELETE ON chats_searchtext BEGIN {REMOVE}END",
        "CREATE TRIGGER chats_searchtext_changed AFTER UPDATE ON chats_searchtext "
        f"BEGIN {REMOVE}{ADD}END",
    ],
    "postgresql": [
        "CREATE INDEX chats_searchtext_words ON chats_searchtext USING gin (array_to_tsvector("
        "string_to_array(keys || ' ' || words || ' ' || \"full\", ' ') || ('#' || (id >> 12)::text)))"
        " WITH (fastupdate = off)",
    ],
}


def create(apps: Any, schema_editor: Any) -> None:
    for statement in CREATE[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def create_before(apps: Any, schema_editor: Any) -> None:
    of_branches.create(apps, schema_editor)
    stretches.name_stretches(apps, schema_editor)


def begin_anew(apps: Any, schema_editor: Any) -> None:
    del schema_editor
    apps.get_model("chats", "SearchPlace").objects.update(to_seq=0, due_at=None)


class Migration(migrations.Migration):
    """Drop both tables of words, create them by person, and leave the rest to the sweep."""

    dependencies: ClassVar = [
        ("chats", "0025_long_parts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.RunPython(of_branches.drop, create_before),
        migrations.DeleteModel("SearchText"),
        migrations.DeleteModel("SearchCount"),
        migrations.RunPython(begin_anew, begin_anew),
        migrations.AddField(
            "searchplace", "version", models.PositiveSmallIntegerField(default=0)
        ),
        migrations.AddField("searchplace", "closed", models.BooleanField(default=False)),
        migrations.CreateModel(
            name="SearchText",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("keys", models.TextField()),
                ("words", chats.models.search.SearchWords()),
                ("full", models.TextField()),
                ("speaker", models.CharField(blank=True, default="", max_length=200)),
                ("session", models.PositiveBigIntegerField(default=0)),
                ("written_at", models.DateTimeField()),
                (
                    "message",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="search_text",
                        to="chats.message",
                    ),
                ),
                (
                    "summary",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="search_texts",
                        to="chats.compaction",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SearchCount",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "owner", "word", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("word", models.CharField(max_length=40)),
                ("texts", models.IntegerField()),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.RunPython(create, of_branches.drop),
    ]
