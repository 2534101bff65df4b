"""Evaluations: drafts that judge turns beside the version in force."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("contextpolicy", "0015_blast_radius"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Evaluation",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("base", models.PositiveIntegerField()),
                (
                    "place",
                    models.CharField(
                        choices=[("instance", "Everyone"), ("assigned", "Where it is assigned")],
                        max_length=10,
                    ),
                ),
                ("share", models.PositiveSmallIntegerField(default=100)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "Under way"),
                            ("ended", "Ended"),
                            ("promoted", "Put in force"),
                        ],
                        default="open",
                        max_length=10,
                    ),
                ),
                ("reason", models.CharField(blank=True, default="", max_length=20)),
                ("started_by_id", models.BigIntegerField(blank=True, null=True)),
                ("started_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("lease_token", models.UUIDField(blank=True, null=True)),
                ("cursor", models.PositiveBigIntegerField(default=0)),
                ("turns", models.PositiveBigIntegerField(default=0)),
                ("unknown", models.PositiveBigIntegerField(default=0)),
                ("changed", models.PositiveBigIntegerField(default=0)),
                ("would_refuse", models.PositiveBigIntegerField(default=0)),
                ("compactions_now", models.PositiveBigIntegerField(default=0)),
                ("compactions_then", models.PositiveBigIntegerField(default=0)),
                ("tokens_now", models.PositiveBigIntegerField(default=0)),
                ("tokens_then", models.PositiveBigIntegerField(default=0)),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="evaluations",
                        to="contextpolicy.contextpolicy",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="evaluations",
                        to="contextpolicy.policyversion",
                    ),
                ),
            ],
            options={
                "ordering": ["-started_at"],
            },
        ),
        migrations.CreateModel(
            name="EvaluatedTurn",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("turn_id", models.UUIDField()),
                ("at", models.DateTimeField()),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("equal", "The same"),
                            ("changed", "Something else"),
                            ("refused", "Refused"),
                            ("unknown", "Unknown"),
                        ],
                        max_length=8,
                    ),
                ),
                ("reason", models.CharField(blank=True, default="", max_length=40)),
                ("tokens_now", models.PositiveIntegerField(default=0)),
                ("tokens_then", models.PositiveIntegerField(default=0)),
                ("full_now", models.PositiveIntegerField(default=0)),
                ("full_then", models.PositiveIntegerField(default=0)),
                ("compacts_now", models.BooleanField(default=False)),
                ("compacts_then", models.BooleanField(default=False)),
                (
                    "evaluation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="judgements",
                        to="contextpolicy.evaluation",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="VirtualCoverage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("branch_id", models.UUIDField()),
                ("follows", models.BooleanField(default=True)),
                ("summary_id", models.UUIDField(blank=True, null=True)),
                ("from_seq", models.PositiveBigIntegerField(default=1)),
                ("to_seq", models.PositiveBigIntegerField(default=0)),
                ("tokens", models.PositiveIntegerField(default=0)),
                ("exceptions", models.JSONField(default=list)),
                ("window_to", models.PositiveBigIntegerField(default=0)),
                ("ready", models.JSONField(blank=True, null=True)),
                ("last_id", models.UUIDField(blank=True, null=True)),
                (
                    "evaluation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="coverages",
                        to="contextpolicy.evaluation",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="evaluation",
            constraint=models.UniqueConstraint(
                condition=Q(state="open"), fields=("policy",), name="one_open_evaluation_per_policy"
            ),
        ),
        migrations.AddIndex(
            model_name="evaluatedturn",
            index=models.Index(fields=["at"], name="evaluated_turn_by_time"),
        ),
        migrations.AddConstraint(
            model_name="evaluatedturn",
            constraint=models.UniqueConstraint(
                fields=("evaluation", "turn_id"), name="turn_evaluated_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="virtualcoverage",
            constraint=models.UniqueConstraint(
                fields=("evaluation", "branch_id"), name="one_virtual_coverage"
            ),
        ),
    ]
