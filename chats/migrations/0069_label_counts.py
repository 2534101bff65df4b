"""Give a column of the dashboard a label that can be translated; reword two choices."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Labels only; no column changes."""

    dependencies: ClassVar = [
        ('chats', '0068_name_chats_of_clients'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='agent',
            name='prompt_form',
            field=models.CharField(choices=[('messages', 'Messages, each in its own role'), ('claude-code', 'Claude: one text with tags'), ('openai-codex', 'Codex: one text with Markdown headings'), ('google-gemini', 'Gemini: one text with headings in capitals'), ('plain', 'Plain: one text with plain-text headings')], db_default='messages', default='messages', max_length=20),
        ),
        migrations.AlterField(
            model_name='dailycount',
            name='model',
            field=models.CharField(blank=True, default='', max_length=120, verbose_name='model'),
        ),
    ]
