"""Requests of programs that were passed on as they came, and keys that ask for it."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the rows, none of them; no key asks for it."""

    dependencies: ClassVar = [
        ('chats', '0032_webhooks'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='apikey',
            name='unmanaged',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.CreateModel(
            name='PassedOn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('chat.completions', 'Chat completions'), ('responses', 'Responses'), ('embeddings', 'Embeddings')], max_length=20)),
                ('why', models.CharField(choices=[('key', 'The key says so'), ('policy', 'The policy says so'), ('header', 'The request asked for it'), ('kind', 'Requests of this kind have no chat')], max_length=10)),
                ('model_slug', models.CharField(max_length=120)),
                ('model_name', models.CharField(max_length=200)),
                ('outcome', models.CharField(choices=[('open', 'Call not over'), ('ok', 'Answered'), ('failed', 'Failed'), ('stopped', 'Stopped'), ('lost', 'The worker was lost')], default='open', max_length=8)),
                ('error_code', models.CharField(blank=True, default='', max_length=60)),
                ('usage', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('api_key', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.apikey')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(fields=['owner', 'created_at'], name='passed_on_of_owner'), models.Index(condition=models.Q(('outcome', 'open')), fields=['api_key', 'created_at'], name='passed_on_open')],
            },
        ),
    ]
