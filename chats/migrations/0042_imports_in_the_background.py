"""Files that are made into chats in the background, and what became of each chat."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the tables."""

    dependencies: ClassVar = [
        ("chats", "0041_vectors"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="FileImport",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Waiting"),
                            ("running", "Under way"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                        ],
                        default="queued",
                        max_length=10,
                    ),
                ),
                ("size", models.PositiveIntegerField()),
                ("form", models.CharField(blank=True, default="", max_length=20)),
                ("found", models.PositiveIntegerField(blank=True, null=True)),
                ("place", models.PositiveIntegerField(default=0)),
                ("added", models.PositiveIntegerField(default=0)),
                ("were_here", models.PositiveIntegerField(default=0)),
                ("not_taken", models.PositiveIntegerField(default=0)),
                ("messages", models.PositiveIntegerField(default=0)),
                ("code", models.CharField(blank=True, default="", max_length=60)),
                ("reason", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("lease_token", models.UUIDField(blank=True, null=True)),
                ("tries", models.PositiveIntegerField(default=0)),
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
                    models.Index(fields=["owner", "-created_at"], name="import_of_person"),
                    models.Index(
                        condition=models.Q(("finished_at", None)),
                        fields=["created_at"],
                        name="import_not_over",
                    ),
                    models.Index(fields=["finished_at"], name="import_over"),
                ],
            },
        ),
        migrations.CreateModel(
            name="FilePiece",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("data", models.BinaryField()),
                (
                    "file",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pieces",
                        to="chats.fileimport",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("file", "number"), name="piece_of_file_once"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ImportOutcome",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("place", models.PositiveIntegerField()),
                ("title", models.CharField(blank=True, default="", max_length=200)),
                ("messages", models.PositiveIntegerField(default=0)),
                ("was_here", models.BooleanField(default=False)),
                ("losses", models.JSONField(blank=True, default=list)),
                ("code", models.CharField(blank=True, default="", max_length=60)),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "chat",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="chats.chat",
                    ),
                ),
                (
                    "file",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="outcomes",
                        to="chats.fileimport",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("file", "place"), name="outcome_of_chat_once"
                    ),
                ],
            },
        ),
    ]
