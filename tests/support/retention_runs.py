"""Complete runs of retention."""

from django.utils import timezone

from chats.actions import retention
from chats.models import RetentionRun


def run_all() -> RetentionRun:
    """Run the retention from start to end."""
    run = retention.start_retention_run(actor="system", now=timezone.now())
    retention.continue_retention_run(clock=timezone.now, is_closing=lambda: False)
    run.refresh_from_db()
    assert not run.is_open
    return run
