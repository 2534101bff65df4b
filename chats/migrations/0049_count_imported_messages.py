"""Count the messages of an import's file, and keep the place in the file."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns of imports and their outcomes; earlier ones have zeros."""

    dependencies: ClassVar = [
        ('chats', '0048_impossible_counts'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='fileimport',
            name='grown',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='fileimport',
            name='mark_offset',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='fileimport',
            name='mark_part',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='fileimport',
            name='messages_here',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='fileimport',
            name='messages_in_file',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='importoutcome',
            name='here',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='importoutcome',
            name='in_file',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
