"""Mark the chats whose messages have documents, and store the owners of images."""

from typing import Any, ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Length

AT_ONCE = 1_000


def mark_chats_with_documents(apps: Any, schema_editor: Any) -> None:
    """Mark the chats with a message that has a document with text."""
    del schema_editor
    links = apps.get_model("chats", "MessageFile").objects.filter(file__characters__gt=0)
    chats = apps.get_model("chats", "Chat").objects
    chats.filter(pk__in=links.values("message__branch__chat")).update(has_documents=True)


def store_image_owners(apps: Any, schema_editor: Any) -> None:
    """Store the owner and size of each image, without loading its bytes."""
    del schema_editor
    owned = apps.get_model("chats", "OwnedImage")
    rows = apps.get_model("chats", "MessageImage").objects.order_by("pk")
    rows = rows.values_list("pk", "sha256", "message__branch__chat__owner", Length("data"))
    last = 0
    while page := list(rows.filter(pk__gt=last)[:AT_ONCE]):
        last = page[-1][0]
        owned.objects.bulk_create(
            owned(image_id=pk, sha256=sha256, owner_id=owner, size=size)
            for pk, sha256, owner, size in page
        )


class Migration(migrations.Migration):
    """One new column and one new table."""

    dependencies: ClassVar = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("chats", "0088_end_calls_of_ended_turns"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="chat",
            name="has_documents",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name="OwnedImage",
            fields=[
                (
                    "image",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="owned",
                        serialize=False,
                        to="chats.messageimage",
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.PositiveIntegerField()),
                ("given_sha256", models.CharField(blank=True, default="", max_length=64)),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["owner", "sha256", "size"], name="image_of_owner"),
                    models.Index(
                        condition=models.Q(("given_sha256", ""), _negated=True),
                        fields=["owner", "given_sha256"],
                        name="image_given_by_owner",
                    ),
                ],
            },
        ),
        migrations.RunPython(mark_chats_with_documents, migrations.RunPython.noop),
        migrations.RunPython(store_image_owners, migrations.RunPython.noop),
    ]
