"""Accounts of servers with Anthropic's interface."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the kind."""

    dependencies: ClassVar = [("chats", "0034_message_images")]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="provideraccount",
            name="kind",
            field=models.CharField(
                choices=[
                    ("openai", "OpenAI-compatible server"),
                    ("anthropic", "Anthropic’s interface (Messages)"),
                    ("demo", "Demo model (no server, no key)"),
                ],
                default="openai",
                max_length=20,
            ),
        ),
    ]
