"""Reword labels of fields of the administration."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Labels only; no column changes."""

    dependencies: ClassVar = [
        ('contextpolicy', '0027_reword_labels'),
    ]

    operations: ClassVar = [
        migrations.AlterModelOptions(
            name='blastradius',
            options={'ordering': ['-started_at'], 'verbose_name': 'count of affected chats', 'verbose_name_plural': 'counts of affected chats'},
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='base',
            field=models.PositiveIntegerField(verbose_name='compared with version'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='changed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='would change'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='failed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='could not be evaluated'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='in_use',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats in use'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='judged',
            field=models.PositiveBigIntegerField(default=0, verbose_name='chats checked'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='place',
            field=models.CharField(choices=[('instance', 'Everyone'), ('assigned', 'Current assignments'), ('removed', 'Nowhere (as if it were removed)')], max_length=10, verbose_name='counted chats'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='changed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='would change'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='compactions_now',
            field=models.PositiveBigIntegerField(default=0, verbose_name='compactions, active version'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='compactions_then',
            field=models.PositiveBigIntegerField(default=0, verbose_name='compactions, draft'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='ends_at',
            field=models.DateTimeField(verbose_name='planned end'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='place',
            field=models.CharField(choices=[('instance', 'Everyone'), ('assigned', 'Current assignments')], max_length=10, verbose_name='evaluated chats'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='share',
            field=models.PositiveSmallIntegerField(default=100, verbose_name='share of branches (%)'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='tokens_now',
            field=models.PositiveBigIntegerField(default=0, verbose_name='prompt tokens, active version'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='tokens_then',
            field=models.PositiveBigIntegerField(default=0, verbose_name='prompt tokens, draft'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='turns',
            field=models.PositiveBigIntegerField(default=0, verbose_name='replies'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='unknown',
            field=models.PositiveBigIntegerField(default=0, verbose_name='not evaluated'),
        ),
    ]
