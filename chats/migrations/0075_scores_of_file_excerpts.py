"""Store the score of the parts of documents that were sent with a question."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One new column."""

    dependencies: ClassVar = [
        ('chats', '0074_file_excerpts'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='fileexcerpt',
            name='score',
            field=models.FloatField(blank=True, null=True),
        ),
    ]
