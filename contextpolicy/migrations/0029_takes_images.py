"""Store whether a model takes images."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column, true for existing models."""

    dependencies: ClassVar = [
        ('contextpolicy', '0028_reword_more_labels'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='modelspec',
            name='takes_images',
            field=models.BooleanField(db_default=True, default=True, help_text='Off, the model gets a line with the name instead of an image.', verbose_name='takes images'),
        ),
    ]
