"""Vectors of messages, in spaces of their models."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add the tables; without a chosen model they stay empty."""

    dependencies: ClassVar = [
        ("chats", "0040_preference_readings"),
        ("contextpolicy", "0014_legal_holds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="VectorSpace",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="contextpolicy.modelspec",
                    ),
                ),
                ("key", models.CharField(max_length=400)),
                ("revision", models.PositiveIntegerField(default=1)),
                ("dimensions", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("building", "Being built"),
                            ("serving", "In use"),
                            ("retired", "Being deleted"),
                        ],
                        default="building",
                        max_length=10,
                    ),
                ),
                ("cursor", models.BigIntegerField(default=0)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("lease_token", models.CharField(blank=True, default="", max_length=43)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("fault", models.CharField(blank=True, default="", max_length=60)),
                ("fault_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
                ("completed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["state"],
                        condition=~Q(state="retired"),
                        name="one_space_of_a_state",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TextVector",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "space",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="chats.vectorspace",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="chats.message",
                    ),
                ),
                ("text", models.BigIntegerField()),
                ("passage", models.PositiveSmallIntegerField()),
                ("vector", models.BinaryField()),
                ("fault", models.CharField(blank=True, default="", max_length=20)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["space", "text", "passage"], name="vector_once"
                    )
                ],
                "indexes": [
                    models.Index(fields=["space", "owner", "id"], name="vector_of_person"),
                    models.Index(fields=["text"], name="vector_of_text"),
                    models.Index(
                        fields=["space"], condition=~Q(fault=""), name="vector_missed"
                    ),
                ],
            },
        ),
    ]
