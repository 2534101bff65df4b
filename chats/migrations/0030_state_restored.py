"""A person may bring an older version of a state back."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the kind of such a version."""

    dependencies: ClassVar = [
        ("chats", "0029_references_of_turns"),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="chatstate",
            name="kind",
            field=models.CharField(
                choices=[
                    ("extracted", "Read from a message"),
                    ("corrected", "Corrected by a person"),
                    ("reset", "Emptied by a person"),
                    ("restored", "Restored by a person"),
                    ("erased", "Cleared by an erasure"),
                ],
                max_length=10,
            ),
        ),
    ]
