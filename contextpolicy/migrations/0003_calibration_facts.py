"""How many replies a model's calibration was learned from."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('contextpolicy', '0002_ledger_triggers'),
    ]

    operations = [
        migrations.AddField(
            model_name='modelspec',
            name='calibration_samples',
            field=models.PositiveIntegerField(default=0, editable=False),
        ),
    ]
