"""What was read ahead on a branch, and whether a server may be asked to read ahead."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chats", "0018_organise_chats")]

    operations = [
        migrations.AddField(
            "provideraccount",
            "warm_up",
            models.BooleanField(
                "Warm-ups",
                default=True,
                help_text="Where that costs nothing (no price, a private address), a prompt that "
                "has changed is sent in the background, so that nobody waits until the server has "
                "read it.",
            ),
        ),
        migrations.CreateModel(
            "WarmUp",
            [
                (
                    "branch",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="warm_up",
                        serialize=False,
                        to="chats.branch",
                    ),
                ),
                ("swap", models.CharField(blank=True, default="", max_length=80)),
                ("rest", models.DateTimeField(blank=True, null=True)),
                ("warmed_at", models.DateTimeField(blank=True, null=True)),
                ("provider", models.CharField(blank=True, default="", max_length=60)),
                ("worker", models.CharField(blank=True, default="", max_length=100)),
                ("lease_token", models.CharField(blank=True, default="", max_length=43)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                (
                    "receipt",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="chats.receipt",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("lease_until__isnull", False)),
                        fields=["lease_until"],
                        name="warm_up_running",
                    )
                ]
            },
        ),
    ]
