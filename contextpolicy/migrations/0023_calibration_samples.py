"""Count the samples of a model's calibration by script."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column, empty."""

    dependencies: ClassVar = [("contextpolicy", "0022_reword_models_2")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="modelspec",
            name="calibration_samples_by_script",
            field=models.JSONField(db_default={}, default=dict, editable=False),
        ),
    ]
