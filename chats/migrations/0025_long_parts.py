"""Long messages are stored compressed. Those already there stay as they are, and are readable."""

from typing import TYPE_CHECKING, ClassVar

from django.db import migrations

from chats.models.parts import DEFLATED, PartsField, unpacked

if TYPE_CHECKING:
    from django.apps.registry import Apps
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def unpack(apps: "Apps", schema_editor: "BaseDatabaseSchemaEditor") -> None:
    """Write compressed parts as plain ones again, for the release before this one."""
    database = schema_editor.connection.alias
    messages = apps.get_model("chats", "Message").objects.using(database)
    compressed = messages.filter(parts__has_key=DEFLATED).only("pk", "parts")
    for message in compressed.iterator(chunk_size=100):
        messages.filter(pk=message.pk).update(parts=unpacked(message.parts))


class Migration(migrations.Migration):
    """Change what the column means to the code; the database's column stays what it is."""

    dependencies: ClassVar = [("chats", "0024_message_cap")]

    operations: ClassVar = [
        migrations.RunPython(migrations.RunPython.noop, unpack),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(model_name="message", name="parts", field=PartsField())
            ]
        ),
    ]
