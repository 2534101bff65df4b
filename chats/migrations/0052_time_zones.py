"""Keep the time zone of an account, and that of the dates in a branch's prompts."""

from typing import ClassVar

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table and a column; no prompt changes."""

    dependencies: ClassVar = [
        ('chats', '0051_prompt_forms'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='branch',
            name='time_zone',
            field=models.CharField(blank=True, db_default='', default='', max_length=64),
        ),
        migrations.CreateModel(
            name='AccountSettings',
            fields=[
                ('owner', models.OneToOneField(on_delete=models.CASCADE, primary_key=True, related_name='+', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('time_zone', models.CharField(blank=True, default='', max_length=64)),
            ],
            options={
                'abstract': False,
            },
        ),
    ]
