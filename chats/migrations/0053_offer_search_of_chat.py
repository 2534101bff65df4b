"""Note on a branch that its prompts offer the search of the chat."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column; existing branches without a compaction begin without the tool."""

    dependencies: ClassVar = [
        ("chats", "0052_time_zones"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="branch",
            name="search_offered",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
