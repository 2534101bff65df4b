"""Servers that want the user first and roles that alternate."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('contextpolicy', '0003_calibration_facts'),
    ]

    operations = [
        migrations.AddField(
            model_name='modelspec',
            name='strict_roles',
            field=models.BooleanField(
                default=False,
                help_text="The server refuses messages whose roles do not alternate, beginning with the user's: neighbours of one role are sent as one message.",
            ),
        ),
    ]
