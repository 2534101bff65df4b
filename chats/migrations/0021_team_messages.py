"""A team's task, and how the messages of a branch are numbered in the team's view."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0020_titles")]

    operations = [
        migrations.AddField("chat", "team_task", models.TextField(blank=True, null=True)),
        migrations.AddField("branch", "team_id_offset", models.BigIntegerField(default=0)),
    ]
