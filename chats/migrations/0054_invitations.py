"""Mark the sign-in links of invitations; earlier links are none."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column of sign-in links."""

    dependencies: ClassVar = [
        ("chats", "0053_offer_search_of_chat"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="loginlink",
            name="invitation",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
