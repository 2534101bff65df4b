"""Store which parts of documents were sent with a question."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """One new table, and a mark of chats with cut documents."""

    dependencies: ClassVar = [
        ('chats', '0073_message_files'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='chat',
            name='has_cut_files',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name='FileExcerpt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('place', models.PositiveSmallIntegerField()),
                ('chunk', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='excerpts', to='chats.filechunk')),
                ('turn', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='file_excerpts', to='chats.turn')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('turn', 'place'), name='file_excerpt_place_once')],
            },
        ),
    ]
