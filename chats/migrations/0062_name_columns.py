import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chats', '0061_account_language'),
        ('contextpolicy', '0023_calibration_samples'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='compaction',
            options={'verbose_name': 'compaction', 'verbose_name_plural': 'compactions'},
        ),
        migrations.AlterModelOptions(
            name='dailycount',
            options={'verbose_name': 'daily count', 'verbose_name_plural': 'daily counts'},
        ),
        migrations.AlterModelOptions(
            name='provideraccount',
            options={'ordering': ['name'], 'verbose_name': 'provider account', 'verbose_name_plural': 'provider accounts'},
        ),
        migrations.AlterModelOptions(
            name='receipt',
            options={'verbose_name': 'receipt', 'verbose_name_plural': 'receipts'},
        ),
        migrations.AlterModelOptions(
            name='team',
            options={'verbose_name': 'team', 'verbose_name_plural': 'teams'},
        ),
        migrations.AlterModelOptions(
            name='turn',
            options={'verbose_name': 'turn', 'verbose_name_plural': 'turns'},
        ),
        migrations.AlterField(
            model_name='compaction',
            name='asked_by',
            field=models.CharField(blank=True, default='worker', max_length=60, verbose_name='asked by'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='attempt',
            field=models.PositiveIntegerField(default=1, verbose_name='attempt'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='base',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.compaction', verbose_name='base'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='context_revision',
            field=models.PositiveBigIntegerField(default=0, verbose_name='context revision'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='created_at',
            field=models.DateTimeField(verbose_name='created at'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='displaced',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.compaction', verbose_name='displaced'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='effective_policy',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='contextpolicy.effectivepolicy', verbose_name='effective policy'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='erased_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='erased at'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='exceptions',
            field=models.JSONField(default=list, verbose_name='exceptions'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='finished_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='finished at'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='from_seq',
            field=models.PositiveBigIntegerField(verbose_name='from seq'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='kind',
            field=models.CharField(choices=[('summary', 'Summary'), ('window', 'Window')], max_length=8, verbose_name='kind'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='model_name',
            field=models.CharField(blank=True, default='', max_length=200, verbose_name='model name'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='needs_approval',
            field=models.BooleanField(default=False, verbose_name='needs approval'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='previous',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.compaction', verbose_name='previous'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='prompt_version',
            field=models.CharField(blank=True, default='', max_length=40, verbose_name='prompt version'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='published_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='published at'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='reason',
            field=models.CharField(blank=True, default='', max_length=500, verbose_name='reason'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='revises',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='revisions', to='chats.compaction', verbose_name='revises'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='rung',
            field=models.CharField(blank=True, default='', max_length=20, verbose_name='rung'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='source_count',
            field=models.PositiveIntegerField(default=0, verbose_name='source count'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='source_digest',
            field=models.CharField(blank=True, default='', max_length=64, verbose_name='source digest'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='status',
            field=models.CharField(choices=[('preparing', 'Being written'), ('prepared', 'Ready'), ('published', 'In force'), ('undone', 'Undone'), ('replaced', 'Replaced by a later one'), ('overtaken', 'Overtaken'), ('rejected', 'Rejected'), ('failed', 'Failed')], max_length=10, verbose_name='status'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='summary_tokens',
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name='summary tokens'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='text_commitment',
            field=models.CharField(blank=True, default='', max_length=64, verbose_name='text commitment'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='to_seq',
            field=models.PositiveBigIntegerField(verbose_name='to seq'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='tokens_after',
            field=models.PositiveIntegerField(default=0, verbose_name='tokens after'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='tokens_before',
            field=models.PositiveIntegerField(default=0, verbose_name='tokens before'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='trigger',
            field=models.CharField(max_length=20, verbose_name='trigger'),
        ),
        migrations.AlterField(
            model_name='compaction',
            name='usage',
            field=models.JSONField(blank=True, default=dict, verbose_name='usage'),
        ),
        migrations.AlterField(
            model_name='dailycount',
            name='currency',
            field=models.CharField(blank=True, default='', max_length=8, verbose_name='currency'),
        ),
        migrations.AlterField(
            model_name='dailycount',
            name='day',
            field=models.DateField(verbose_name='day'),
        ),
        migrations.AlterField(
            model_name='dailycount',
            name='policy',
            field=models.CharField(blank=True, default='', max_length=60, verbose_name='policy'),
        ),
        migrations.AlterField(
            model_name='dailycount',
            name='version',
            field=models.PositiveIntegerField(default=0, verbose_name='version'),
        ),
        migrations.AlterField(
            model_name='kepttext',
            name='kind',
            field=models.CharField(choices=[('chat_title', 'Chat title'), ('system_text', 'System text of a chat'), ('team_task', 'Team task of a chat'), ('instructions', 'Personal instructions'), ('folder_name', 'Folder name')], max_length=12, verbose_name='kind'),
        ),
        migrations.AlterField(
            model_name='kepttext',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='kept_texts', to=settings.AUTH_USER_MODEL, verbose_name='owner'),
        ),
        migrations.AlterField(
            model_name='kepttext',
            name='replaced_at',
            field=models.DateTimeField(verbose_name='replaced at'),
        ),
        migrations.AlterField(
            model_name='kepttext',
            name='replaced_by',
            field=models.CharField(max_length=200, verbose_name='replaced by'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='base_url',
            field=models.CharField(blank=True, default='', max_length=500, verbose_name='base url'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='enabled',
            field=models.BooleanField(default=True, verbose_name='enabled'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='kind',
            field=models.CharField(choices=[('openai', 'OpenAI-compatible server'), ('anthropic', 'Anthropic’s interface (Messages)'), ('demo', 'Demo model (no server, no key)')], default='openai', max_length=20, verbose_name='kind'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='name',
            field=models.CharField(max_length=200, verbose_name='name'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='paused_reason',
            field=models.CharField(blank=True, default='', editable=False, max_length=200, verbose_name='paused reason'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='paused_until',
            field=models.DateTimeField(blank=True, editable=False, null=True, verbose_name='paused until'),
        ),
        migrations.AlterField(
            model_name='provideraccount',
            name='slug',
            field=models.SlugField(max_length=60, unique=True, verbose_name='slug'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='attempt',
            field=models.PositiveIntegerField(verbose_name='attempt'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='call',
            field=models.PositiveIntegerField(default=1, verbose_name='call'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='commitment',
            field=models.CharField(blank=True, default='', max_length=64, verbose_name='commitment'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='created_at',
            field=models.DateTimeField(verbose_name='created at'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='effective_policy',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='contextpolicy.effectivepolicy', verbose_name='effective policy'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='error_code',
            field=models.CharField(blank=True, default='', max_length=60, verbose_name='error code'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='finished_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='finished at'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='last_seq',
            field=models.PositiveBigIntegerField(verbose_name='last seq'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='model_name',
            field=models.CharField(max_length=200, verbose_name='model name'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='outcome',
            field=models.CharField(choices=[('open', 'Call not over'), ('ok', 'Answered'), ('failed', 'Failed'), ('stopped', 'Stopped'), ('lost', 'The worker was lost')], default='open', max_length=8, verbose_name='outcome'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='prompt_sha256',
            field=models.CharField(blank=True, max_length=64, verbose_name='prompt sha256'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='prompt_tokens',
            field=models.PositiveIntegerField(verbose_name='prompt tokens'),
        ),
        migrations.AlterField(
            model_name='receipt',
            name='step',
            field=models.PositiveIntegerField(verbose_name='step'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_busy',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats busy'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_erased',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats erased'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_failed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats failed'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='chats_held',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats held'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='digest',
            field=models.CharField(max_length=64, verbose_name='digest'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='finished_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='finished at'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='messages_erased',
            field=models.PositiveBigIntegerField(default=0, verbose_name='messages erased'),
        ),
        migrations.AlterField(
            model_name='retentionrun',
            name='started_at',
            field=models.DateTimeField(verbose_name='started at'),
        ),
        migrations.AlterField(
            model_name='team',
            name='created_at',
            field=models.DateTimeField(verbose_name='created at'),
        ),
        migrations.AlterField(
            model_name='team',
            name='deleted_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='deleted at'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='attempt',
            field=models.PositiveIntegerField(default=0, verbose_name='attempt'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='effective_policy',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='contextpolicy.effectivepolicy', verbose_name='effective policy'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='error_code',
            field=models.CharField(blank=True, default='', max_length=60, verbose_name='error code'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='error_sentence',
            field=models.CharField(blank=True, default='', max_length=500, verbose_name='error sentence'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='finished_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='finished at'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='first_token_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='first token at'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='handed_back',
            field=models.BooleanField(default=False, verbose_name='handed back'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='model_name',
            field=models.CharField(blank=True, default='', max_length=200, verbose_name='model name'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='queued_at',
            field=models.DateTimeField(verbose_name='queued at'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='started_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='started at'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='status',
            field=models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('completed', 'Completed'), ('stopped', 'Stopped'), ('failed', 'Failed'), ('absorbed', 'Taken up by another turn')], default='queued', max_length=10, verbose_name='status'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='step',
            field=models.PositiveIntegerField(default=0, verbose_name='step'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='stop_requested_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='stop requested at'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='usage',
            field=models.JSONField(blank=True, default=dict, verbose_name='usage'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='waiting_until',
            field=models.DateTimeField(blank=True, null=True, verbose_name='waiting until'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='worker',
            field=models.CharField(blank=True, default='', max_length=100, verbose_name='worker'),
        ),
    ]
