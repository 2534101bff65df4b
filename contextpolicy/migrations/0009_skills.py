"""Administrators keep named texts, skills, that policies attach."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Make the table of skills."""

    dependencies: ClassVar = [
        ("contextpolicy", "0008_models_that_cannot_stream"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Skill",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("slug", models.SlugField(max_length=60, unique=True)),
                ("name", models.CharField(max_length=100)),
                (
                    "text",
                    models.TextField(help_text="At most 10,000 characters. Write no secrets."),
                ),
                ("enabled", models.BooleanField(default=True, help_text="Off: no prompt has it.")),
                ("updated_at", models.DateTimeField(editable=False)),
            ],
            options={
                "ordering": ["slug"],
            },
        ),
    ]
