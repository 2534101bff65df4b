"""How often the text of a turn's step began anew, so that no viewer goes on in another text."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0011_prompt_text_tokens")]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="begun_anew",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
