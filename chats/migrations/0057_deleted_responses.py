"""Keep which responses a client deleted."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """One table, empty."""

    dependencies: ClassVar = [("chats", "0056_policy_of_keys")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="DeletedResponse",
            fields=[
                (
                    "turn",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="deleted_response",
                        serialize=False,
                        to="chats.turn",
                    ),
                ),
                ("deleted_at", models.DateTimeField()),
            ],
            options={"abstract": False},
        ),
    ]
