"""Webhooks and what they are told."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("chats", "0031_gateway"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Webhook",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("url", models.CharField(max_length=2000)),
                ("secret", models.TextField()),
                ("events", models.JSONField(default=list)),
                (
                    "off",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "sends"),
                            ("owner", "switched off"),
                            ("failing", "switched off after three days of failures"),
                            ("gone", "switched off because the address is gone"),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("rests_until", models.DateTimeField(blank=True, null=True)),
                ("is_slow", models.BooleanField(default=False)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("tidied_at", models.DateTimeField()),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("public_id", models.UUIDField(default=uuid.uuid4, editable=False)),
                ("event", models.CharField(max_length=60)),
                ("body", models.TextField()),
                ("created_at", models.DateTimeField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("waiting", "waits"),
                            ("delivered", "delivered"),
                            ("failed", "given up"),
                        ],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("answer", models.PositiveIntegerField(blank=True, null=True)),
                ("problem", models.CharField(blank=True, default="", max_length=40)),
                (
                    "webhook",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="chats.webhook",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["webhook", "-id"], name="delivery_of_webhook"),
                    models.Index(
                        condition=models.Q(("status", "waiting")),
                        fields=["next_at"],
                        name="delivery_waiting",
                    ),
                ],
            },
        ),
    ]
