"""Models whose servers send a reply in one piece only."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("contextpolicy", "0007_ledger_verification")]

    operations = [
        migrations.AddField(
            model_name="modelspec",
            name="cannot_stream",
            field=models.BooleanField(
                default=False,
                help_text="The server sends its reply in one piece: it is asked without "
                "streaming, and pages and programs are shown the reply when it is whole.",
            ),
        ),
    ]
