"""Models with Anthropic's interface that think before they reply."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the field; none is asked to think."""

    dependencies: ClassVar = [("contextpolicy", "0012_models_that_embed")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="modelspec",
            name="thinking",
            field=models.CharField(
                blank=True,
                choices=[
                    ("", "As the model does by itself"),
                    ("adaptive", "As much as the model finds fit"),
                    ("1024", "Up to 1,024 tokens"),
                    ("4096", "Up to 4,096 tokens"),
                    ("16384", "Up to 16,384 tokens"),
                ],
                default="",
                help_text="Only for models with Anthropic’s interface: how much it thinks before it "
                "replies. Thoughts count as part of the reply’s tokens.",
                max_length=10,
            ),
        ),
    ]
