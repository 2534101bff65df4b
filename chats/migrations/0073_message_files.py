"""Store which files a message uses."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """One new table."""

    dependencies: ClassVar = [
        ('chats', '0072_reword_labels'),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name='MessageFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('file', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='uses', to='chats.storedfile')),
                ('message', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='file_links', to='chats.message')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('message', 'file'), name='file_of_message_once')],
            },
        ),
    ]
