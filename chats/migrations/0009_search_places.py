"""Texts for search get ids that say where they stand, and words a count per branch.

What was searchable is made anew in the background: it is all in the messages, and each branch with
an archive is asked for here. SQLite's full-text table keeps no copy of the words and follows their
table by triggers, which a later migration that rebuilds that table must create again.
"""

from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone

import chats.models.search

before: Any = import_module("chats.migrations.0006_search_texts")
# Texts are entered at once: a list of new ones would be read through by each search.
SETTLED = "ALTER INDEX chats_searchtext_words SET (fastupdate = off)"


def create(apps: Any, schema_editor: Any) -> None:
    before.create(apps, schema_editor)
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(SETTLED)


def ask(apps: Any, schema_editor: Any) -> None:
    del schema_editor
    branches = apps.get_model("chats", "Branch").objects.filter(active_compaction__isnull=False)
    place, now = apps.get_model("chats", "SearchPlace"), timezone.now()
    keys = branches.values_list("pk", flat=True).iterator()
    place.objects.bulk_create((place(branch_id=key, due_at=now) for key in keys), batch_size=500)


class Migration(migrations.Migration):
    dependencies = [("chats", "0008_claims_and_places")]

    operations = [
        migrations.RunPython(before.drop, before.create),
        migrations.DeleteModel("SearchText"),
        migrations.RemoveField("branch", "searchable_to"),
        migrations.CreateModel(
            name="SearchPlace",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("to_seq", models.PositiveBigIntegerField(default=0)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                (
                    "branch",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="search_place",
                        to="chats.branch",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["due_at"],
                        condition=models.Q(due_at__isnull=False),
                        name="search_due",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SearchText",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("words", chats.models.search.SearchWords()),
                (
                    "message",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="search_text",
                        to="chats.message",
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
                        "place", "word", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "place",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="chats.searchplace",
                    ),
                ),
                ("word", models.CharField(max_length=40)),
                ("messages", models.IntegerField()),
            ],
        ),
        migrations.RunPython(create, before.drop),
        migrations.RunPython(ask, migrations.RunPython.noop),
    ]
