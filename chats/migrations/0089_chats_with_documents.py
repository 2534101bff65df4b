"""Mark the chats whose messages have documents."""

from typing import Any, ClassVar

from django.db import migrations, models


def mark_chats_with_documents(apps: Any, schema_editor: Any) -> None:
    """Mark the chats with a message that has a document with text."""
    del schema_editor
    links = apps.get_model("chats", "MessageFile").objects.filter(file__characters__gt=0)
    chats = apps.get_model("chats", "Chat").objects
    chats.filter(pk__in=links.values("message__branch__chat")).update(has_documents=True)


class Migration(migrations.Migration):
    """One new column."""

    dependencies: ClassVar = [
        ("chats", "0088_end_calls_of_ended_turns"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="chat",
            name="has_documents",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RunPython(mark_chats_with_documents, migrations.RunPython.noop),
    ]
