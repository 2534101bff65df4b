"""Jobs that count how many chats a policy would change."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("contextpolicy", "0014_legal_holds"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="BlastRadius",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("values", models.JSONField(default=dict)),
                ("locks", models.JSONField(default=list)),
                ("digest", models.CharField(max_length=64)),
                ("base", models.PositiveIntegerField()),
                (
                    "place",
                    models.CharField(
                        choices=[("instance", "Everyone"), ("assigned", "Where it is assigned")],
                        max_length=10,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("counting", "Counting"),
                            ("stopped", "Stopped"),
                            ("finished", "Finished"),
                            ("void", "Void"),
                        ],
                        default="counting",
                        max_length=10,
                    ),
                ),
                ("started_by_id", models.BigIntegerField(blank=True, null=True)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("lease_token", models.UUIDField(blank=True, null=True)),
                ("cursor", models.UUIDField(blank=True, null=True)),
                ("in_use", models.PositiveBigIntegerField(default=0)),
                ("judged", models.PositiveBigIntegerField(default=0)),
                ("changed", models.PositiveBigIntegerField(default=0)),
                ("would_refuse", models.PositiveBigIntegerField(default=0)),
                ("failed", models.PositiveBigIntegerField(default=0)),
                ("sampled", models.PositiveIntegerField(blank=True, null=True)),
                ("sampled_changed", models.PositiveIntegerField(default=0)),
                ("sampled_refuse", models.PositiveIntegerField(default=0)),
                ("low", models.FloatField(blank=True, null=True)),
                ("high", models.FloatField(blank=True, null=True)),
                ("worst", models.JSONField(default=list)),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="radii",
                        to="contextpolicy.contextpolicy",
                    ),
                ),
            ],
            options={
                "verbose_name": "blast radius",
                "verbose_name_plural": "blast radii",
                "ordering": ["-started_at"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["policy"],
                        condition=Q(state__in=["counting", "stopped"]),
                        name="one_open_radius_per_policy",
                    )
                ],
            },
        ),
    ]
