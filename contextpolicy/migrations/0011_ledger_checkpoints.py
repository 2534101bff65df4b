"""Signed checkpoints of the ledger: origins, keys, entries, heads; verifications of what is new."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models

ID = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
ORIGIN = models.ForeignKey(
    on_delete=django.db.models.deletion.PROTECT, to="contextpolicy.ledgerorigin"
)


class Migration(migrations.Migration):
    """Make the tables."""

    dependencies: ClassVar = [("contextpolicy", "0010_drafts_of_versions")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="LedgerKey",
            fields=[
                ("id", ID),
                ("public", models.CharField(max_length=44, unique=True)),
                ("encrypted_private", models.TextField(blank=True, default="")),
                ("made_at", models.DateTimeField()),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LedgerOrigin",
            fields=[
                ("id", ID.clone()),
                ("name", models.CharField(max_length=200, unique=True)),
                ("opened_at", models.DateTimeField()),
                ("before", models.TextField(blank=True, default="")),
                ("reason", models.CharField(blank=True, default="", max_length=300)),
            ],
        ),
        migrations.AddField(
            model_name="ledgerverification",
            name="since_leaf",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="LedgerLeaf",
            fields=[
                ("id", ID.clone()),
                ("place", models.PositiveBigIntegerField()),
                ("scope", models.CharField(blank=True, max_length=50)),
                ("last_hash", models.CharField(blank=True, max_length=64)),
                ("count", models.PositiveBigIntegerField(default=0)),
                ("origin", ORIGIN),
            ],
            options={
                "indexes": [
                    models.Index(fields=["scope", "origin", "-count"], name="leaf_of_chain")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("origin", "place"), name="leaf_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerCheckpoint",
            fields=[
                ("id", ID.clone()),
                ("size", models.PositiveBigIntegerField()),
                ("note", models.TextField()),
                ("frontier", models.JSONField()),
                ("signed_at", models.DateTimeField()),
                ("last_event", models.PositiveBigIntegerField()),
                ("origin", ORIGIN.clone()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("origin", "size"), name="checkpoint_once")
                ],
            },
        ),
    ]
