"""Give a column of the dashboard a label that can be translated."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One label; no column changes."""

    dependencies: ClassVar = [
        ('chats', '0068_name_chats_of_clients'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='dailycount',
            name='model',
            field=models.CharField(blank=True, default='', max_length=120, verbose_name='model'),
        ),
    ]
