"""Reword labels of choices and help texts of models and skills."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Labels only; no column changes."""

    dependencies: ClassVar = [
        ('contextpolicy', '0026_label_fields'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='blastradius',
            name='place',
            field=models.CharField(choices=[('instance', 'Everyone'), ('assigned', 'Current assignments'), ('removed', 'Nowhere (as if it were removed)')], max_length=10, verbose_name='place'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='place',
            field=models.CharField(choices=[('instance', 'Everyone'), ('assigned', 'Current assignments')], max_length=10, verbose_name='place'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='context_window',
            field=models.PositiveIntegerField(blank=True, help_text="Context window of the model in tokens. Empty: only the policy's token budget limits prompts.", null=True, verbose_name='context window'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='currency',
            field=models.CharField(blank=True, db_default='', default='', help_text='Currency of the prices of this model, such as “USD” or “€”.', max_length=8, verbose_name='currency'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='input_price',
            field=models.DecimalField(blank=True, decimal_places=6, help_text='Price per million tokens, in the currency below. Empty: unknown.', max_digits=12, null=True, verbose_name='input price'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='name',
            field=models.CharField(help_text="Name of the model in the provider's API, such as “gpt-4o-mini”.", max_length=200, verbose_name='name'),
        ),
        migrations.AlterField(
            model_name='skill',
            name='enabled',
            field=models.BooleanField(default=True, help_text='If off, no prompt includes this skill, even if a policy selects it.', verbose_name='enabled'),
        ),
    ]
