"""Teams with their agents, and the rounds in which those reply."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chats", "0021_team_messages"),
        ("contextpolicy", "0007_ledger_verification"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Team",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("deleted_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="TeamVersion",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("name", models.CharField(max_length=100)),
                (
                    "routing",
                    models.CharField(
                        choices=[
                            ("all", "Everybody once, in their order"),
                            ("round_robin", "In turn, until the limit"),
                            ("person", "Whom a message names, else the first"),
                        ],
                        default="all",
                        max_length=12,
                    ),
                ),
                ("independent", models.BooleanField(default=False)),
                ("hop_limit", models.PositiveIntegerField(default=8)),
                ("token_limit", models.PositiveIntegerField(default=100000)),
                ("seconds_limit", models.PositiveIntegerField(default=600)),
                ("goes_on_after_failure", models.BooleanField(default=True)),
                ("task", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name="turn",
            name="hop",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="turn",
            name="seen_to",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="Agent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("place", models.PositiveIntegerField()),
                ("role_id", models.CharField(max_length=80)),
                ("name", models.CharField(max_length=60)),
                (
                    "type",
                    models.CharField(
                        choices=[("ai", "An agent"), ("human", "A person")],
                        default="ai",
                        max_length=5,
                    ),
                ),
                ("agent_type", models.CharField(blank=True, default="", max_length=60)),
                ("instruction", models.TextField(blank=True, default="")),
                ("instruction_file_text", models.TextField(blank=True, default="")),
                ("window_size", models.PositiveIntegerField(default=12)),
                ("rests", models.BooleanField(default=False)),
                (
                    "model",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="contextpolicy.modelspec",
                    ),
                ),
                (
                    "policy",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="contextpolicy.contextpolicy",
                    ),
                ),
            ],
            options={
                "ordering": ["place"],
            },
        ),
        migrations.AddField(
            model_name="turn",
            name="agent",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="chats.agent",
            ),
        ),
        migrations.CreateModel(
            name="Round",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("waiting", "Waiting for a person of the team"),
                            ("settled", "Settled"),
                            ("limit", "Limit reached"),
                            ("pair", "Two agents only answered each other"),
                            ("stopped", "Stopped"),
                            ("failed", "A reply failed"),
                            ("replaced", "Replaced by a newer message"),
                        ],
                        default="running",
                        max_length=8,
                    ),
                ),
                ("queue", models.JSONField(default=list)),
                ("speakers", models.JSONField(default=list)),
                ("passes", models.PositiveIntegerField(default=0)),
                ("hops", models.PositiveIntegerField(default=0)),
                ("tokens", models.PositiveIntegerField(default=0)),
                ("reason", models.CharField(blank=True, default="", max_length=10)),
                ("unknown", models.JSONField(default=list)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "branch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rounds",
                        to="chats.branch",
                    ),
                ),
                (
                    "opening",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="chats.message",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="turn",
            name="round",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="turns",
                to="chats.round",
            ),
        ),
        migrations.AddIndex(
            model_name="turn",
            index=models.Index(
                condition=models.Q(("round__isnull", False)),
                fields=["round", "hop"],
                name="turn_of_round",
            ),
        ),
        migrations.AddField(
            model_name="team",
            name="owner",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="chat",
            name="team",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                to="chats.team",
            ),
        ),
        migrations.AddField(
            model_name="teamversion",
            name="team",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="versions",
                to="chats.team",
            ),
        ),
        migrations.AddField(
            model_name="team",
            name="current",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="chats.teamversion",
            ),
        ),
        migrations.AddField(
            model_name="round",
            name="version",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="rounds",
                to="chats.teamversion",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="version",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="agents",
                to="chats.teamversion",
            ),
        ),
        migrations.AddConstraint(
            model_name="teamversion",
            constraint=models.UniqueConstraint(fields=("team", "number"), name="team_version_once"),
        ),
        migrations.AddIndex(
            model_name="round",
            index=models.Index(fields=["branch", "-started_at"], name="round_of_branch"),
        ),
        migrations.AddConstraint(
            model_name="round",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status", "running")),
                fields=("branch",),
                name="one_running_round",
            ),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.UniqueConstraint(
                fields=("version", "place"), name="agent_place_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.UniqueConstraint(
                fields=("version", "role_id"), name="agent_role_once"
            ),
        ),
    ]
