"""Keep what the requests for a summary were made of, so that each can be built again."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column; what was asked before has none."""

    dependencies: ClassVar = [("chats", "0044_bodies_of_summaries")]
    operations: ClassVar = [
        migrations.AddField(
            model_name="compaction",
            name="made_of",
            field=models.JSONField(blank=True, default=dict, null=True),
        )
    ]
