"""Models that make embeddings."""

from typing import ClassVar
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the mark; no model that is stored bears it."""

    dependencies: ClassVar = [
        ('contextpolicy', '0011_ledger_checkpoints'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='modelspec',
            name='embeds',
            field=models.BooleanField(db_default=False, default=False, help_text='Programs may ask it for embeddings at /v1/embeddings, whether or not it is switched on for chats.', verbose_name='Makes embeddings'),
        ),
    ]
