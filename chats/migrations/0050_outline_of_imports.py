"""Keep where the lists of chats in an import's file begin."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column; imports under way look through their file once more."""

    dependencies: ClassVar = [
        ('chats', '0049_count_imported_messages'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='fileimport',
            name='outline',
            field=models.JSONField(blank=True, default=dict, null=True),
        ),
    ]
