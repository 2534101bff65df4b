"""Give fields of the administration labels that can be translated."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Labels only; no column changes."""

    dependencies: ClassVar = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('contextpolicy', '0025_counts_of_removals'),
    ]

    operations: ClassVar = [
        migrations.AlterField(
            model_name='auditevent',
            name='chat_id',
            field=models.UUIDField(blank=True, db_index=True, null=True, verbose_name='chat'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='hash',
            field=models.CharField(max_length=64, verbose_name='hash'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='previous_hash',
            field=models.CharField(max_length=64, verbose_name='previous hash'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='scope',
            field=models.CharField(max_length=50, verbose_name='chain'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='seq',
            field=models.PositiveBigIntegerField(verbose_name='row'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='turn_id',
            field=models.UUIDField(blank=True, db_index=True, null=True, verbose_name='turn'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='type',
            field=models.CharField(max_length=60, verbose_name='event'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='base',
            field=models.PositiveIntegerField(verbose_name='based on'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='changed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='changed'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='digest',
            field=models.CharField(max_length=64, verbose_name='digest'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='failed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='failed'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='finished_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='finished'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='group',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='auth.group', verbose_name='group'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='in_use',
            field=models.PositiveBigIntegerField(default=0, verbose_name='in use'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='judged',
            field=models.PositiveBigIntegerField(default=0, verbose_name='checked'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='place',
            field=models.CharField(choices=[('instance', 'Everyone'), ('assigned', 'Where it is assigned'), ('removed', 'Nowhere: as if it were removed')], max_length=10, verbose_name='place'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='policy',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='radii', to='contextpolicy.contextpolicy', verbose_name='policy'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='started_at',
            field=models.DateTimeField(verbose_name='started'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='state',
            field=models.CharField(choices=[('counting', 'Counting'), ('stopped', 'Stopped'), ('finished', 'Finished'), ('void', 'Void')], default='counting', max_length=10, verbose_name='state'),
        ),
        migrations.AlterField(
            model_name='blastradius',
            name='would_refuse',
            field=models.PositiveBigIntegerField(default=0, verbose_name='would be refused'),
        ),
        migrations.AlterField(
            model_name='contextpolicy',
            name='description',
            field=models.TextField(blank=True, default='', max_length=2000, verbose_name='description'),
        ),
        migrations.AlterField(
            model_name='contextpolicy',
            name='name',
            field=models.CharField(max_length=200, verbose_name='name'),
        ),
        migrations.AlterField(
            model_name='contextpolicy',
            name='retired',
            field=models.BooleanField(default=False, verbose_name='retired'),
        ),
        migrations.AlterField(
            model_name='contextpolicy',
            name='slug',
            field=models.SlugField(max_length=60, unique=True, verbose_name='slug'),
        ),
        migrations.AlterField(
            model_name='effectivepolicy',
            name='digest',
            field=models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name='digest'),
        ),
        migrations.AlterField(
            model_name='effectivepolicy',
            name='label',
            field=models.CharField(blank=True, default='', max_length=250, verbose_name='label'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='changed',
            field=models.PositiveBigIntegerField(default=0, verbose_name='changed'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='compactions_now',
            field=models.PositiveBigIntegerField(default=0, verbose_name='compactions now'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='compactions_then',
            field=models.PositiveBigIntegerField(default=0, verbose_name='compactions then'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='ended_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='ended'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='ends_at',
            field=models.DateTimeField(verbose_name='end'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='place',
            field=models.CharField(choices=[('instance', 'Everyone'), ('assigned', 'Where it is assigned')], max_length=10, verbose_name='place'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='policy',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='evaluations', to='contextpolicy.contextpolicy', verbose_name='policy'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='share',
            field=models.PositiveSmallIntegerField(default=100, verbose_name='share'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='started_at',
            field=models.DateTimeField(verbose_name='started'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='state',
            field=models.CharField(choices=[('open', 'Running'), ('ended', 'Ended'), ('promoted', 'Published')], default='open', max_length=10, verbose_name='state'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='tokens_now',
            field=models.PositiveBigIntegerField(default=0, verbose_name='tokens now'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='tokens_then',
            field=models.PositiveBigIntegerField(default=0, verbose_name='tokens then'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='turns',
            field=models.PositiveBigIntegerField(default=0, verbose_name='turns'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='unknown',
            field=models.PositiveBigIntegerField(default=0, verbose_name='unknown'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='version',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='evaluations', to='contextpolicy.policyversion', verbose_name='version'),
        ),
        migrations.AlterField(
            model_name='evaluation',
            name='would_refuse',
            field=models.PositiveBigIntegerField(default=0, verbose_name='would be refused'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='case',
            field=models.CharField(max_length=120, verbose_name='case'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='ends_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='end'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='level',
            field=models.CharField(choices=[('instance', 'Everyone'), ('group', 'A group'), ('user', 'A person'), ('chat', 'One chat')], max_length=10, verbose_name='level'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='placed_at',
            field=models.DateTimeField(verbose_name='placed'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='placed_by',
            field=models.CharField(max_length=200, verbose_name='placed by'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='reason',
            field=models.CharField(max_length=500, verbose_name='reason'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='release_reason',
            field=models.CharField(blank=True, default='', max_length=500, verbose_name='reason for the release'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='released_at',
            field=models.DateTimeField(blank=True, null=True, verbose_name='released'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='released_by',
            field=models.CharField(blank=True, default='', max_length=200, verbose_name='released by'),
        ),
        migrations.AlterField(
            model_name='legalhold',
            name='review_on',
            field=models.DateField(blank=True, null=True, verbose_name='review date'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='cannot_stream',
            field=models.BooleanField(default=False, help_text='The server does not support streaming. Replies appear when they are complete.', verbose_name='no streaming'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='context_window',
            field=models.PositiveIntegerField(blank=True, help_text="In tokens. Empty: only the policy's budget applies.", null=True, verbose_name='context window'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='currency',
            field=models.CharField(blank=True, db_default='', default='', help_text='Currency of these prices, such as “USD”.', max_length=8, verbose_name='currency'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='enabled',
            field=models.BooleanField(default=True, verbose_name='enabled'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='input_price',
            field=models.DecimalField(blank=True, decimal_places=6, help_text='Per million tokens.', max_digits=12, null=True, verbose_name='input price'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='is_default',
            field=models.BooleanField(default=False, verbose_name='default'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='label',
            field=models.CharField(blank=True, default='', max_length=200, verbose_name='label'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='learned_window',
            field=models.PositiveIntegerField(blank=True, editable=False, null=True, verbose_name='learned window'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='max_output',
            field=models.PositiveIntegerField(blank=True, null=True, verbose_name='maximum output'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='name',
            field=models.CharField(help_text="The name the provider's API expects.", max_length=200, verbose_name='name'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='output_price',
            field=models.DecimalField(blank=True, decimal_places=6, max_digits=12, null=True, verbose_name='output price'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='provider',
            field=models.SlugField(max_length=60, verbose_name='provider'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='slug',
            field=models.SlugField(max_length=120, unique=True, verbose_name='slug'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='strict_roles',
            field=models.BooleanField(default=False, help_text='The server requires alternating roles that begin with the user. Consecutive messages of one role are sent as one message.', verbose_name='strict roles'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='supports_tools',
            field=models.BooleanField(default=True, verbose_name='supports tools'),
        ),
        migrations.AlterField(
            model_name='modelspec',
            name='thinking',
            field=models.CharField(blank=True, choices=[('', 'Default of the model'), ('adaptive', 'Chosen by the model'), ('1024', 'Up to 1,024 tokens'), ('4096', 'Up to 4,096 tokens'), ('16384', 'Up to 16,384 tokens')], default='', help_text='Maximum thinking before a reply, for models with Anthropic’s API. Thinking counts as tokens of the reply.', max_length=10, verbose_name='reasoning'),
        ),
        migrations.AlterField(
            model_name='policyassignment',
            name='level',
            field=models.CharField(choices=[('instance', 'Everyone'), ('group', 'A group'), ('user', 'A person'), ('chat', 'One chat')], max_length=10, verbose_name='level'),
        ),
        migrations.AlterField(
            model_name='skill',
            name='enabled',
            field=models.BooleanField(default=True, help_text='If off, no prompt includes it.', verbose_name='enabled'),
        ),
        migrations.AlterField(
            model_name='skill',
            name='name',
            field=models.CharField(max_length=100, verbose_name='name'),
        ),
        migrations.AlterField(
            model_name='skill',
            name='slug',
            field=models.SlugField(max_length=60, unique=True, verbose_name='slug'),
        ),
        migrations.AlterField(
            model_name='skill',
            name='text',
            field=models.TextField(help_text='At most 10,000 characters. Do not include secrets.', verbose_name='text'),
        ),
        migrations.AlterField(
            model_name='skill',
            name='updated_at',
            field=models.DateTimeField(editable=False, verbose_name='updated'),
        ),
    ]
