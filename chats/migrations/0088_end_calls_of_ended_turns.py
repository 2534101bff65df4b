"""End the tool calls of turns that ended without them. Until now they stayed in progress.

A call that was started may have happened: its outcome is unknown. Other calls were not made. The
stored copies of such steps are deleted. The ledger gets no entry, because it is not known when
these calls ended. Backwards nothing is done.
"""

from django.db import migrations

ENDED = ("completed", "failed", "stopped", "absorbed")


def end_open_calls(apps, schema_editor):
    ToolCall = apps.get_model("chats", "ToolCall")
    calls = ToolCall.objects.using(schema_editor.connection.alias)
    unended = calls.filter(outcome="open", turn__status__in=ENDED)
    unended.filter(attempt__gt=0).update(outcome="unknown", code="worker_lost", content="")
    unended.filter(consent="waiting").update(consent="denied")
    unended.update(outcome="refused", code="stopped", content="")
    ToolStep = apps.get_model("chats", "ToolStep")
    ToolStep.objects.using(schema_editor.connection.alias).filter(turn__status__in=ENDED).delete()


class Migration(migrations.Migration):
    dependencies = [("chats", "0087_reword_labels_3")]
    operations = [migrations.RunPython(end_open_calls, migrations.RunPython.noop)]
