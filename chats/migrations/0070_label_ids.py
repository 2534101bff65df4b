"""Give the ids of four tables a label that can be translated."""

import uuid
from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Labels only; no column changes."""

    dependencies: ClassVar = [
        ('chats', '0069_label_counts'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='compaction',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterField(
            model_name='team',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
    ]
