"""A person's instructions and preferences, with the places that these were taken from."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import chats.ground.seals


class Migration(migrations.Migration):
    """Make the tables, and the switches of chats and folders."""

    dependencies: ClassVar = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("chats", "0027_imported_chats"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="MemorySettings",
            fields=[
                (
                    "owner",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("instructions", models.TextField(blank=True, default="")),
                ("consented_at", models.DateTimeField(blank=True, null=True)),
                ("paused", models.BooleanField(default=False)),
                ("salt", models.CharField(default=chats.ground.seals.new_salt, max_length=64)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.AddField(
            model_name="chat",
            name="without_memory",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="folder",
            name="without_memory",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name="Preference",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "slot",
                    models.CharField(
                        choices=[
                            ("name", "Name"),
                            ("language", "Language"),
                            ("tone", "Tone"),
                            ("format", "Format"),
                            ("place", "Place"),
                            ("job", "Job"),
                            ("diet", "Diet"),
                            ("timezone", "Time zone"),
                            ("note", "Note"),
                        ],
                        max_length=10,
                    ),
                ),
                ("text", models.CharField(max_length=200)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("written", "Written by you"),
                            ("told", "Told in a chat"),
                            ("inferred", "Read from your chats"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("proposed", "Proposed"),
                            ("current", "In use"),
                            ("superseded", "No longer so"),
                        ],
                        max_length=10,
                    ),
                ),
                ("confidence", models.PositiveSmallIntegerField(default=100)),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(blank=True, null=True)),
                ("learned_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "folder",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="chats.folder",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "superseded_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="supersedes",
                        to="chats.preference",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PreferenceEvidence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("start", models.PositiveIntegerField()),
                ("end", models.PositiveIntegerField()),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="chats.message",
                    ),
                ),
                (
                    "preference",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="evidence",
                        to="chats.preference",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ForgottenPreference",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "digest"), name="forgotten_once")
                ],
            },
        ),
        migrations.AddIndex(
            model_name="preference",
            index=models.Index(fields=["owner", "status"], name="preference_of_person"),
        ),
        migrations.AddConstraint(
            model_name="preference",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("folder", None),
                    ("status", "current"),
                    models.Q(("slot", "note"), _negated=True),
                ),
                fields=("owner", "slot"),
                name="one_current_preference",
            ),
        ),
        migrations.AddConstraint(
            model_name="preference",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("folder__isnull", False),
                    ("status", "current"),
                    models.Q(("slot", "note"), _negated=True),
                ),
                fields=("owner", "folder", "slot"),
                name="one_current_in_a_folder",
            ),
        ),
        migrations.AddConstraint(
            model_name="preferenceevidence",
            constraint=models.UniqueConstraint(
                fields=("preference", "message"), name="evidence_once"
            ),
        ),
    ]
