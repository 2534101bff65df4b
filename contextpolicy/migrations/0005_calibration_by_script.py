"""A model's calibration for each script its prompts are written in."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("contextpolicy", "0004_modelspec_strict_roles"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelspec",
            name="calibration_by_script",
            field=models.JSONField(default=dict, editable=False),
        ),
    ]
