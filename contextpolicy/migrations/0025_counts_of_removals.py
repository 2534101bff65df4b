"""Counts of the chats that a policy's removal would change."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the place `removed`."""

    dependencies: ClassVar = [("contextpolicy", "0024_name_models")]
    operations: ClassVar = [
        migrations.AlterField(
            model_name="blastradius",
            name="place",
            field=models.CharField(
                choices=[
                    ("instance", "Everyone"),
                    ("assigned", "Where it is assigned"),
                    ("removed", "Nowhere: as if it were removed"),
                ],
                max_length=10,
            ),
        ),
    ]
