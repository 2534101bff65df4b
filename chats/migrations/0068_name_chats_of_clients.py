"""Store the id that a client of the UI message protocol gives its chat."""

from typing import ClassVar

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """One column, empty for existing chats, unique among a person's chats."""

    dependencies: ClassVar = [
        ("chats", "0067_count_marks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="chat",
            name="client_id",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddConstraint(
            model_name="chat",
            constraint=models.UniqueConstraint(
                fields=["owner", "client_id"],
                condition=~Q(client_id=""),
                name="chat_client_id_once",
            ),
        ),
    ]
