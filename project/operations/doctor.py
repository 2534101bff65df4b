"""Checks an installation part by part, with a remedy for each problem."""

import asyncio
import platform
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings
from django.core import checks
from django.db import connection
from django.db.utils import Error as DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from chats.files.scanning import scan_file
from chats.files.storage import get_configured_storage
from chats.ground import broker_facts, heartbeats, queues
from chats.ground.secrets import SecretUnreadable, decrypt
from chats.models import ProviderAccount
from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.discovery import list_models
from project import probes
from project.operations import file_members, replacing, restore
from project.operations.backup import KEY_FILES

OK, WARNING, FAILURE = "ok", "warning", "failure"
# Seconds by which clocks may differ. Leases use the database's clock, sessions that of the host.
MOST_SKEW = 5.0
PROVIDER_SECONDS = 5.0
DATABASE_SECONDS = 0.5
MIGRATE = "Run manage.py setup, as the owner of the tables."
BROKER = "Start Redis, and check REDIS_URL and its password."
WORKERS = "Start the workers: see “Start without containers” in docs/deployment.md."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of one part: `level` is ok, warning or failure; `remedy` is empty if it is ok."""

    part: str
    level: str
    text: str
    remedy: str = ""

    def describe(self) -> dict[str, str]:
        return asdict(self)


def diagnose_installation(*, is_offline: bool = False) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each part.

    A broker error is reported as a warning; an error from the database or the operating system is
    reported as a failure. With `is_offline`, no model server is called.
    """
    for part, check in CHECKS.items():
        if part == "provider" and is_offline:
            continue
        try:
            yield from check(part)
        except RedisError:
            yield Diagnosis(part, WARNING, "unknown, because the broker does not answer", BROKER)
        except (DatabaseError, OSError) as error:
            text = f"could not be checked: {type(error).__name__}"
            yield Diagnosis(part, FAILURE, text, "Repair the parts above first.")


def check_versions(part: str) -> Iterator[Diagnosis]:
    """Yield the versions of the product, Python, SQLite and the operating system."""
    text = f"Palimpsest {settings.VERSION}, Python {platform.python_version()}"
    yield Diagnosis(part, OK, f"{text}, SQLite {sqlite3.sqlite_version}, {platform.platform()}")


def check_database(part: str) -> Iterator[Diagnosis]:
    """Yield diagnoses of the database: whether it answers quickly and is migrated."""
    fault = probes.find_database_fault()
    if fault == probes.NEWER_DATABASE:
        yield Diagnosis(part, FAILURE, fault, "Install that version, or restore a backup.")
    elif fault:
        remedy = MIGRATE if "migrations" in fault else "Check DATABASE_URL and its server."
        yield Diagnosis(part, FAILURE, fault, remedy)
    else:
        begun = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM chats_provideraccount")
        taken = time.perf_counter() - begun
        name = describe_database()
        if taken > DATABASE_SECONDS:
            text = f"{name} took {taken:.1f} s for a small query"
            yield Diagnosis(part, WARNING, text, "Check its load, its disk and the network.")
        else:
            yield Diagnosis(part, OK, f"{name}, all migrations applied")
        yield from check_database_settings(part)


def describe_database() -> str:
    if connection.vendor == "sqlite":
        return f"SQLite file {settings.DATABASES['default']['NAME']}"
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return f"PostgreSQL {cursor.fetchone()[0]}"


def check_database_settings(part: str) -> Iterator[Diagnosis]:
    """Yield the results of the system checks about the database and the deployment."""
    deployed = settings.BEHIND_TLS
    for found in checks.run_checks(include_deployment_checks=deployed, databases=["default"]):
        level = FAILURE if found.level >= checks.ERROR else WARNING
        if found.level >= checks.WARNING and not found.is_silenced():
            yield Diagnosis(
                part, level, str(found.msg), str(found.hint or "See docs/deployment.md.")
            )


