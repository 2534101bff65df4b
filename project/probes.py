"""`/healthz`: this process is running. `/readyz`: everything that a message needs is available."""

import os

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import Error as DatabaseError
from django.http import HttpRequest, JsonResponse
from django.utils import timezone, translation
from redis.exceptions import RedisError

from chats.checkpoints import upkeep
from chats.counts.searches import count_searches
from chats.ground import broker_facts, databases, heartbeats
from chats.ground.secrets import SecretUnreadable, decrypt
from chats.models import ProviderAccount, SkippedRow
from chats.streams.connection import STREAMS
from contextpolicy.models import LedgerKey
from project.versions import find_newer_migrations

KEEPS_ALL = "noeviction"
FULL = "storage: a disk is full, so nothing can be written; free space"
# The disk counts as full below the first number of free bytes, as nearly full below the second.
LEAST_BYTES = 1_000_000
FEW_BYTES = 100_000_000
# The maximum number of stored provider keys that each request tries to decrypt.
MOST_KEYS = 20
NEWER_DATABASE = "a newer version has migrated it"
AUDIT_LOG_LATE = "the audit ledger needs attention: see its page in the administration"
UNREADABLE = "stored keys cannot be decrypted: restore the encryption key that belongs to the data"


def healthz(_request: HttpRequest) -> JsonResponse:
    """Return 200 while the process is running."""
    return JsonResponse({"status": "ok"})


def readyz(_request: HttpRequest) -> JsonResponse:
    """Return 200 if messages can be processed, else 503 with the faults.

    Messages can be processed if the database is migrated, the broker is available, and this
    process is not shutting down. `warnings` lists problems that need attention while
    messages are still accepted.
    """
    faults = {name: fault for name, check in CHECKS.items() if (fault := check())}
    warnings = list_storage_warnings()
    warnings += [] if "database" in faults else list_database_warnings()
    alive = [] if "broker" in faults else load_heartbeats()
    if "broker" not in faults:
        warnings += list_broker_warnings() + heartbeats.describe_late_processes(alive)
    state = "unavailable" if faults else "degraded" if warnings else "ok"
    status = {
        "status": state,
        "version": settings.VERSION,
        "faults": faults,
        "warnings": warnings,
        **compute_heartbeat_ages(alive),
    }
    return JsonResponse(status, status=503 if faults else 200)


def find_database_fault() -> str:
    """Return the reason why the database cannot be used; empty if it can."""
    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        newer = find_newer_migrations(connection)
    except DatabaseError as error:
        cause = databases.describe_connection_error(error)
        return f"no connection: {cause}" if cause else "no connection"
    if newer:
        return NEWER_DATABASE
    return "migrations are missing" if plan else ""


def list_storage_warnings() -> list[str]:
    """Return a warning if a disk is full or nearly full.

    A full disk is not a fault, because a load balancer would then block reading too.
    """
    try:
        found = os.statvfs(settings.DATA_DIR)
        free = found.f_bavail * found.f_frsize
    except OSError:
        return []
    if databases.is_disk_full() or free < LEAST_BYTES:
        return [FULL]
    if free < FEW_BYTES:
        return [f"storage: only {free // 1_000_000} MB are free in the data folder"]
    return []


def find_broker_fault() -> str:
    """Return the reason why the broker cannot be used; empty if it can.

    Without the broker, messages are still accepted, but replies wait.
    """
    try:
        policy = get_broker_eviction()
    except (RedisError, OSError):
        return "no connection"
    return "" if policy in {KEEPS_ALL, ""} else f"it may evict tasks ({policy})"


def get_broker_eviction() -> str:
    """Return the broker's eviction policy; empty if it does not report it.

    Raises RedisError or OSError.
    """
    return broker_facts.read_eviction_policy(settings.REDIS_URL)


def load_heartbeats() -> list[heartbeats.HeartbeatAge]:
    """Return the heartbeats of workers and schedule; none if the broker does not answer."""
    try:
        return heartbeats.list_heartbeats()
    except (RedisError, OSError):
        return []


def compute_heartbeat_ages(alive: list[heartbeats.HeartbeatAge]) -> dict[str, object]:
    """Return the seconds since the last heartbeat of the schedule and of each worker."""
    ages = {one.name: round(one.age, 1) for one in alive}
    workers = {one.name: ages[one.name] for one in heartbeats.select_workers(alive)}
    return {"schedule": ages.get(heartbeats.SCHEDULE), "workers": workers}


def list_broker_warnings() -> list[str]:
    """Return a warning if the broker writes to disk, where erased text would remain."""
    try:
        return [broker_facts.DISK] if broker_facts.has_disk_persistence(settings.REDIS_URL) else []
    except (RedisError, OSError):
        return []


def list_database_warnings() -> list[str]:
    """Return warnings about the audit log, stored keys, skipped rows and late searches."""
    now = timezone.now()
    late = count_searches(now=now).warning
    with translation.override(settings.LANGUAGE_CODE):
        skipped = SkippedRow.warnings(now=now)
    warnings = list_audit_log_warnings() + list_encryption_warnings() + skipped
    return [*warnings, late] if late else warnings


def list_encryption_warnings() -> list[str]:
    """Return a warning if stored keys cannot be decrypted with the current encryption keys."""
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


def list_audit_log_warnings() -> list[str]:
    """Return a warning if the audit log needs attention; its page shows the reason."""
    is_late = bool(upkeep.list_check_warnings(now=timezone.now()))
    return [AUDIT_LOG_LATE] if is_late else []


def find_shutdown_fault() -> str:
    """Return a fault if this process is shutting down; empty otherwise."""
    return "shutting down" if STREAMS.closing.is_set() else ""


CHECKS = {
    "database": find_database_fault,
    "broker": find_broker_fault,
    "process": find_shutdown_fault,
}
