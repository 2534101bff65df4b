"""Connecting model servers: stored values, ledger events and refusals."""

from datetime import datetime
from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from chats.ground import secrets
from chats.ground.refusals import Refusal
from chats.models import ProviderAccount
from chats.providers import account_refusals, accounts, discovery, model_specs
from chats.providers.address import AddressRefused
from chats.providers.discovery import FoundServer
from contextpolicy.ledger import find_ledger_breaks
from contextpolicy.models import AuditEvent, ModelSpec
from tests.fakes.fake_server import FakeServer

pytestmark = pytest.mark.django_db

KEY = "sk-canary-0123456789abcdef"
HOSTED = "https://api.example.com/v1"


def last_event(kind: str) -> dict[str, Any]:
    """Return the data of the newest event of a type."""
    data: dict[str, Any] = AuditEvent.objects.filter(type=kind).latest("id").data
    return data


def saved(now: datetime, **values: Any) -> ProviderAccount:
    """An account with a key."""
    given = {"name": "Hosted", "kind": "openai", "base_url": HOSTED, "enabled": True, **values}
    return accounts.save_provider_account(
        account=ProviderAccount(slug="hosted"),
        values=given,
        api_key=KEY,
        actor="user:1",
        now=now,
    )


class TestConnect:
    def test_the_account_and_its_models_are_stored(self, fake: FakeServer, now: datetime) -> None:
        account = accounts.connect_server(
            name="My server", base_url=f"{fake.base_url}/", api_key=KEY, actor="user:1", now=now
        )

        account.refresh_from_db()
        assert (account.slug, account.kind, account.base_url) == (
            "my-server",
            "openai",
            fake.base_url,
        )
        assert secrets.decrypt(account.encrypted_key) == KEY
        models = ModelSpec.objects.filter(provider="my-server")
        assert {model.name for model in models} == {"fake-chat", "fake-small"}
        assert models.get(is_default=True).name == "fake-chat"
        assert list(find_ledger_breaks()) == []

    def test_the_demo_model_is_the_default_again_when_its_server_is_disconnected(
        self, fake: FakeServer, now: datetime, demo_model: ModelSpec
    ) -> None:
        account = accounts.connect_server(
            name="New", base_url=fake.base_url, api_key="", actor="user:1", now=now
        )
        accounts.delete_account(account=account, actor="user:1", now=now)

        assert ModelSpec.objects.get(is_default=True) == demo_model
        assert list(find_ledger_breaks()) == []

    def test_a_server_is_connected_once(self, fake: FakeServer, now: datetime) -> None:
        first: dict[str, Any] = {"base_url": fake.base_url, "api_key": "", "actor": "user:1"}
        first["now"] = now
        accounts.connect_server(name="First", **first)

        with pytest.raises(account_refusals.AlreadyConnected, match="as “First”"):
            accounts.connect_server(name="Second", **{**first, "base_url": f"{fake.base_url}/"})

        assert ProviderAccount.objects.count() == 1

    def test_a_window_that_the_server_states_is_taken_over(
        self, fake: FakeServer, now: datetime
    ) -> None:
        stated = [{"id": "here", "meta": {"n_ctx": 4096, "n_ctx_train": 32768}}, {"id": "silent"}]
        fake.configure(models=stated)
        account = accounts.connect_server(
            name="N", base_url=fake.base_url, api_key="", actor="user:1", now=now
        )
        windows = dict(ModelSpec.objects.values_list("name", "context_window"))
        assert windows == {"here": 4096, "silent": None}

        ModelSpec.objects.filter(name="here").update(context_window=2048)
        fake.configure(models=[{"id": name, "max_model_len": 8192} for name in windows])
        accounts.refresh_models(account=account, actor="user:1", now=now)
        windows = dict(ModelSpec.objects.values_list("name", "context_window"))
        # A manually set value is kept.
        assert windows == {"here": 2048, "silent": 8192}

    def test_a_real_default_model_stays(self, fake: FakeServer, now: datetime) -> None:
        ProviderAccount.objects.create(slug="other", name="Other", base_url=HOSTED)
        ModelSpec.objects.create(slug="o", provider="other", name="o", is_default=True)

        accounts.connect_server(
            name="New", base_url=fake.base_url, api_key="", actor="user:1", now=now
        )

        assert ModelSpec.objects.get(is_default=True).slug == "o"

    def test_the_demo_model_gives_way_as_default(
        self, fake: FakeServer, now: datetime, demo_model: ModelSpec
    ) -> None:
        accounts.connect_server(
            name="New", base_url=fake.base_url, api_key="", actor="user:1", now=now
        )

        assert ModelSpec.objects.get(is_default=True).provider == "new"

    def test_models_that_do_not_chat_are_added_switched_off(
        self, fake: FakeServer, now: datetime
    ) -> None:
        other = ["text-embedding-3", "whisper-1", "bge-m3", "all-minilm", "intfloat/e5-large"]
        fake.configure(models=[*other, "llama3.2:3b"])

        accounts.connect_server(
            name="", base_url=fake.base_url, api_key="", actor="user:1", now=now
        )

        on = ModelSpec.objects.filter(enabled=True)
        assert [(model.slug, model.is_default) for model in on] == [("127001-llama3-2-3b", True)]
        assert ModelSpec.objects.filter(enabled=False).count() == 5

    def test_names_that_give_one_slug_stay_apart(
        self, fake: FakeServer, now: datetime, settings: Settings
    ) -> None:
        fake.configure(models=["a/b", "a:b", "a.b"])

        named = fake.host.replace("127.0.0.1", "localhost")
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host, named]
        for address in (fake.base_url, f"http://{named}/v1"):
            accounts.connect_server(
                name="Same", base_url=address, api_key="", actor="user:1", now=now
            )

        assert ModelSpec.objects.values("slug").distinct().count() == 6
        assert {account.slug for account in ProviderAccount.objects.all()} == {"same", "same-2"}

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"base_url": "http://169.254.169.254/v1"}, "base_url_refused"),
            ({"base_url": "http://127.0.0.1:1/v1"}, "base_url_refused"),
            ({"base_url": "ftp://example.com"}, "base_url_refused"),
            ({"api_key": "two words"}, "invalid_key"),
            ({"api_key": "line\nbreak"}, "invalid_key"),
            ({"api_key": "schlüssel"}, "invalid_key"),
            ({"name": "n" * 201}, "too_long"),
        ],
    )
    def test_what_cannot_be_called_is_refused_and_nothing_stored(
        self, change: dict[str, str], code: str, fake: FakeServer, now: datetime
    ) -> None:
        given = {"name": "N", "base_url": fake.base_url, "api_key": "", **change}

        with pytest.raises(Refusal) as refusal:
            accounts.connect_server(**given, actor="user:1", now=now)

        assert refusal.value.code == code
        assert not ProviderAccount.objects.exists()
        assert not AuditEvent.objects.exists()

    def test_a_server_that_does_not_answer_is_named_without_its_words(
        self, settings: Settings, now: datetime
    ) -> None:
        settings.ALLOWED_PRIVATE_PROVIDERS = ["127.0.0.1:9"]

        with pytest.raises(account_refusals.ServerRefused) as refusal:
            accounts.connect_server(
                name="N", base_url="http://127.0.0.1:9/v1", api_key="", actor="user:1", now=now
            )

        assert refusal.value.code == "provider_unavailable"
        assert "127.0.0.1" not in refusal.value.sentence
        assert not ProviderAccount.objects.exists()

    def test_a_server_without_models_is_refused(self, fake: FakeServer, now: datetime) -> None:
        fake.configure(models=[])

        with pytest.raises(account_refusals.NoModelsOffered):
            accounts.connect_server(
                name="N", base_url=fake.base_url, api_key="", actor="user:1", now=now
            )

    def test_no_transaction_is_open_while_the_server_is_asked(
        self, fake: FakeServer, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        depth = []

        def offered(**_given: str) -> dict[str, int | None]:
            depth.append(len(connection.savepoint_ids))
            return {"m": None}

        monkeypatch.setattr(accounts, "fetch_server_models", offered)
        before = len(connection.savepoint_ids)

        accounts.connect_server(
            name="N", base_url=fake.base_url, api_key="", actor="user:1", now=now
        )

        assert depth == [before]


class TestKeys:
    def test_S14_a_key_is_stored_encrypted_and_never_recorded(self, now: datetime) -> None:
        account = saved(now)

        assert KEY not in str(list(ProviderAccount.objects.values()))
        assert KEY not in str(list(AuditEvent.objects.values()))
        assert account.encrypted_key not in str(list(AuditEvent.objects.values()))
        assert (account.key_last_four, last_event("provider.created")["key"]) == ("cdef", "set")

    @pytest.mark.parametrize(
        "base_url",
        [
            "https://api.example.net/v1",
            "https://api.example.com:8443/v1",
            "https://api.example.com.evil.net/v1",
        ],
    )
    def test_S15_a_key_does_not_follow_the_account_to_another_server(
        self, base_url: str, now: datetime
    ) -> None:
        account = saved(now)

        accounts.save_provider_account(
            account=account, values={"base_url": base_url}, actor="user:1", now=now
        )

        account.refresh_from_db()
        assert (account.encrypted_key, account.key_last_four) == ("", "")
        assert last_event("provider.changed")["key"] == "cleared"

    @pytest.mark.parametrize(
        "base_url", ["https://api.example.com/v2", "https://API.example.com:443/v1/"]
    )
    def test_a_key_stays_with_the_same_server(self, base_url: str, now: datetime) -> None:
        account = saved(now)

        accounts.save_provider_account(
            account=account, values={"base_url": base_url}, actor="user:1", now=now
        )

        assert secrets.decrypt(account.encrypted_key) == KEY
        assert last_event("provider.changed")["key"] == "kept"

    def test_S14_a_command_moves_every_key_to_the_newest_encryption_key(
        self, now: datetime, settings: Settings
    ) -> None:
        old, new = (Fernet.generate_key().decode() for _ in range(2))
        settings.ENCRYPTION_KEYS = [old]
        account = saved(now)
        ProviderAccount.objects.create(slug="keyless", name="K", kind="openai")
        settings.ENCRYPTION_KEYS = [new, old]
        out = StringIO()

        call_command("rotate_keys", stdout=out)

        settings.ENCRYPTION_KEYS = [new]
        read_before = ProviderAccount.objects.get(pk=account.pk)
        assert secrets.decrypt(read_before.encrypted_key) == KEY
        assert out.getvalue() == "Re-encrypted 1 stored keys with the newest key.\n"
        assert last_event("provider.changed") == {
            "provider": account.slug,
            "key": "rotated",
            "changes": {},
        }
        # A form opened before the rotation does not restore the old token.
        accounts.save_provider_account(
            account=account, values={"name": "New"}, actor="user:1", now=now
        )
        account.refresh_from_db()
        assert secrets.decrypt(account.encrypted_key) == KEY

    def test_S14_a_rotation_that_cannot_read_one_key_changes_none(
        self, now: datetime, settings: Settings
    ) -> None:
        saved(now)
        ProviderAccount.objects.create(slug="z", name="Z", kind="openai", encrypted_key="damaged")
        before = list(ProviderAccount.objects.order_by("pk").values())

        with pytest.raises(CommandError, match=secrets.SecretUnreadable.sentence):
            call_command("rotate_keys", stdout=StringIO())

        assert list(ProviderAccount.objects.order_by("pk").values()) == before
        assert not AuditEvent.objects.filter(type="provider.changed").exists()

    def test_a_new_key_may_come_with_a_new_server(self, now: datetime) -> None:
        account = saved(now)

        accounts.save_provider_account(
            account=account,
            values={"base_url": "https://api.example.net/v1"},
            api_key="sk-another-0123456789",
            actor="user:1",
            now=now,
        )

        assert secrets.decrypt(account.encrypted_key) == "sk-another-0123456789"

    def test_an_account_that_becomes_the_demo_forgets_its_key(self, now: datetime) -> None:
        account = saved(now)

        accounts.save_provider_account(
            account=account, values={"kind": "demo"}, actor="user:1", now=now
        )

        assert (account.base_url, account.encrypted_key) == ("", "")

    def test_a_key_can_be_forgotten(self, now: datetime) -> None:
        account = saved(now)

        accounts.save_provider_account(
            account=account, values={}, forget_key=True, actor="user:1", now=now
        )

        assert account.encrypted_key == ""

    def test_an_address_allowed_no_more_can_still_be_replaced(
        self, settings: Settings, now: datetime
    ) -> None:
        settings.ALLOWED_PRIVATE_PROVIDERS = ["localhost:11434"]
        account = saved(now, base_url="http://localhost:11434/v1")
        settings.ALLOWED_PRIVATE_PROVIDERS = []

        with pytest.raises(AddressRefused):
            accounts.save_provider_account(account=account, values={}, actor="user:1", now=now)
        accounts.save_provider_account(
            account=account, values={"base_url": HOSTED}, actor="user:1", now=now
        )

        assert account.encrypted_key == ""


def test_a_change_ends_the_pause_that_a_refused_key_began(now: datetime) -> None:
    account = saved(now)
    account.paused_until, account.paused_reason = now, "The key was refused."
    account.save()

    accounts.save_provider_account(account=account, values={}, api_key=KEY, actor="user:1", now=now)

    stored = ProviderAccount.objects.get(pk=account.pk)
    assert (stored.paused_until, stored.paused_reason) == (None, "")


def test_what_changed_is_recorded_with_old_and_new_values(now: datetime) -> None:
    account = saved(now)

    accounts.save_provider_account(
        account=account, values={"name": "Better", "enabled": False}, actor="user:1", now=now
    )

    assert last_event("provider.changed") == {
        "provider": "hosted",
        "key": "kept",
        "changes": {
            "enabled": {"from": True, "to": False},
            "name": {"from": "Hosted", "to": "Better"},
        },
    }


def test_a_deleted_account_takes_its_key_along_and_switches_its_models_off(
    now: datetime,
) -> None:
    account = saved(now)
    ModelSpec.objects.create(slug="m", provider="hosted", name="m", is_default=True)

    accounts.delete_account(account=account, actor="user:1", now=now)

    model = ModelSpec.objects.get()
    assert (model.enabled, model.is_default) == (False, False)
    assert last_event("provider.deleted") == {"provider": "hosted", "models_switched_off": 1}
    assert accounts.generate_account_slug("Hosted") == "hosted-2"


def test_a_new_default_model_takes_the_place_of_the_old(now: datetime) -> None:
    ModelSpec.objects.create(slug="a", provider="p", name="a", is_default=True)
    model = ModelSpec.objects.create(slug="b", provider="p", name="b")
    model.is_default = True

    model_specs.save_model(model=model, actor="user:1", now=now)

    assert ModelSpec.objects.get(is_default=True).slug == "b"
    assert last_event("model.changed") == {
        "model": "b",
        "changes": {"is_default": {"from": False, "to": True}},
    }


def test_asking_again_adds_only_what_is_new(fake: FakeServer, now: datetime) -> None:
    account = accounts.connect_server(
        name="N", base_url=fake.base_url, api_key=KEY, actor="user:1", now=now
    )
    fake.configure(models=["fake-chat", "fake-large"])

    added = accounts.refresh_models(account=account, actor="user:1", now=now)

    assert [model.name for model in added] == ["fake-large"]
    assert ModelSpec.objects.count() == 3


def test_servers_of_this_host_are_offered_once(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = FoundServer("Ollama", "http://127.0.0.1:11434/v1", ("llama3",))
    empty = FoundServer("vLLM", "http://127.0.0.1:8000/v1", ())

    async def find() -> list[FoundServer]:
        return [here, empty]

    monkeypatch.setattr(discovery, "find_local_servers", find)
    assert accounts.find_unconnected_servers() == [here]

    ProviderAccount.objects.create(slug="o", name="O", base_url=here.base_url)
    assert accounts.find_unconnected_servers() == []
