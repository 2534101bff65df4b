"""Room for commitments and their salts, beside the bare hashes that they replace."""

from django.db import migrations, models


def text(**more):
    return models.CharField(max_length=64, blank=True, default="", **more)


class Migration(migrations.Migration):
    dependencies = [("chats", "0009_search_places")]

    operations = [
        migrations.AddField("receipt", "salt", text()),
        migrations.AddField("receipt", "commitment", text()),
        migrations.AddField("receipt", "erased_at", models.DateTimeField(null=True, blank=True)),
        migrations.AlterField("receipt", "prompt_sha256", models.CharField(max_length=64, blank=True)),
        migrations.AddField("compaction", "salt", text()),
        migrations.AddField("compaction", "calls", models.JSONField(default=list, blank=True)),
        migrations.AddField("compaction", "text_commitment", text()),
        migrations.AddField("idempotencyrecord", "salt", text()),
        migrations.AddField("idempotencyrecord", "body_commitment", text()),
        # So that its column can be made again for rows that have no value for it.
        migrations.AlterField("idempotencyrecord", "body_sha256", text()),
    ]
