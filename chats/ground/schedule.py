"""The entries of the schedule, one for each due job. Imports neither Django nor Celery.

A due job resumes work after a worker died or a broker message was lost, or starts
scheduled work. The functions are in `chats.background.due_jobs`.
"""

from collections.abc import Mapping

# The period of each entry, in multiples of `SWEEP_EVERY`. On an idle instance each message costs
# more than a query, so only urgent jobs run often.
PERIODS: Mapping[str, int] = {
    "replies": 1,
    "summaries": 2,
    "webhooks": 2,
    "search": 3,
    "counts": 6,
    "imports": 6,
    "unread_files": 2,
    "embeddings": 3,
    "simulations": 6,
    "tool_consents": 6,
    "tool_servers": 6,
    "warm_ups": 30,
    "titles": 30,
    "preferences": 12,
    "ledger_lines": 3,
    "ledger": 12,
    "erasures": 6,
    "kept_texts": 30,
    "retention": 30,
    "removed_files": 30,
    "unused_files": 30,
    "passed_on_requests": 30,
    "old_logprobs": 30,
    "old_requests": 30,
}
# The entry with the shortest period: sending it is the heartbeat of the schedule.
HEARTBEAT = "replies"


def name_task(entry: str) -> str:
    """Return the name of the Celery task of an entry of the schedule."""
    return f"chats.due.{entry}"
