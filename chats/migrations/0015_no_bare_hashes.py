"""The bare hashes go; each new summary has a salt of its own."""

from django.db import migrations, models

import chats.ground.seals


class Migration(migrations.Migration):
    dependencies = [("chats", "0014_salt_what_was_bare")]

    operations = [
        migrations.RemoveField("compaction", "text_sha256"),
        migrations.RemoveField("compaction", "prompt_sha256"),
        migrations.RemoveField("idempotencyrecord", "body_sha256"),
        migrations.RemoveField("prompttext", "erased_at"),
        migrations.AlterField(
            "compaction",
            "salt",
            models.CharField(max_length=64, blank=True, default=chats.ground.seals.new_salt),
        ),
        migrations.AlterField(
            "idempotencyrecord", "salt", models.CharField(max_length=64, blank=True)
        ),
        migrations.AlterField(
            "idempotencyrecord", "body_commitment", models.CharField(max_length=64, blank=True)
        ),
    ]
