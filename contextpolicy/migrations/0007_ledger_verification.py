"""Verifications of the ledger that were asked for, and what they found."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("contextpolicy", "0006_where_commitments_begin")]

    operations = [
        migrations.CreateModel(
            name="LedgerVerification",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("scope", models.CharField(blank=True, max_length=50)),
                ("asked_by", models.CharField(max_length=200)),
                ("asked_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("error", models.CharField(blank=True, default="", max_length=60)),
                ("chains", models.PositiveBigIntegerField(default=0)),
                ("rows", models.PositiveBigIntegerField(default=0)),
                ("broken", models.PositiveBigIntegerField(default=0)),
                ("breaks", models.JSONField(blank=True, default=list)),
                ("told", models.JSONField(blank=True, default=dict)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True)),
                        fields=["asked_at"],
                        name="verification_unfinished",
                    )
                ],
            },
        ),
    ]
