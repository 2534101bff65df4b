"""Keep texts that people replace or delete under a legal hold."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """One table, empty."""

    dependencies: ClassVar = [
        ("chats", "0059_account_appearance"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="KeptText",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("chat_title", "Chat title"),
                            ("system_text", "System text of a chat"),
                            ("team_task", "Team task of a chat"),
                            ("instructions", "Personal instructions"),
                            ("folder_name", "Folder name"),
                        ],
                        max_length=12,
                    ),
                ),
                ("folder_id", models.UUIDField(blank=True, null=True)),
                ("text", models.TextField()),
                ("replaced_at", models.DateTimeField()),
                ("replaced_by", models.CharField(max_length=200)),
                (
                    "chat",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="kept_texts",
                        to="chats.chat",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="kept_texts",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "text kept under a legal hold",
                "verbose_name_plural": "texts kept under legal holds",
                "indexes": [models.Index(fields=["replaced_at"], name="kept_text_by_time")],
            },
        ),
    ]
