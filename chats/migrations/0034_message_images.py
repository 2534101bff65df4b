"""The bytes of images that messages have."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Make the table."""

    dependencies: ClassVar = [
        ('chats', '0033_passed_on'),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name='MessageImage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sha256', models.CharField(max_length=64)),
                ('media_type', models.CharField(max_length=20)),
                ('data', models.BinaryField()),
                ('message', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='images', to='chats.message')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('message', 'sha256'), name='message_image_once')],
            },
        ),
    ]