def check_broker(part: str) -> Iterator[Diagnosis]:
    """Yield diagnoses of the broker: whether it answers, keeps tasks, and writes to disk."""
    if fault := probes.find_broker_fault():
        remedy = BROKER if "connection" in fault else "Set maxmemory-policy to noeviction."
        yield Diagnosis(part, FAILURE, fault, remedy)
        return
    with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
        version = client.info("server").get("redis_version", "?")
        waiting = {name: client.llen(name) for name in queues.EVERY}
    text = ", ".join(f"{name} {count}" for name, count in waiting.items())
    yield Diagnosis(part, OK, f"Redis {version}; waiting tasks: {text}")
    for warning in probes.list_broker_warnings():
        yield Diagnosis(part, WARNING, warning, 'Set appendonly no and save "" on the server.')


def check_workers(part: str) -> Iterator[Diagnosis]:
    """Yield diagnoses of the live workers, and of queues without a worker."""
    alive = [one for one in load_workers() if one.age < heartbeats.LATE]
    for one in alive:
        yield Diagnosis(part, OK, f"{one.name} consumes {', '.join(one.queues)}")
    consumed = {name for one in alive for name in one.queues}
    for name in queues.EVERY:
        if name not in consumed:
            # The launcher starts the second worker with the first background task.
            level = FAILURE if name == queues.REPLIES else WARNING
            yield Diagnosis(part, level, f"no worker consumes the queue {name}", WORKERS)


def load_workers() -> list[heartbeats.HeartbeatAge]:
    """Return the heartbeats of workers. Raises RedisError or OSError."""
    return heartbeats.select_workers(heartbeats.list_heartbeats())


def check_schedule(part: str) -> Iterator[Diagnosis]:
    """Yield a diagnosis of the schedule: whether it sends the due jobs."""
    ages = {one.name: one.age for one in heartbeats.list_heartbeats()}
    age = ages.get(heartbeats.SCHEDULE)
    if age is None or age >= heartbeats.schedule_limit():
        since = "no heartbeat" if age is None else f"no heartbeat for {age:.0f} s"
        yield Diagnosis(
            part, WARNING, since, "Start exactly one celery beat. Workers run its jobs until then."
        )
    else:
        yield Diagnosis(part, OK, f"last heartbeat {age:.0f} s ago")


def check_disk(part: str) -> Iterator[Diagnosis]:
    """Yield the free space of the data folder."""
    found = shutil.disk_usage(settings.DATA_DIR)
    text = f"{found.free / 1e9:.1f} GB free in {settings.DATA_DIR}"
    if found.free < probes.LEAST_BYTES:
        yield Diagnosis(part, FAILURE, text, "Free space: nothing can be written.")
    elif found.free < probes.FEW_BYTES:
        yield Diagnosis(part, WARNING, text, "Free space before the disk is full.")
    else:
        yield Diagnosis(part, OK, text)


def check_restores(part: str) -> Iterator[Diagnosis]:
    """Yield diagnoses of the data that a restore replaced or prepared and did not delete."""
    data = Path(settings.DATA_DIR)
    places = [file_members.get_files_folder()]
    if connection.vendor == "sqlite":
        places.append(restore.get_sqlite_path())
    left = [path for place in places for path in replacing.list_replaced(place)]
    # Replaced keys are kept, so only unfinished ones are named.
    keys = [*(data / name for name in KEY_FILES), Path(settings.LEDGER_CHECKPOINT_FILE)]
    unfinished = [
        str(path) for place in (*places, *keys) for path in replacing.list_unfinished(place)
    ]
    if unfinished:
        text = f"an interrupted restore left data: {', '.join(sorted(unfinished))}"
        yield Diagnosis(part, WARNING, text, "Delete it, or repeat the restore.")
    if left:
        names = ", ".join(sorted(str(path) for path in left))
        remedy = "Delete it when the installation works. It can contain messages erased since."
        yield Diagnosis(part, WARNING, f"a restore that failed left replaced data: {names}", remedy)
    elif not unfinished:
        yield Diagnosis(part, OK, "no replaced data is left")


def check_files(part: str) -> Iterator[Diagnosis]:
    """Yield diagnoses of uploaded files: whether the storage and the scanner answer."""
    try:
        get_configured_storage().exists("doctor")
    except Exception as error:  # noqa: BLE001  # each storage has its own errors
        text = f"the storage does not answer: {type(error).__name__}"
        yield Diagnosis(part, FAILURE, text, "Check the settings that begin with S3_.")
    else:
        yield Diagnosis(part, OK, "the storage answers")
    if not settings.FILE_SCAN:
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"A clean file.")
        file.flush()
        code = scan_file(Path(file.name))
    if code:
        remedy = "Start the scanner, and check PALIMPSEST_FILE_SCAN. Until then no file is read."
        yield Diagnosis(part, FAILURE, f"the scanner refused a clean file ({code})", remedy)
    else:
        yield Diagnosis(part, OK, "the scanner answers")


