"""The runs of retention."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("chats", "0036_erasure_wishes"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="RetentionRun",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("is_open", models.BooleanField(default=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("lease_token", models.UUIDField(blank=True, null=True)),
                ("place", models.UUIDField(blank=True, null=True)),
                ("chats", models.PositiveBigIntegerField(default=0)),
                ("chats_erased", models.PositiveBigIntegerField(default=0)),
                ("messages_erased", models.PositiveBigIntegerField(default=0)),
                ("chats_held", models.PositiveBigIntegerField(default=0)),
                ("chats_busy", models.PositiveBigIntegerField(default=0)),
                ("chats_failed", models.PositiveBigIntegerField(default=0)),
                ("digest", models.CharField(max_length=64)),
            ],
            options={
                "verbose_name": "run of retention",
                "verbose_name_plural": "runs of retention",
                "ordering": ["-started_at"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["is_open"], condition=Q(is_open=True), name="one_run_of_retention"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RetentionEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveBigIntegerField()),
                ("chat_id", models.UUIDField()),
                ("messages", models.PositiveBigIntegerField()),
                ("days", models.PositiveIntegerField()),
                ("first_seq", models.PositiveBigIntegerField()),
                ("last_seq", models.PositiveBigIntegerField()),
                ("last_hash", models.CharField(max_length=64)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entries",
                        to="chats.retentionrun",
                    ),
                ),
            ],
            options={
                "ordering": ["number"],
                "constraints": [
                    models.UniqueConstraint(fields=["run", "number"], name="retention_entry_once")
                ],
            },
        ),
    ]
