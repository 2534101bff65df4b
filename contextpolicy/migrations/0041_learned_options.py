from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('contextpolicy', '0040_reword_help_of_models_2'),
    ]

    operations = [
        migrations.AddField(
            model_name='modelspec',
            name='learned_options',
            field=models.JSONField(db_default={}, default=dict, editable=False),
        ),
    ]
