"""The API key that asked for a turn: how many of its replies run at once is limited."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0006_search_texts")]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="api_key",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="chats.apikey",
            ),
        ),
    ]
