"""Replies of one round may run at the same time, each in its lane; all others run alone."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Let the one running turn of a branch be one in each lane."""

    dependencies: ClassVar = [("chats", "0022_teams")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="turn",
            name="lane",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddConstraint(
            model_name="turn",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "running")),
                fields=("branch", "lane"),
                name="one_running_turn_in_a_lane",
            ),
        ),
        migrations.RemoveConstraint(model_name="turn", name="one_running_turn"),
    ]
