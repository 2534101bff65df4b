"""Connecting a model server from the first-run page."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone, translation
from pytest_django.fixtures import Settings

from chats.ground.refusals import Refusal
from chats.models import ProviderAccount
from chats.people import signin
from chats.people.sessions import SIGNED_IN_AT
from chats.providers import account_refusals, accounts, kinds, small_account
from chats.providers.base import ProviderError
from chats.providers.discovery import FoundServer
from chats.turns import breaker
from contextpolicy.models import AuditEvent, ModelSpec
from tests.fakes.fake_server import FakeServer
from tests.support.chat_pages import HTMX


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on this host."""
    monkeypatch.setattr(accounts, "find_unconnected_servers", list)


@pytest.fixture
def operator(alice: User, page: Client) -> User:
    """Alice may connect servers, and has just signed in."""
    alice.user_permissions.add(Permission.objects.get(codename="change_provideraccount"))
    signed_in(page, at=timezone.now())
    return alice


@pytest.fixture(scope="module")
def running_fake() -> Iterator[FakeServer]:
    """A model server."""
    with FakeServer() as server:
        yield server


@pytest.fixture
def fake(running_fake: FakeServer, settings: Settings) -> FakeServer:
    """The model server, which this instance may call."""
    settings.ALLOWED_PRIVATE_PROVIDERS = [running_fake.host]
    return running_fake


def signed_in(page: Client, *, at: datetime) -> None:
    """Move the sign-in of a browser's session."""
    session = page.session
    session[SIGNED_IN_AT] = at.isoformat()
    session.save()


def test_who_may_not_connect_is_told_who_may(page: Client) -> None:
    html = page.get("/setup/").content.decode()

    assert 'data-note="operators-only"' in html
    assert 'name="api_key"' not in html


def test_who_may_not_connect_is_refused(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "connect_server", lambda **_: pytest.fail("connected"))

    response = page.post("/setup/", {"base_url": "https://api.example.com/v1"})

    assert response.status_code == 403
    assert 'data-reason="not_permitted"' in response.content.decode()


