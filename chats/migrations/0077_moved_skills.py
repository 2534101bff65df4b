"""Store the skills whose texts a compaction moves to the system text."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One new column."""

    dependencies: ClassVar = [
        ('chats', '0076_sealed_key_of_files'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='compaction',
            name='skills',
            field=models.JSONField(blank=True, default=list, null=True),
        ),
    ]
