"""Legal holds."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contextpolicy", "0013_thinking_of_models"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="LegalHold",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "level",
                    models.CharField(
                        choices=[
                            ("instance", "Everyone"),
                            ("group", "A group"),
                            ("user", "A person"),
                            ("chat", "One chat"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="auth.group",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("chat_id", models.UUIDField(blank=True, null=True)),
                ("people", models.JSONField(blank=True, default=list)),
                ("case", models.CharField(max_length=120)),
                ("reason", models.CharField(max_length=500)),
                ("review_on", models.DateField(blank=True, null=True)),
                ("placed_by", models.CharField(max_length=200)),
                ("placed_at", models.DateTimeField()),
                ("released_by", models.CharField(blank=True, default="", max_length=200)),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                ("release_reason", models.CharField(blank=True, default="", max_length=500)),
                ("ends_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "legal hold",
                "ordering": ["-placed_at", "-pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(level="instance", group=None, user=None, chat_id=None)
                        | Q(level="group", user=None, chat_id=None)
                        | Q(level="user", group=None, chat_id=None)
                        | Q(level="chat", group=None, user=None, chat_id__isnull=False),
                        name="hold_names_its_level",
                    ),
                    models.CheckConstraint(
                        condition=Q(released_at=None, ends_at=None)
                        | Q(released_at__isnull=False, ends_at__isnull=False),
                        name="hold_ends_after_its_release",
                    ),
                ],
                "indexes": [models.Index(fields=["ends_at"], name="hold_in_force")],
            },
        ),
    ]
