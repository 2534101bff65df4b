"""A team may cap the messages that stand in prompts: of more the oldest go to the archive."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the cap to the versions of teams; 0: none, as before."""

    dependencies: ClassVar = [("chats", "0023_replies_at_the_same_time")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="teamversion",
            name="message_cap",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
