"""Timestamps that an authority outside gave for checkpoints."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ("contextpolicy", "0019_counts_of_a_group"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="LedgerTimestamp",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("authority", models.CharField(max_length=500)),
                ("tried_at", models.DateTimeField()),
                ("received_at", models.DateTimeField(blank=True, null=True)),
                ("response", models.TextField(blank=True, default="")),
                ("problem", models.CharField(blank=True, default="", max_length=40)),
                (
                    "checkpoint",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="timestamp",
                        to="contextpolicy.ledgercheckpoint",
                    ),
                ),
            ],
            options={"abstract": False},
        ),
    ]
