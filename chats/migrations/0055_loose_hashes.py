"""Keep a hash of the beginnings of what a client sent: it finds messages that lost their reminder."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column with an index; existing messages are found by their whole text only."""

    dependencies: ClassVar = [
        ("chats", "0054_invitations"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="gatewaynode",
            name="loose",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AddIndex(
            model_name="gatewaynode",
            index=models.Index(fields=["loose"], name="gateway_loose"),
        ),
    ]
