"""Count changed marks of messages, so that a person's other open pages show them."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column, 0 for existing branches."""

    dependencies: ClassVar = [
        ("chats", "0066_name_pending_erasures"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="branch",
            name="marks_revision",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
    ]
