"""Counts of days, balances of compactions, and the currency of what a summary cost."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the rows, none of them, and the column."""

    dependencies: ClassVar = [
        ('chats', '0037_retention'),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name='compaction',
            name='currency',
            field=models.CharField(blank=True, db_default='', default='', max_length=8),
        ),
        migrations.CreateModel(
            name='DailyCount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('model', models.CharField(blank=True, default='', max_length=120)),
                ('policy', models.CharField(blank=True, default='', max_length=60)),
                ('version', models.PositiveIntegerField(default=0)),
                ('currency', models.CharField(blank=True, default='', max_length=8)),
                ('replies', models.PositiveBigIntegerField(default=0)),
                ('stopped', models.PositiveBigIntegerField(default=0)),
                ('failed', models.PositiveBigIntegerField(default=0)),
                ('failures', models.JSONField(default=dict)),
                ('first_tokens', models.JSONField(default=dict)),
                ('calls', models.PositiveBigIntegerField(default=0)),
                ('unreported', models.PositiveBigIntegerField(default=0)),
                ('input', models.PositiveBigIntegerField(default=0)),
                ('cached', models.PositiveBigIntegerField(default=0)),
                ('written', models.PositiveBigIntegerField(default=0)),
                ('output', models.PositiveBigIntegerField(default=0)),
                ('cost', models.DecimalField(decimal_places=10, default=0, max_digits=24)),
                ('unpriced', models.PositiveBigIntegerField(default=0)),
                ('compactions', models.JSONField(default=dict)),
                ('summaries', models.PositiveBigIntegerField(default=0)),
                ('summary_cost', models.DecimalField(decimal_places=10, default=0, max_digits=24)),
                ('summaries_unpriced', models.PositiveBigIntegerField(default=0)),
                ('governed', models.PositiveBigIntegerField(default=0)),
                ('saved_tokens', models.BigIntegerField(default=0)),
                ('saved', models.DecimalField(decimal_places=10, default=0, max_digits=24)),
                ('saved_unpriced', models.PositiveBigIntegerField(default=0)),
                ('lost_tokens', models.PositiveBigIntegerField(default=0)),
                ('lost', models.DecimalField(decimal_places=10, default=0, max_digits=24)),
                ('lost_unpriced', models.PositiveBigIntegerField(default=0)),
            ],
            options={
                'verbose_name': 'daily count',
                'indexes': [models.Index(fields=['policy', 'day'], name='counts_of_policy')],
                'constraints': [models.UniqueConstraint(fields=('day', 'model', 'policy', 'version', 'currency'), name='counted_once_a_day')],
            },
        ),
        migrations.CreateModel(
            name='CompactionBalance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('currency', models.CharField(blank=True, default='', max_length=8)),
                ('calls', models.PositiveBigIntegerField(default=0)),
                ('unreported', models.PositiveBigIntegerField(default=0)),
                ('saved_tokens', models.BigIntegerField(default=0)),
                ('saved', models.DecimalField(decimal_places=10, default=0, max_digits=24)),
                ('saved_unpriced', models.PositiveBigIntegerField(default=0)),
                ('lost_tokens', models.PositiveBigIntegerField(default=0)),
                ('lost', models.DecimalField(decimal_places=10, default=0, max_digits=24)),
                ('lost_unpriced', models.PositiveBigIntegerField(default=0)),
                ('compaction', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='balances', to='chats.compaction')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('compaction', 'currency'), name='balance_once')],
            },
        ),
    ]
