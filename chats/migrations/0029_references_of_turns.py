"""The parts of earlier messages that go along with a question, by the turn that was given them."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the rows; no turn of before has any."""

    dependencies = [("chats", "0028_memory_of_a_person")]

    operations = [
        migrations.CreateModel(
            name="TurnReference",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("place", models.PositiveSmallIntegerField()),
                ("start", models.PositiveIntegerField()),
                ("end", models.PositiveIntegerField()),
                ("score", models.FloatField()),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="referred_by",
                        to="chats.message",
                    ),
                ),
                (
                    "turn",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="references",
                        to="chats.turn",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("turn", "place"), name="reference_place_once")
                ],
            },
        ),
    ]
