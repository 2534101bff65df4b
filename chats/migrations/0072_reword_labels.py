"""Reword labels of fields of the administration."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Labels only; no column changes."""

    dependencies: ClassVar = [
        ('chats', '0071_file_contents'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='compaction',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterField(
            model_name='team',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='id',
            field=models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False, verbose_name='ID'),
        ),
        migrations.AlterModelOptions(
            name='retentionrun',
            options={'ordering': ['-started_at'], 'verbose_name': 'retention run', 'verbose_name_plural': 'retention runs'},
        ),
        migrations.AlterField(
            model_name='compaction',
            name='asked_by',
            field=models.CharField(blank=True, default='worker', max_length=60, verbose_name='requested by'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='base',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.compaction', verbose_name='based on'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='displaced',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.compaction', verbose_name='restored by an undo'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='exceptions',
            field=models.JSONField(default=list, verbose_name='messages not covered'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='from_seq',
            field=models.PositiveBigIntegerField(verbose_name='first message'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='needs_approval',
            field=models.BooleanField(default=False, verbose_name='approval required'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='previous',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.compaction', verbose_name='continued summary'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='revises',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='revisions', to='chats.compaction', verbose_name='corrected summary'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='rung',
            field=models.CharField(blank=True, default='', max_length=20, verbose_name='method'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='source_count',
            field=models.PositiveIntegerField(default=0, verbose_name='covered messages'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='source_digest',
            field=models.CharField(blank=True, default='', max_length=64, verbose_name='digest of the covered messages'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='text_commitment',
            field=models.CharField(blank=True, default='', max_length=64, verbose_name='commitment to the text'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='to_seq',
            field=models.PositiveBigIntegerField(verbose_name='last message'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='tokens_after',
            field=models.PositiveIntegerField(default=0, verbose_name='prompt tokens after'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='tokens_before',
            field=models.PositiveIntegerField(default=0, verbose_name='prompt tokens before'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='usage',
            field=models.JSONField(blank=True, default=dict, verbose_name='token usage'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='base_url',
            field=models.CharField(blank=True, default='', max_length=500, verbose_name='base URL'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='paused_reason',
            field=models.CharField(blank=True, default='', editable=False, max_length=200, verbose_name='reason for the pause'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='last_seq',
            field=models.PositiveBigIntegerField(verbose_name='last message'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='prompt_sha256',
            field=models.CharField(blank=True, max_length=64, verbose_name='SHA-256 of the prompt'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats checked'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_busy',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats with a running reply'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_failed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats with an error'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_held',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats under a hold'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='error_sentence',
            field=models.CharField(blank=True, default='', max_length=500, verbose_name='error message'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='handed_back',
            field=models.BooleanField(default=False, verbose_name='returned to the queue'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='usage',
            field=models.JSONField(blank=True, default=dict, verbose_name='token usage'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='worker',
            field=models.CharField(blank=True, default='', max_length=100, verbose_name='worker process'),
        ),
    ]
