"""Give teams a byte limit and agents a prompt form; existing ones keep what they had."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns of teams and agents: no byte limit and messages for those that exist."""

    dependencies: ClassVar = [
        ("chats", "0050_outline_of_imports"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="teamversion",
            name="max_bytes",
            field=models.PositiveIntegerField(db_default=0, default=786432),
        ),
        migrations.AddField(
            model_name="agent",
            name="prompt_form",
            field=models.CharField(
                choices=[
                    ("messages", "Messages, each in its own role"),
                    ("claude-code", "Claude: one text with tags"),
                    ("openai-codex", "Codex: one text with Markdown headings"),
                    ("google-gemini", "Gemini: one text with titles in capitals"),
                    ("plain", "Plain: one text with simple titles"),
                ],
                db_default="messages",
                default="messages",
                max_length=20,
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="window_size",
            field=models.PositiveIntegerField(default=5),
        ),
    ]
