"""Connects model servers: accounts, their keys, their models.

The only writer of provider accounts; `model_specs` writes their models. A change and its ledger
event share a transaction, and no server is called inside one. Keys are stored encrypted and never
shown: the ledger only records that a key was set or cleared.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import transaction
from django.utils.text import slugify

from chats.ground import secrets
from chats.models import ProviderAccount
from chats.providers import kinds
from chats.providers.account_refusals import (
    AlreadyConnected,
    KeyNotPlain,
    NameTooLong,
    NoModelsOffered,
    ServerRefused,
    UnknownKind,
)
from chats.providers.address import DEFAULT_PORTS, CheckedUrl, check_base_url
from chats.providers.base import ProviderError
from chats.providers.model_specs import add_models, choose_default_model, save_model
from contextpolicy.ledger import record_event
from contextpolicy.models import ModelSpec, ToolServer
from contextpolicy.policy_diff import diff_policy_values

if TYPE_CHECKING:
    from chats.providers.discovery import FoundServer

ACCOUNT_FIELDS = ("name", "kind", "base_url", "enabled", "warm_up")


def find_unconnected_servers() -> "list[FoundServer]":
    """Return the model servers on this host that are not connected yet, with their models."""
    # Imported at first use: the HTTP client takes 7 MB, which an idle web process can save.
    from chats.providers.discovery import find_local_servers  # noqa: PLC0415

    connected = set(ProviderAccount.objects.values_list("base_url", flat=True))
    found = async_to_sync(find_local_servers)()
    return [server for server in found if server.models and server.base_url not in connected]


def connect_server(
    *, name: str, base_url: str, api_key: str, actor: str, now: datetime, kind: str = "openai"
) -> ProviderAccount:
    """Load a server's model list, then store its account and models.

    Without a name, the account gets the host's name. If there is no default model, or only the demo
    model, the server's first chat model becomes the default. The bundled small model never becomes
    the default. Raises UnknownKind, PackageMissing, NameTooLong, AddressRefused, AlreadyConnected,
    KeyNotPlain, ServerRefused and NoModelsOffered; then nothing is stored.
    """
    kind = check_server_kind(kind)
    kinds.require_kind(kind)
    checked = check_server_url(base_url, kind=kind)
    url, name = checked.url, name.strip() or checked.host
    if len(name) > 200:
        raise NameTooLong(length=len(name))
    refuse_twice(url)
    models = fetch_server_models(base_url=url, api_key=strip_api_key(api_key), kind=kind)
    with transaction.atomic():
        refuse_twice(url)
        account = save_provider_account(
            account=ProviderAccount(slug=generate_account_slug(name)),
            values={"name": name, "kind": kind, "base_url": url, "enabled": True},
            api_key=api_key,
            actor=actor,
            now=now,
        )
        add_models(account=account, models=models, actor=actor, now=now)
    return account


def refuse_twice(url: str, *, but: ProviderAccount | None = None) -> None:
    """Raise `AlreadyConnected` if an account other than `but` has this base URL."""
    for account in ProviderAccount.objects.filter(base_url=url):
        if account != but:
            raise AlreadyConnected(name=account.name)


def update_server(
    *,
    account: ProviderAccount,
    name: str,
    base_url: str,
    api_key: str,
    actor: str,
    now: datetime,
) -> ProviderAccount:
    """Change a connected server after a successful call to its URL.

    An empty key keeps the stored one. Raises PackageMissing, NameTooLong, AddressRefused,
    AlreadyConnected, KeyNotPlain, ServerRefused, NoModelsOffered and SecretUnreadable; then nothing
    is changed.
    """
    kinds.require_kind(account.kind)
    checked = check_server_url(base_url, kind=account.kind)
    url, name = checked.url, name.strip() or checked.host
    if len(name) > 200:
        raise NameTooLong(length=len(name))
    refuse_twice(url, but=account)
    key = strip_api_key(api_key)
    if not key and account.encrypted_key and _place(url) == _place(account.base_url):
        key = secrets.decrypt(account.encrypted_key)
    models = fetch_server_models(base_url=url, api_key=key, kind=account.kind)
    with transaction.atomic():
        save_provider_account(
            account=account,
            values={"name": name, "base_url": url, "enabled": True},
            api_key=api_key,
            actor=actor,
            now=now,
        )
        add_models(account=account, models=models, actor=actor, now=now)
    return account


def refresh_models(*, account: ProviderAccount, actor: str, now: datetime) -> list[ModelSpec]:
    """Reload a connected server's model list. Store the new models and return them.

    If the server reports the context window of a stored model that has none, the window is stored.
    Raises PackageMissing, AddressRefused, ServerRefused, NoModelsOffered and SecretUnreadable.
    """
    kinds.require_kind(account.kind)
    key = secrets.decrypt(account.encrypted_key) if account.encrypted_key else ""
    models = fetch_server_models(base_url=account.base_url, api_key=key, kind=account.kind)
    with transaction.atomic():
        return add_models(account=account, models=models, actor=actor, now=now)


def save_provider_account(
    *,
    account: ProviderAccount,
    values: Mapping[str, Any],
    actor: str,
    now: datetime,
    api_key: str = "",
    forget_key: bool = False,
) -> ProviderAccount:
    """Store a new or changed account. `values` contains fields of `ACCOUNT_FIELDS`.

    A stored key is never sent to another server: a change of scheme, host or port clears it, unless
    a new key is given. Raises AddressRefused and KeyNotPlain.
    """
    key = strip_api_key(api_key)
    with transaction.atomic():
        stored = (
            ProviderAccount.objects.select_for_update(no_key=True).filter(pk=account.pk).first()
        )
        before = {name: getattr(stored, name) for name in ACCOUNT_FIELDS} if stored else {}
        old_key = stored.encrypted_key if stored else ""
        if stored:
            # The row may have been read before its key was changed or rotated.
            account.encrypted_key, account.key_last_four = old_key, stored.key_last_four
        for name, value in values.items():
            setattr(account, name, value)
        has_address = account.kind in kinds.SERVERS
        account.base_url = (
            check_server_url(account.base_url, kind=account.kind).url if has_address else ""
        )
        moved = bool(old_key) and _place(before["base_url"]) != _place(account.base_url)
        key_event = _set_key(account, key, forget=forget_key or moved, had=bool(old_key))
        account.paused_until, account.paused_reason = None, ""
        account.save()
        if before.get("base_url") != account.base_url:
            # Another server may accept the refused options.
            ModelSpec.objects.filter(provider=account.slug).update(learned_options={})
        data: dict[str, Any] = {"provider": account.slug, "key": key_event}
        data["changes"] = diff_policy_values(
            before, {name: getattr(account, name) for name in ACCOUNT_FIELDS}
        )
        kind = "provider.changed" if stored else "provider.created"
        record_event(kind, actor=actor, now=now, data=data)
    return account


def rotate_keys(*, actor: str, now: datetime) -> int:
    """Re-encrypt the keys of all model and tool servers with the newest encryption key.

    Returns the number of keys. If one key cannot be decrypted, none is changed, because
    older encryption keys may only be removed once they are unused. Raises SecretUnreadable.
    """
    with transaction.atomic():
        rows = ProviderAccount.objects.select_for_update(no_key=True).exclude(encrypted_key="")
        accounts = list(rows.order_by("slug"))
        for account in accounts:
            account.encrypted_key = secrets.rotate_secret(account.encrypted_key)
            account.save(update_fields=["encrypted_key"])
            data = {"provider": account.slug, "key": "rotated", "changes": {}}
            record_event("provider.changed", actor=actor, now=now, data=data)
        servers = ToolServer.objects.select_for_update(no_key=True).exclude(encrypted_key="")
        for server in servers:
            server.encrypted_key = secrets.rotate_secret(server.encrypted_key)
            server.save(update_fields=["encrypted_key"])
            data = {"server": server.slug, "key": "rotated", "fields": []}
            record_event("tool_server.changed", actor=actor, now=now, data=data)
    return len(accounts) + len(servers)


def delete_account(*, account: ProviderAccount, actor: str, now: datetime) -> None:
    """Delete an account with its key. Its models stay in the database, disabled.

    If one of them was the default, `choose_default_model` selects another model.
    """
    with transaction.atomic():
        models = ModelSpec.objects.filter(provider=account.slug)
        had_default = models.filter(is_default=True).exists()
        switched_off = models.update(enabled=False, is_default=False, embeds=False)
        data = {"provider": account.slug, "models_switched_off": switched_off}
        account.delete()
        record_event("provider.deleted", actor=actor, now=now, data=data)
        successor = choose_default_model() if had_default else None
        if successor is not None:
            successor.is_default = True
            save_model(model=successor, actor=actor, now=now)


def fetch_server_models(*, base_url: str, api_key: str, kind: str) -> dict[str, int | None]:
    """Return a server's models by name, each with its context window if reported.

    Empty names and names of more than 200 characters are left out. Raises ServerRefused and
    NoModelsOffered.
    """
    from chats.providers.discovery import list_models  # noqa: PLC0415  # as above

    try:
        listed = async_to_sync(list_models)(
            base_url, api_key, allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS, kind=kind
        )
    except ProviderError as error:
        raise ServerRefused(error) from None
    fitting = {name: window for name, window in listed.items() if 0 < len(name) <= 200}
    if not fitting:
        raise NoModelsOffered
    return fitting


def check_server_kind(kind: str) -> str:
    """Return the kind if it is a known one. Raises UnknownKind."""
    if kind not in kinds.SERVERS:
        raise UnknownKind
    return kind


def check_server_url(base_url: str, *, kind: str) -> CheckedUrl:
    """Return the URL if this instance may call it. An empty URL means Anthropic's own.

    Raises AddressRefused.
    """
    url = base_url.strip()
    if kind == "anthropic":
        url = kinds.strip_api_version(url) or kinds.ANTHROPIC_URL
    return check_base_url(url, allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS)


def strip_api_key(api_key: str) -> str:
    """Return the key without surrounding whitespace. Raises KeyNotPlain."""
    key = api_key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KeyNotPlain
    return key


def generate_account_slug(name: str) -> str:
    wanted = slugify(name)[:50] or "provider"
    taken = set(
        ProviderAccount.objects.filter(slug__startswith=wanted).values_list("slug", flat=True)
    )
    # A deleted account's models keep its slug. A new account must not inherit them.
    taken |= set(
        ModelSpec.objects.filter(provider__startswith=wanted).values_list("provider", flat=True)
    )
    numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    return next(slug for slug in (wanted, *numbered) if slug not in taken)


def _set_key(account: ProviderAccount, key: str, *, forget: bool, had: bool) -> str:
    """Set the new key or clear the old one. Return "set", "cleared", "kept" or "none"."""
    if key:
        account.encrypted_key = secrets.encrypt(key)
        account.key_last_four = secrets.get_last_four(key)
        return "set"
    if forget:
        account.encrypted_key = account.key_last_four = ""
        return "cleared" if had else "none"
    return "kept" if had else "none"


def _place(base_url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL.

    Nothing is checked, because an old URL may be refused now.
    """
    parts = urlsplit(base_url)
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)
