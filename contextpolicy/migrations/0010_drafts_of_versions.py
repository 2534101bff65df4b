from django.db import migrations, models
from django.db.models import F


def every_version_was_in_force(apps, schema_editor):
    """Until now each version came into force when it was made."""
    versions = apps.get_model("contextpolicy", "PolicyVersion")
    versions.objects.filter(activated_at=None).update(activated_at=F("created_at"))


class Migration(migrations.Migration):
    dependencies = [
        ("contextpolicy", "0009_skills"),
    ]

    operations = [
        migrations.AddField(
            model_name="policyversion",
            name="activated_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunPython(every_version_was_in_force, migrations.RunPython.noop),
    ]
