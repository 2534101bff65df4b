"""Store a commitment with each message: the ledger has it, so that a changed message is found."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Two columns; existing messages have no commitment."""

    dependencies: ClassVar = [
        ("chats", "0063_reason_values"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="message",
            name="salt",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AddField(
            model_name="message",
            name="commitment",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
    ]
