"""Programs behind /v1: what they asked for, and the hashes by which they are recognised."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the columns, empty for everything of before, and the rows."""

    dependencies: ClassVar = [
        ("chats", "0030_state_restored"),
        ("contextpolicy", "0009_skills"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="branch",
            name="client_windowed",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="chat",
            name="policy",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="contextpolicy.contextpolicy",
            ),
        ),
        migrations.AddField(
            model_name="turn",
            name="client",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="GatewayChat",
            fields=[
                (
                    "chat",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="gateway",
                        serialize=False,
                        to="chats.chat",
                    ),
                ),
                ("room", models.CharField(max_length=64)),
                ("source", models.CharField(blank=True, default="", max_length=40)),
                ("proven", models.BooleanField(default=False)),
            ],
            options={"indexes": [models.Index(fields=["room"], name="gateway_room")]},
        ),
        migrations.CreateModel(
            name="GatewayNode",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.PositiveBigIntegerField()),
                ("found", models.CharField(blank=True, default="", max_length=64)),
                ("item", models.CharField(max_length=64)),
                (
                    "branch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="chats.branch",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["found"], name="gateway_found"),
                    models.Index(fields=["item"], name="gateway_item"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("branch", "seq"), name="gateway_node_once")
                ],
            },
        ),
    ]
