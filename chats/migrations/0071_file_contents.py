"""Store the text of uploaded files in chunks, and copies of images."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """One table, and columns for the reading of existing files by a worker."""

    dependencies: ClassVar = [
        ('chats', '0070_stored_files'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name='FileChunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('start', models.PositiveIntegerField()),
                ('page', models.PositiveIntegerField(default=0)),
                ('text', models.TextField()),
                ('words', models.TextField()),
            ],
        ),
        migrations.AddField(
            model_name='storedfile',
            name='characters',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='code',
            field=models.CharField(blank=True, default='', max_length=40),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='copy_path',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='copy_sha256',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='copy_size',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='copy_type',
            field=models.CharField(blank=True, default='', max_length=20),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='height',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='is_whole',
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='lease_token',
            field=models.UUIDField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='lease_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='pages',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='state',
            field=models.CharField(choices=[('pending', 'Being read'), ('ready', 'Ready'), ('failed', 'Failed')], default='pending', max_length=8),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='tokens',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='tries',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='width',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddIndex(
            model_name='storedfile',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['created_at'], name='file_pending'),
        ),
        migrations.AddField(
            model_name='filechunk',
            name='file',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='chats.storedfile'),
        ),
        migrations.AddConstraint(
            model_name='filechunk',
            constraint=models.UniqueConstraint(fields=('file', 'number'), name='chunk_of_file_once'),
        ),
    ]
