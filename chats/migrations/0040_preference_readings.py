"""How far a model has read each chat for preferences, and who agreed to that."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add them: nobody has agreed, nothing is due."""

    dependencies: ClassVar = [
        ("chats", "0039_tried_summaries"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="memorysettings",
            name="inferring_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="memorysettings",
            name="inferred_on",
            field=models.DateField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="memorysettings",
            name="inferred_calls",
            field=models.PositiveIntegerField(default=0, db_default=0),
        ),
        migrations.CreateModel(
            name="PreferenceReading",
            fields=[
                (
                    "chat",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="preference_reading",
                        serialize=False,
                        to="chats.chat",
                    ),
                ),
                ("read_to", models.PositiveBigIntegerField(default=0)),
                ("reading_to", models.PositiveBigIntegerField(default=0)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("tries", models.PositiveSmallIntegerField(default=0)),
                ("lease_token", models.CharField(blank=True, default="", max_length=43)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "receipt",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="chats.receipt",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["due_at"],
                        condition=Q(due_at__isnull=False),
                        name="preference_reading_due",
                    )
                ],
            },
        ),
    ]
