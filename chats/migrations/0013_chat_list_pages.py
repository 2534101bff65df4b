"""A page of the chat list costs the same however many chats there are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0012_turn_begun_anew")]

    operations = [
        migrations.RemoveIndex("chat", "chat_list"),
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["owner", "-pinned", "-updated_at", "-id"],
                condition=models.Q(archived=False),
                name="chat_sidebar",
            ),
        ),
        migrations.AddIndex(
            "chat", models.Index(fields=["owner", "-updated_at", "-id"], name="chat_recent")
        ),
    ]
