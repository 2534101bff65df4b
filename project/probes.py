"""`/healthz`: this process is alive. `/readyz`: everything a message needs is there."""

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import Error as DatabaseError
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from redis.exceptions import RedisError

from chats.checkpoints import upkeep
from chats.counts.searches import count_searches
from chats.ground import broker_facts
from chats.ground.secrets import SecretUnreadable, decrypt
from chats.models import ProviderAccount, SkippedRow
from chats.streams.connection import STREAMS
from contextpolicy.models import LedgerKey
from project.versions import newer_migrations

KEEPS_ALL = "noeviction"
# So many stored keys of providers are tried by each request.
MOST_KEYS = 20
UNREADABLE = "stored keys cannot be decrypted: restore the encryption key that belongs to the data"


def healthz(_request: HttpRequest) -> JsonResponse:
    """Answer that the process is alive."""
    return JsonResponse({"status": "ok"})


def readyz(_request: HttpRequest) -> JsonResponse:
    """Answer 200 when the database is migrated and the broker there, else 503 with the faults.

    `warnings` tells what a person has to look at while messages are still accepted.
    """
    faults = {name: fault for name, check in CHECKS.items() if (fault := check())}
    warnings = [] if "database" in faults else database_warnings()
    warnings += [] if "broker" in faults else broker_warnings()
    state = "unavailable" if faults else "degraded" if warnings else "ok"
    status = {"status": state, "faults": faults, "warnings": warnings}
    return JsonResponse(status, status=503 if faults else 200)


def database_fault() -> str:
    """Say why the database cannot be used; empty when it can."""
    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        newer = newer_migrations(connection)
    except DatabaseError:
        return "no connection"
    if newer:
        return "a newer version has migrated it"
    return "migrations are missing" if plan else ""


def broker_fault() -> str:
    """Say why the broker cannot be used. Messages are accepted all the same, replies wait."""
    try:
        policy = eviction_policy()
    except (RedisError, OSError):
        return "no connection"
    return "" if policy in {KEEPS_ALL, ""} else f"it may evict tasks ({policy})"


def eviction_policy() -> str:
    """Ask what the broker does when its memory is full; empty if it does not say.

    Raises RedisError or OSError.
    """
    return broker_facts.eviction_policy(settings.REDIS_URL)


def broker_warnings() -> list[str]:
    """Return a warning if the broker writes to disk, where erased text would remain."""
    try:
        return [broker_facts.DISK] if broker_facts.writes_to_disk(settings.REDIS_URL) else []
    except (RedisError, OSError):
        return []


def database_warnings() -> list[str]:
    """Return what the database tells of: the audit ledger, and rows that jobs skipped."""
    now = timezone.now()
    late = count_searches(now=now).warning
    warnings = ledger_warnings() + encryption_warnings() + SkippedRow.warnings(now=now)
    return [*warnings, late] if late else warnings


def encryption_warnings() -> list[str]:
    """Return a warning if stored keys cannot be decrypted with the encryption keys set here."""
    signing = LedgerKey.objects.exclude(encrypted_private="").order_by("-pk")
    stored = [
        *signing.values_list("encrypted_private", flat=True)[:1],
        *ProviderAccount.objects.exclude(encrypted_key="")
        .order_by("-pk")
        .values_list("encrypted_key", flat=True)[:MOST_KEYS],
    ]
    unreadable = 0
    for token in stored:
        try:
            decrypt(token)
        except SecretUnreadable:
            unreadable += 1
    return [UNREADABLE] if unreadable else []


def ledger_warnings() -> list[str]:
    """Say that the audit ledger needs somebody's eye; its page says why, to those who may know."""
    is_late = bool(upkeep.warnings(now=timezone.now()))
    return ["the audit ledger: see its page in the administration"] if is_late else []


def shutdown_fault() -> str:
    """Say that this process is ending; empty while it is not."""
    return "shutting down" if STREAMS.closing.is_set() else ""


CHECKS = {"database": database_fault, "broker": broker_fault, "process": shutdown_fault}
