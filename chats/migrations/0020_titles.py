"""Whether a chat's title was written by a model, and an index for calls that were left open."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0019_warm_ups")]

    operations = [
        migrations.AddField("chat", "titled_by_model", models.BooleanField(default=False)),
        migrations.AddIndex(
            "receipt",
            models.Index(
                condition=models.Q(("call", 0), ("outcome", "open"), ("step", 0)),
                fields=["created_at"],
                name="title_being_written",
            ),
        ),
    ]
