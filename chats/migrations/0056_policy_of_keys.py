"""Give API keys a policy for the chats that they open; existing keys keep that of their owner."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """One column, empty for existing keys."""

    dependencies: ClassVar = [
        ("chats", "0055_loose_hashes"),
        ("contextpolicy", "0020_timestamps_of_checkpoints"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="apikey",
            name="policy",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="contextpolicy.contextpolicy",
            ),
        ),
    ]
