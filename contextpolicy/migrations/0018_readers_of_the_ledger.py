"""Readers that follow the ledger, each with its place."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the rows, none of them."""

    dependencies: ClassVar = [
        ('contextpolicy', '0017_prices_of_the_cache'),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name='LedgerReader',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('last', models.PositiveBigIntegerField(default=0)),
                ('missed', models.JSONField(default=list)),
                ('moves', models.PositiveBigIntegerField(default=0)),
                ('moved_at', models.DateTimeField(blank=True, null=True)),
                ("lease_token", models.CharField(blank=True, default="", max_length=32)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'abstract': False,
            },
        ),
    ]
