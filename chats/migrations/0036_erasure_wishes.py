"""Wishes to erase what a legal hold covers."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("chats", "0035_anthropic_accounts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="ErasureWish",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("asked_at", models.DateTimeField()),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "chat",
                    models.OneToOneField(
                        null=True,
                        blank=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="chats.chat",
                    ),
                ),
                (
                    "message",
                    models.OneToOneField(
                        null=True,
                        blank=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="chats.message",
                    ),
                ),
                (
                    "preference",
                    models.OneToOneField(
                        null=True,
                        blank=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="chats.preference",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(chat__isnull=False, message=None, preference=None)
                        | Q(chat=None, message__isnull=False, preference=None)
                        | Q(chat=None, message=None, preference__isnull=False),
                        name="wish_names_one_thing",
                    ),
                ],
                "indexes": [models.Index(fields=["asked_at"], name="wish_by_time")],
            },
        ),
    ]
