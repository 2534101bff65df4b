"""Store the encrypted keys of encrypted files."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One new column."""

    dependencies: ClassVar = [
        ('chats', '0075_scores_of_file_excerpts'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='storedfile',
            name='sealed_key',
            field=models.TextField(blank=True, default=''),
        ),
    ]
