"""Summaries that are tried in the preview of a policy."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the kind and its reason."""

    dependencies: ClassVar = [
        ('chats', '0038_counts_of_days'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='passedon',
            name='kind',
            field=models.CharField(choices=[('chat.completions', 'Chat completions'), ('responses', 'Responses'), ('embeddings', 'Embeddings'), ('summary', 'A summary that was tried')], max_length=20),
        ),
        migrations.AlterField(
            model_name='passedon',
            name='why',
            field=models.CharField(choices=[('key', 'The key says so'), ('policy', 'The policy says so'), ('header', 'The request asked for it'), ('kind', 'Requests of this kind have no chat'), ('preview', 'In the preview of a policy')], max_length=10),
        ),
    ]
