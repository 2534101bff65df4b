"""Prices of cached input, and the currency of a model's prices."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the fields; no price is set."""

    dependencies: ClassVar = [("contextpolicy", "0016_evaluations")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="modelspec",
            name="cached_price",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Of input that the provider read from its cache. Empty: what such calls "
                "cost is not known.",
                max_digits=12,
                null=True,
                verbose_name="Price of cached input",
            ),
        ),
        migrations.AddField(
            model_name="modelspec",
            name="written_price",
            field=models.DecimalField(
                blank=True,
                decimal_places=6,
                help_text="Only where the provider tells what it wrote. Empty: what such calls "
                "cost is not known.",
                max_digits=12,
                null=True,
                verbose_name="Price of input written to the cache",
            ),
        ),
        migrations.AddField(
            model_name="modelspec",
            name="currency",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of these prices, as “USD”.",
                max_length=8,
            ),
        ),
    ]
