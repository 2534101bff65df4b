"""Keep the hashes of the bodies that summarisers were sent."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column; what was sent before has none."""

    dependencies: ClassVar = [("chats", "0043_bodies_of_calls")]
    operations: ClassVar = [
        migrations.AddField(
            model_name="compaction",
            name="bodies",
            field=models.JSONField(blank=True, default=list, null=True),
        )
    ]
