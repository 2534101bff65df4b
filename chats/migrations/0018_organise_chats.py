"""Chats are deleted for a while before they are erased, may be temporary, and lie in folders."""

from django.db import migrations, models
from django.db.models import Q

IN_SIDEBAR = Q(archived=False, deleted_at=None) & (Q(pinned=True) | Q(folder=None))
NEWEST = ["-updated_at", "-id"]


class Migration(migrations.Migration):
    dependencies = [("chats", "0017_search_stretches")]

    operations = [
        migrations.AddField("chat", "temporary", models.BooleanField(default=False)),
        migrations.AddField("chat", "deleted_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("chat", "erase_at", models.DateTimeField(blank=True, null=True)),
        migrations.RemoveIndex("chat", "chat_sidebar"),
        migrations.RemoveIndex("chat", "chat_recent"),
        # First: of indexes that serve alike, SQLite takes the newest, which is the smaller one.
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["owner", *NEWEST], condition=Q(deleted_at=None), name="chat_recent"
            ),
        ),
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["owner", "-pinned", *NEWEST], condition=IN_SIDEBAR, name="chat_sidebar"
            ),
        ),
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["folder", *NEWEST],
                condition=Q(archived=False, deleted_at=None, pinned=False, folder__isnull=False),
                name="chat_in_folder",
            ),
        ),
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["owner", *NEWEST],
                condition=Q(archived=True, deleted_at=None),
                name="chat_archived",
            ),
        ),
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["erase_at"], condition=Q(erase_at__isnull=False), name="chat_to_erase"
            ),
        ),
        migrations.AddIndex(
            "chat",
            models.Index(
                fields=["updated_at"], condition=Q(temporary=True), name="chat_temporary"
            ),
        ),
    ]
