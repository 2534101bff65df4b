"""How many tokens a text took that was sent but is no message: the meter tells it before the next."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0010_room_for_commitments")]

    operations = [
        migrations.AddField(
            model_name="prompttext",
            name="tokens",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
    ]
