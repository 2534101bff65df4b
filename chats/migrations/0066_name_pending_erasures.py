"""Gives the model of pending erasures its name; the table keeps its own."""

from django.db import migrations


class Migration(migrations.Migration):
    """Changes the state only."""

    dependencies = [("chats", "0065_reword_choices")]
    operations = [
        migrations.AlterModelTable(name="erasurewish", table="chats_erasurewish"),
        migrations.RenameModel(old_name="ErasureWish", new_name="PendingErasure"),
    ]
