"""What became of a person's request for a compaction stands at its branch."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0015_no_bare_hashes")]

    operations = [
        migrations.AddField(
            "branch", "request_outcome", models.JSONField(blank=True, null=True)
        ),
    ]
