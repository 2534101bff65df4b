"""A count may be of the chats of a group's members."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the group; the counts that are there have none."""

    dependencies: ClassVar = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contextpolicy", "0018_readers_of_the_ledger"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="blastradius",
            name="group",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="auth.group",
            ),
        ),
    ]
