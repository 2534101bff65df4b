from django.db import migrations
from django.db.models import F


def fill(apps, schema_editor):
    """A summary displaced the one that it folded; nothing else was possible so far."""
    rows = apps.get_model("chats", "Compaction").objects.filter(kind="summary", displaced=None)
    rows.exclude(previous=None).update(displaced=F("previous"))


class Migration(migrations.Migration):

    dependencies = [("chats", "0004_compaction_lifecycle")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
