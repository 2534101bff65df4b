"""Store uploaded files, and bytes that are to be deleted."""

import uuid
from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Two new tables."""

    dependencies: ClassVar = [
        ('chats', '0069_label_counts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name='FileRemoval',
            fields=[
                ('path', models.CharField(max_length=200, primary_key=True, serialize=False)),
                ('due_at', models.DateTimeField(db_index=True)),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='StoredFile',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('kind', models.CharField(choices=[('image', 'Image'), ('text', 'Text'), ('csv', 'CSV table'), ('html', 'Web page'), ('pdf', 'PDF'), ('docx', 'Word document'), ('xlsx', 'Excel workbook')], max_length=8)),
                ('media_type', models.CharField(max_length=100)),
                ('size', models.PositiveBigIntegerField()),
                ('sha256', models.CharField(max_length=64)),
                ('path', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(db_index=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('owner', 'sha256'), name='file_content_once')],
            },
        ),
    ]
