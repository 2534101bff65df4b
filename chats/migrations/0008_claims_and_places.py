"""Claims on summaries name their worker, and branches say since when a summary waits for a place."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0007_turn_api_key")]

    operations = [
        migrations.AddField(
            model_name="branch",
            name="summary_due_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name="branch",
            index=models.Index(
                condition=models.Q(("summary_due_at__isnull", False)),
                fields=["summary_due_at"],
                name="branch_summary_due",
            ),
        ),
        migrations.AddField(
            model_name="compaction",
            name="worker",
            field=models.CharField(blank=True, db_default="", default="", max_length=100),
        ),
        migrations.AddIndex(
            model_name="compaction",
            index=models.Index(
                condition=models.Q(("lease_until__isnull", False)),
                fields=["lease_until"],
                name="compaction_claimed",
            ),
        ),
    ]
