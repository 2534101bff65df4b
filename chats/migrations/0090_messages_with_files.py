"""Mark the messages that contain files, so that a query finds them."""

from typing import Any, ClassVar

from django.db import migrations, models
from django.db.models.functions import Cast

from chats.models.parts import DEFLATED

AT_ONCE = 500


def mark_messages_with_files(apps: Any, schema_editor: Any) -> None:
    """Mark the messages with a file part. Reads only rows whose JSON can contain one."""
    del schema_editor
    message = apps.get_model("chats", "Message")
    written = models.Q(stored__contains='"file"') | models.Q(stored__contains=f'"{DEFLATED}"')
    rows = message.objects.annotate(stored=Cast("parts", models.TextField())).filter(written)
    page: list[Any] = []
    for pk, parts in rows.order_by("pk").values_list("pk", "parts").iterator(chunk_size=AT_ONCE):
        if any(part["type"] == "file" for part in parts):
            page.append(pk)
        if len(page) >= AT_ONCE:
            message.objects.filter(pk__in=page).update(contains_files=True)
            page.clear()
    message.objects.filter(pk__in=page).update(contains_files=True)


class Migration(migrations.Migration):
    """One column and its partial index."""

    dependencies: ClassVar = [
        ("chats", "0089_documents_and_image_owners"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="message",
            name="contains_files",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RunPython(mark_messages_with_files, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("contains_files", True)),
                fields=["branch", "seq"],
                name="message_with_files",
            ),
        ),
    ]
