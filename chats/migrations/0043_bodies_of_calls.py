"""Receipts keep the hash of the body that left."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the hash; the receipts that are there have none."""

    dependencies: ClassVar = [
        ("chats", "0042_imports_in_the_background"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="receipt",
            name="body_sha256",
            field=models.CharField(blank=True, default="", max_length=64),
        ),
    ]
