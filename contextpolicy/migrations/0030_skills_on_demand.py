"""Skills on demand, and skills of groups and teams."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """New columns, with which existing skills keep their use; owners of groups."""

    dependencies: ClassVar = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('contextpolicy', '0029_takes_images'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name='GroupOwner',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
            ],
        ),
        migrations.AddField(
            model_name='skill',
            name='description',
            field=models.CharField(blank=True, db_default='', default='', max_length=1024, verbose_name='description'),
        ),
        migrations.AddField(
            model_name='skill',
            name='group',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='skills', to='auth.group', verbose_name='group'),
        ),
        migrations.AddField(
            model_name='skill',
            name='mode',
            field=models.CharField(choices=[('always', 'Always: the text is in each prompt'), ('on_demand', 'On demand: the model loads the text')], db_default='always', default='on_demand', max_length=10, verbose_name='mode'),
        ),
        migrations.AddField(
            model_name='skill',
            name='team_id',
            field=models.UUIDField(blank=True, db_index=True, null=True, verbose_name='team'),
        ),
        migrations.AddConstraint(
            model_name='skill',
            constraint=models.CheckConstraint(condition=models.Q(('group', None), ('team_id', None), _connector='OR'), name='skill_has_one_place'),
        ),
        migrations.AddField(
            model_name='groupowner',
            name='group',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='owners', to='auth.group'),
        ),
        migrations.AddField(
            model_name='groupowner',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='owned_groups', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='groupowner',
            constraint=models.UniqueConstraint(fields=('group', 'user'), name='group_owner_once'),
        ),
    ]