def test_an_operator_connects_a_server(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def connect(**call: Any) -> ProviderAccount:
        calls.append(call)
        return ProviderAccount(slug="mine", name="Mine")

    monkeypatch.setattr(accounts, "connect_server", connect)

    form = {"name": "Mine", "base_url": "https://api.example.com/v1", "api_key": "sk-secret"}
    response = page.post("/setup/", form)

    assert response.headers["Location"] == "/setup/"
    assert form.items() <= calls[0].items()
    assert calls[0]["actor"] == f"user:{operator.pk}"


def test_a_refused_server_keeps_what_was_typed_but_never_the_key(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise Refusal

    monkeypatch.setattr(accounts, "connect_server", refuse)

    form = {"name": "Mine", "base_url": "https://api.example.com/v1", "api_key": "sk-secret"}
    response = page.post("/setup/", form)

    html = response.content.decode()
    assert response.status_code == 400
    assert 'data-reason="refused"' in html
    assert 'value="https://api.example.com/v1"' in html
    assert "sk-secret" not in html


def test_a_server_on_this_host_is_offered_with_its_models(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FoundServer("Ollama", "http://127.0.0.1:11434/v1", ("qwen3", "llama"))
    monkeypatch.setattr(accounts, "find_unconnected_servers", lambda: [server])

    html = page.get("/setup/").content.decode()

    assert 'id="found-title"' in html
    assert "qwen3, llama" in html


def test_a_connected_server_shows_the_end_of_its_key_only(page: Client) -> None:
    ProviderAccount.objects.create(
        slug="m", name="Mine", base_url="https://m.example/v1", key_last_four="4f2a"
    )

    html = page.get("/setup/").content.decode()

    assert "•••• 4f2a" in html


@pytest.mark.parametrize(("minutes", "is_paused"), [(1, True), (-1, False)])
def test_f12_a_refused_key_is_told_as_long_as_its_server_is_not_asked(
    page: Client, minutes: int, is_paused: bool
) -> None:
    until = timezone.now() + timedelta(minutes=minutes)
    ProviderAccount.objects.create(
        slug="locked",
        name="Locked",
        kind="openai",
        base_url="https://api.example.com/v1",
        paused_until=until,
        paused_reason=breaker.REASONS["provider_auth"],
    )

    html = page.get("/setup/").content.decode()

    assert ("Paused</span>" in html) is is_paused
    assert (breaker.REASONS["provider_auth"][1:] in html) is is_paused


def test_the_reason_of_a_pause_follows_the_language(admin_client: Client) -> None:
    english = breaker.REASONS["provider_auth"]
    account = ProviderAccount.objects.create(
        slug="locked",
        name="Locked",
        kind="openai",
        base_url="https://api.example.com/v1",
        paused_until=timezone.now() + timedelta(minutes=1),
        paused_reason=english,
    )
    with translation.override("zh-hans"):
        chinese = translation.gettext(english)
    assert chinese != english
    signed_in(admin_client, at=timezone.now())

    for path in ("/setup/", f"/admin/chats/provideraccount/{account.pk}/change/"):
        html = admin_client.get(path, headers={"Accept-Language": "zh-hans"}).content.decode()
        assert chinese in html
        assert english[1:] not in html


def test_the_settings_page_names_the_person_and_the_keys(page: Client, alice: User) -> None:
    html = page.get("/settings/").content.decode()

    assert alice.username in html
    assert "Sign out" in html
    assert "Shift Enter" in html


def test_an_older_sign_in_is_confirmed_in_the_form_and_nothing_typed_is_lost(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.set_password("correct horse battery")
    operator.save()
    page.force_login(operator)
    signed_in(page, at=timezone.now() - timedelta(minutes=16))
    monkeypatch.setattr(accounts, "connect_server", lambda **_: pytest.fail("connected"))
    form = {"name": "Mine", "base_url": "https://api.example.com/v1", "api_key": "sk-secret"}
    html = page.get("/setup/").content.decode()
    assert 'name="confirm_password"' in html

    for proof, status in (({}, 403), ({"confirm_password": "wrong"}, 422)):
        refused = page.post("/setup/", {**form, **proof})
        html = refused.content.decode()
        assert refused.status_code == status
        assert 'value="https://api.example.com/v1"' in html
        assert 'name="confirm_password"' in html
        assert "sk-secret" not in html
    # A form that htmx sent stays in the browser, key and all; it gets the question alone.
    swapped = page.post("/setup/", form, headers=HTMX).content.decode()
    assert 'id="confirm-here" hx-swap-oob="true"' in swapped
    assert 'data-reason="reauthentication_required"' in swapped

    monkeypatch.setattr(
        accounts, "connect_server", lambda **_: ProviderAccount(slug="m", name="Mine")
    )
    done = page.post("/setup/", {**form, "confirm_password": "correct horse battery"}, headers=HTMX)
    assert done.headers["HX-Redirect"] == "/setup/"
    assert "Mine responded in" in page.get("/setup/").content.decode()
    assert page.post("/setup/", form).headers["Location"] == "/setup/"


def test_who_has_no_password_confirms_by_a_new_link(
    page: Client, operator: User, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.set_unusable_password()
    operator.save()
    page.force_login(operator)
    signed_in(page, at=timezone.now() - timedelta(minutes=16))
    monkeypatch.setattr(
        accounts, "connect_server", lambda **_: ProviderAccount(slug="m", name="Mine")
    )
    form = {"base_url": "https://api.example.com/v1"}
    assert 'name="confirm_link"' in page.get("/setup/").content.decode()
    now = timezone.now()
    foreign = signin.create_link(user=charlie, now=now)
    own = signin.create_link(user=operator, now=now)
    for link in ("nonsense", f"http://localhost/login/link/{foreign}/"):
        refused = page.post("/setup/", {**form, "confirm_link": link})
        assert refused.status_code == 422
        assert 'data-reason="not_confirmed"' in refused.content.decode()
    proof = {"confirm_link": f"http://localhost/login/link/{own}/"}
    assert page.post("/setup/", {**form, **proof}).headers["Location"] == "/setup/"
    signed_in(page, at=now - timedelta(minutes=16))
    assert page.post("/setup/", {**form, **proof}).status_code == 422
    # Charlie's link was not used up.
    assert signin.use_link(token=foreign, address="x", now=now) == charlie


def test_a_connected_server_is_tested_edited_and_disconnected(
    page: Client, operator: User, fake: FakeServer
) -> None:
    fake.configure(models=["chatty", "text-embedding-3"])
    form = {"name": "Mine", "base_url": fake.base_url}
    html = page.post("/setup/", form, follow=True).content.decode()
    assert "Mine responded in 0." in html
    assert "Chat models: 1. Other models, disabled: 1." in html
    assert "chatty</bdi>" in html
    assert "text-embedding-3" not in html
    assert 'href="/setup/search-model"' in html

    twice = page.post("/setup/", form)
    assert twice.status_code == 409
    assert "already connected as “Mine”" in twice.content.decode()

    fake.configure(models=["chatty", "newer"])
    html = page.post("/setup/mine/test", follow=True).content.decode()
    assert "Chat models: 2." in html

    assert 'value="Mine"' in page.get("/setup/mine/").content.decode()
    page.post("/setup/mine/", {**form, "name": "Ours", "api_key": "sk-0123456789abcd1234"})
    account = ProviderAccount.objects.get(slug="mine")
    assert (account.name, account.key_last_four) == ("Ours", "1234")

    html = page.post("/setup/mine/disconnect", follow=True).content.decode()
    assert "Ours was disconnected" in html
    assert not ProviderAccount.objects.filter(slug="mine").exists()
    assert not ModelSpec.objects.filter(provider="mine", enabled=True).exists()


def test_an_operator_sets_what_models_cost(page: Client, operator: User) -> None:
    ProviderAccount.objects.create(slug="m", name="Mine", base_url="https://m.example/v1")
    ModelSpec.objects.create(slug="big", provider="m", name="big", output_price="0.5")
    ModelSpec.objects.create(slug="other", provider="elsewhere", name="other")
    html = page.get("/setup/m/").content.decode()
    assert 'name="big-output_price" value="0.5"' in html
    assert "other" not in html.split("Prices", 1)[1]
    typed = {"big-input_price": "2.50", "big-cached_price": "0.25", "big-output_price": ""}
    asked = {**typed, "big-currency": "EUR", "other-input_price": "9"}
    html = page.post("/setup/m/prices", asked, follow=True).content.decode()
    assert "Prices of 1 model changed" in html
    model = ModelSpec.objects.get(slug="big")
    assert (str(model.input_price), str(model.cached_price)) == ("2.500000", "0.250000")
    assert (model.output_price, model.currency) == (None, "EUR")
    assert ModelSpec.objects.get(slug="other").input_price is None
    changes = AuditEvent.objects.get(type="model.changed").data["changes"]
    assert changes["currency"] == {"from": "", "to": "EUR"}
    page.post("/setup/m/prices", asked)
    assert AuditEvent.objects.filter(type="model.changed").count() == 1


@pytest.mark.parametrize("typed", ["-1", "1e9", "NaN", "a lot", "0.1234567", "Infinity"])
def test_a_price_that_is_none_is_refused_and_kept(page: Client, operator: User, typed: str) -> None:
    ProviderAccount.objects.create(slug="m", name="Mine", base_url="https://m.example/v1")
    ModelSpec.objects.create(slug="big", provider="m", name="big", output_price="0.5")
    answer = page.post("/setup/m/prices", {"big-output_price": "3", "big-input_price": typed})
    assert answer.status_code == 422
    html = answer.content.decode()
    assert f"The price “{typed}” of big is not valid" in html
    assert f'name="big-input_price" value="{typed}"' in html
    assert str(ModelSpec.objects.get(slug="big").output_price) == "0.500000"
    long = page.post("/setup/m/prices", {"big-currency": "US DOLLARS"})
    assert "at most 8 letters" in long.content.decode()


@pytest.mark.parametrize("action", ["", "test", "prices", "disconnect"])
def test_only_an_operator_touches_a_server(page: Client, action: str) -> None:
    ProviderAccount.objects.create(slug="m", name="Mine", base_url="https://m.example/v1")
    assert page.post(f"/setup/m/{action}").status_code == 403
    assert ProviderAccount.objects.filter(name="Mine").exists()


def test_an_older_sign_in_disconnects_nothing(page: Client, operator: User) -> None:
    ProviderAccount.objects.create(slug="m", name="Mine", base_url="https://m.example/v1")
    signed_in(page, at=timezone.now() - timedelta(minutes=16))
    assert page.post("/setup/m/disconnect").status_code == 403
    assert ProviderAccount.objects.filter(slug="m").exists()


def test_the_small_model_is_offered_while_it_runs_and_is_not_connected(
    page: Client, operator: User, fake: FakeServer, demo_model: ModelSpec, settings: Settings
) -> None:
    assert "135 million parameters" not in page.get("/setup/").content.decode()

    settings.SMALL_MODEL_URL = fake.base_url
    html = page.get("/setup/").content.decode()
    assert "135 million parameters" in html
    assert f'name="base_url" value="{fake.base_url}"' in html

    fake.configure(models=["tiny"])
    form = {"name": small_account.NAME, "base_url": fake.base_url}
    html = page.post("/setup/", form, follow=True).content.decode()
    assert "Small model responded in" in html
    assert "135 million parameters" not in html
    tiny = ModelSpec.objects.get(name="tiny")
    assert (tiny.is_default, tiny.supports_tools, tiny.max_output) == (False, False, 512)
    assert ModelSpec.objects.get(is_default=True) == demo_model


def test_the_small_model_is_offered_to_operators_alone(page: Client, settings: Settings) -> None:
    settings.SMALL_MODEL_URL = "http://127.0.0.1:4321/v1"
    assert "135 million parameters" not in page.get("/setup/").content.decode()


@pytest.fixture(scope="module")
def running_anthropic() -> Iterator[FakeServer]:
    """A server with Anthropic's interface."""
    with FakeServer(kind="anthropic") as server:
        yield server


@pytest.fixture
def anthropic(running_anthropic: FakeServer, settings: Settings) -> FakeServer:
    """That server, which this instance may call; its list states what its model takes."""
    settings.ALLOWED_PRIVATE_PROVIDERS = [running_anthropic.host]
    running_anthropic.configure(models=[{"id": "claude-fake", "max_input_tokens": 200_000}])
    return running_anthropic


def test_a_server_with_anthropics_interface_is_connected_tested_and_edited(
    page: Client, operator: User, anthropic: FakeServer
) -> None:
    assert 'value="anthropic"' in page.get("/setup/").content.decode()
    form = {
        "kind": "anthropic",
        "name": "Claude",
        "base_url": f"{anthropic.base_url}/v1/",
        "api_key": "sk-ant-canary-0123456789",
    }
    assert page.post("/setup/", form).headers["Location"] == "/setup/"

    account = ProviderAccount.objects.get(slug="claude")
    assert (account.kind, account.base_url) == ("anthropic", anthropic.base_url)
    model = ModelSpec.objects.get(provider="claude")
    assert (model.name, model.context_window, model.is_default) == ("claude-fake", 200_000, True)
    html = page.get("/setup/").content.decode()
    assert "Claude responded in" in html
    assert str(ProviderAccount.Kind.ANTHROPIC.label) in html

    anthropic.configure(models=["claude-fake", "claude-next"])
    assert page.post("/setup/claude/test").status_code == 302
    assert ModelSpec.objects.filter(provider="claude").count() == 2
    html = page.get("/setup/claude/").content.decode()
    assert 'name="kind"' not in html
    assert "/chat/completions" not in html
    changed = {"name": "Sonnets", "base_url": anthropic.base_url, "api_key": ""}
    assert page.post("/setup/claude/", changed).status_code == 302
    account.refresh_from_db()
    assert (account.name, account.kind) == ("Sonnets", "anthropic")


def test_without_an_address_it_is_anthropics_own(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def offered(**call: Any) -> dict[str, int | None]:
        asked.append(call)
        return {"claude-fake": None}

    monkeypatch.setattr(accounts, "fetch_server_models", offered)
    page.post("/setup/", {"kind": "anthropic", "api_key": "sk-ant-canary"})
    assert asked == [
        {"base_url": kinds.ANTHROPIC_URL, "api_key": "sk-ant-canary", "kind": "anthropic"}
    ]
    assert ProviderAccount.objects.get(kind="anthropic").name == "api.anthropic.com"


def test_without_its_package_the_page_says_how_it_is_installed(
    page: Client, operator: User, anthropic: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "find_spec", lambda name: None)
    html = page.get("/setup/").content.decode()
    assert "make anthropic" in html
    form = {"kind": "anthropic", "base_url": anthropic.base_url}
    refused = page.post("/setup/", form)
    assert refused.status_code == 409
    assert "make anthropic" in refused.content.decode()
    assert not ProviderAccount.objects.filter(kind="anthropic").exists()


def test_a_kind_that_does_not_exist_is_refused(page: Client, operator: User) -> None:
    for kind in ("demo", "<b>"):
        refused = page.post("/setup/", {"kind": kind, "base_url": "https://api.example.com/v1"})
        assert refused.status_code == 422
        assert 'data-reason="unknown_kind"' in refused.content.decode()


def test_a_server_that_offers_nothing_is_not_stored(
    page: Client, operator: User, anthropic: FakeServer
) -> None:
    anthropic.configure(models=[])
    refused = page.post("/setup/", {"kind": "anthropic", "base_url": anthropic.base_url})
    assert refused.status_code == 422
    assert 'data-reason="no_models_offered"' in refused.content.decode()
    assert not ProviderAccount.objects.filter(kind="anthropic").exists()


def test_the_form_comes_first_and_its_refusal_stands_at_its_button(
    page: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise account_refusals.NoModelsOffered

    server = FoundServer("Ollama", "http://127.0.0.1:11434/v1", ("qwen3",))
    monkeypatch.setattr(accounts, "find_unconnected_servers", lambda: [server])
    monkeypatch.setattr(accounts, "connect_server", refuse)
    html = page.get("/setup/").content.decode()
    titles = [html.index(f'id="{name}-title"') for name in ("add", "found", "connected")]
    assert titles == sorted(titles)
    form = {"base_url": "https://api.example.com/v1"}
    html = page.post("/setup/", form).content.decode()
    told = html.index('data-reason="no_models_offered"')
    assert html.count("data-reason=") == 1
    assert html.index('id="server-name_helptext"') < told < html.index('data-act="save-server"')
    swapped = page.post("/setup/", form, headers=HTMX)
    assert swapped.headers["HX-Retarget"] == "#server-refusal"
    assert swapped.headers["HX-Reselect"] == "#refusal"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            {"code": "provider_auth", "status": 401},
            "key (status 401). Check the key",
        ),
        (
            {"code": "provider_unavailable"},
            str(account_refusals.SETUP_SENTENCES["provider_unavailable"]),
        ),
        ({"code": "provider_rejected", "status": 404}, "(status 404). Check the address"),
        ({"code": "provider_rejected", "sentence": "Out of credit."}, "Out of credit."),
    ],
)
def test_a_refusal_names_its_reason_and_the_remedy(fault: dict[str, Any], words: str) -> None:
    code = fault.pop("code")
    assert words in account_refusals.ServerRefused(ProviderError(code, **fault)).sentence