def check_keys(part: str) -> Iterator[Diagnosis]:
    """Yield diagnoses of stored keys.

    Checks that the keys can be decrypted, and that only their owner can read the key files.
    """
    for name in KEY_FILES:
        path = Path(settings.DATA_DIR) / name
        if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield Diagnosis(
                part, FAILURE, f"{path} can be read by others", f"Run chmod 600 {path}."
            )
    unreadable = 0
    accounts = list(ProviderAccount.objects.exclude(encrypted_key=""))
    for account in accounts:
        try:
            decrypt(account.encrypted_key)
        except SecretUnreadable:
            unreadable += 1
    if unreadable:
        remedy = "Put the old key behind the new one in ENCRYPTION_KEYS, or enter the keys again."
        text = f"{unreadable} of {len(accounts)} stored keys cannot be decrypted"
        yield Diagnosis(part, FAILURE, text, remedy)
    else:
        yield Diagnosis(part, OK, f"{len(accounts)} stored keys of model servers can be decrypted")


def check_clock(part: str) -> Iterator[Diagnosis]:
    """Yield a diagnosis that compares the clocks of this host, the database and the broker."""
    skews = {}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float")
            skews["PostgreSQL"] = cursor.fetchone()[0] - time.time()
    with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
        seconds, micros = client.time()
        skews["Redis"] = seconds + micros / 1e6 - time.time()
    for name, skew in skews.items():
        level = OK if abs(skew) <= MOST_SKEW else WARNING
        remedy = "" if level == OK else "Synchronise the clocks, for example with chrony."
        yield Diagnosis(part, level, f"{name} differs by {skew:+.1f} s", remedy)


def check_audit_log(part: str) -> Iterator[Diagnosis]:
    """Yield a diagnosis of the audit log: whether it needs attention."""
    if probes.list_audit_log_warnings():
        remedy = "Open its page in the administration, or run manage.py ledger_verify."
        yield Diagnosis(part, WARNING, "needs attention", remedy)
    else:
        yield Diagnosis(part, OK, "signed and verified on time")


def check_providers(part: str) -> Iterator[Diagnosis]:
    """Yield a diagnosis for each enabled model server: whether it returns its list of models."""
    accounts = ProviderAccount.objects.filter(enabled=True).exclude(kind=ProviderAccount.Kind.DEMO)
    for account in accounts:
        yield check_provider(part, account)
    if not accounts:
        yield Diagnosis(part, OK, "no model server is connected; the demo model answers")


def check_provider(part: str, account: ProviderAccount) -> Diagnosis:
    remedy = "Open Model servers in the administration, correct the entry and save it."
    if account.paused_until and account.paused_until > timezone.now():
        return Diagnosis(part, FAILURE, f"{account.slug}: paused, {account.paused_reason}", remedy)
    try:
        key = decrypt(account.encrypted_key) if account.encrypted_key else ""
        models = asyncio.run(
            list_models(
                account.base_url,
                key,
                allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS,
                kind=account.kind,
                timeout=PROVIDER_SECONDS,
            )
        )
    except SecretUnreadable:
        return Diagnosis(part, FAILURE, f"{account.slug}: its key cannot be decrypted", remedy)
    except AddressRefused as refusal:
        return Diagnosis(part, FAILURE, f"{account.slug}: {refusal.sentence}", remedy)
    except ProviderError as error:
        return Diagnosis(part, WARNING, f"{account.slug}: {error}", remedy)
    return Diagnosis(part, OK, f"{account.slug}: {len(models)} models")


CHECKS: dict[str, Callable[[str], Iterator[Diagnosis]]] = {
    "versions": check_versions,
    "database": check_database,
    "broker": check_broker,
    "workers": check_workers,
    "schedule": check_schedule,
    "disk": check_disk,
    "restores": check_restores,
    "files": check_files,
    "keys": check_keys,
    "clock": check_clock,
    "audit log": check_audit_log,
    "provider": check_providers,
}
