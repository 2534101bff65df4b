"""Saves tool servers, and reads the definitions of their tools in the background."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from chats.ground import queue, secrets
from chats.ground.jobs import Job, JobLease, renewed_by_thread
from chats.ground.leases import LeaseLost
from chats.ground.refusals import Refusal
from chats.ground.sentences import build_sentence_columns
from chats.providers.accounts import strip_api_key
from chats.providers.address import check_base_url
from chats.tool_servers.client import ServerAccess, list_server_tools
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.models import ToolServer
from contextpolicy.tool_servers import pin_definitions

FIELDS = ("slug", "name", "transport", "url", "command", "enabled")
LONGEST_SENTENCE = 500
# Open while a reading is requested. The end of a reading clears the column `asked_at`.
READINGS = Job(
    ToolServer,
    task=queue.READ_TOOLS,
    argument="server_id",
    is_open=Q(asked_at__isnull=False),
)


class CommandUnknown(Refusal):
    """The command is not in the allow-list of the settings."""

    code = "unknown_tool_command"
    status = 422
    sentence = gettext_noop(
        "The command {name} is not in the setting TOOL_COMMANDS of this server. Choose a "
        "command from that setting."
    )
    param = "command"


def check_tool_server(*, transport: str, url: str, command: str) -> str:
    """Return the URL of a server if this instance may call it. Empty for a local process.

    Raises AddressRefused and CommandUnknown.
    """
    if transport == ToolServer.Transport.HTTP:
        allowed = settings.ALLOWED_PRIVATE_PROVIDERS
        return check_base_url(url.strip(), allowed_private=allowed).url
    if command not in settings.TOOL_COMMANDS:
        raise CommandUnknown(name=command or "“”")
    return ""


def save_tool_server(
    *,
    server: ToolServer,
    values: Mapping[str, Any],
    actor: str,
    now: datetime,
    credential: str = "",
    forget: bool = False,
) -> ToolServer:
    """Store a new or changed server. `values` contains fields of `FIELDS`.

    A changed URL or command may lead to another server. It therefore withdraws the approval of all
    tools and clears the credential, unless a new one is given. `forget` clears only the credential.
    Raises AddressRefused, CommandUnknown and KeyNotPlain.
    """
    key = strip_api_key(credential)
    with transaction.atomic():
        stored = ToolServer.objects.select_for_update(no_key=True).filter(pk=server.pk).first()
        before = {name: getattr(stored, name) for name in FIELDS} if stored else {}
        if stored:
            server.encrypted_key, server.key_last_four = stored.encrypted_key, stored.key_last_four
        for name, value in values.items():
            setattr(server, name, value)
        server.url = check_tool_server(
            transport=server.transport, url=server.url, command=server.command
        )
        if server.transport == ToolServer.Transport.HTTP:
            server.command = ""
        places = ("transport", "url", "command")
        has_moved = any(before[name] != getattr(server, name) for name in places if before)
        if key:
            server.encrypted_key = secrets.encrypt(key)
            server.key_last_four = secrets.get_last_four(key)
        elif forget or has_moved:
            server.encrypted_key = server.key_last_four = ""
        server.save()
        if has_moved:
            server.tools.update(approved_digest="")
        changed = [name for name in FIELDS if before and before[name] != getattr(server, name)]
        data: dict[str, Any] = {"server": server.slug, "transport": server.transport}
        data |= {"key": "set" if key else "stored" if server.encrypted_key else "none"}
        data |= {"enabled": server.enabled}
        if stored:
            data |= {"fields": changed, "withdrawn": has_moved}
        kind = "tool_server.changed" if stored else "tool_server.created"
        ledger.record_event(kind, actor=actor, now=now, data=data)
    return server


def build_server_access(server: ToolServer) -> ServerAccess:
    """Return the URL or command of a server, and its credential. Raises SecretUnreadable."""
    key = server.encrypted_key
    return ServerAccess(
        transport=server.transport,
        url=server.url,
        command=server.command,
        credential=secrets.decrypt(key) if key else "",
    )


def request_reading(server: ToolServer, *, now: datetime) -> None:
    """Request that a worker reads the definitions of a server's tools. Clears the last failure."""
    with transaction.atomic():
        ToolServer.objects.filter(pk=server.pk).update(asked_at=now, failure="", failure_details={})
        READINGS.enqueue(server.pk)


def read_definitions(*, server_id: int, counter: TokenCounter, now: datetime) -> None:
    """Load the definitions of a server, unless another worker does. No transaction is open.

    A failure is stored as a sentence, and no definition changes.
    """
    lease = READINGS.claim(server_id)
    server = lease.select_row().first() if lease else None
    if lease is None or server is None:
        return
    try:
        with renewed_by_thread(lease, seconds=2 * settings.TOOL_SECONDS):
            described = async_to_sync(list_server_tools)(build_server_access(server))
    except Refusal as refusal:
        store_failure(lease, refusal)
        return
    try:
        with transaction.atomic():
            lease.lock_row()
            pin_definitions(server, described=described, counter=counter, actor="worker", now=now)
            lease.finish(read_at=now, asked_at=None)
    except LeaseLost:
        return


def store_failure(lease: JobLease[ToolServer], refusal: Refusal) -> None:
    """Store the reason why the definitions could not be read, and end the job."""
    text, values = build_sentence_columns(refusal.full, longest=LONGEST_SENTENCE)
    lease.release(asked_at=None, failure=text, failure_details=values)


def enqueue_due_readings() -> int:
    """Enqueue requested readings that no worker holds. Returns the count."""
    return READINGS.enqueue_free_rows()
