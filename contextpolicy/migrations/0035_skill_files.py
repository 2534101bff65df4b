"""Text files of skills."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """One new column and one new table."""

    dependencies: ClassVar = [
        ('contextpolicy', '0034_hosted_tools_of_models'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='skill',
            name='files',
            field=models.JSONField(blank=True, default=list, editable=False, null=True, verbose_name='files'),
        ),
        migrations.CreateModel(
            name='SkillFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200)),
                ('text', models.TextField(blank=True)),
                ('sha256', models.CharField(max_length=64)),
                ('skill', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='stored_files', to='contextpolicy.skill')),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(fields=('skill', 'name'), name='skill_file_once')],
            },
        ),
    ]
