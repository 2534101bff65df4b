"""Operators connect providers and configure models in the administration."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chats.admin.providers import NOT_CALIBRATED
from chats.ground import secrets
from chats.models import ProviderAccount
from chats.providers import account_refusals, accounts, model_specs
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.roles import OPERATOR
from tests.contextpolicy.pages import Page, message_codes, opened, submitted
from tests.contextpolicy.people import person, signed_in
from tests.fakes.fake_server import FakeServer
from tests.support.provider_pages import ADD_PROVIDER, PROVIDER_LIST, get_provider_page

pytestmark = pytest.mark.django_db

KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
def account(now: datetime) -> ProviderAccount:
    """A provider with a key."""
    return accounts.save_provider_account(
        account=ProviderAccount(slug="hosted"),
        values={
            "name": "Hosted",
            "kind": "openai",
            "base_url": "https://api.example.com/v1",
            "enabled": True,
        },
        api_key=KEY,
        actor="system",
        now=now,
    )


def test_an_account_is_made_with_its_key(operator: Client) -> None:
    answer = submitted(
        operator,
        ADD_PROVIDER,
        name="Hosted",
        slug="hosted",
        kind="openai",
        base_url="https://api.example.com/v1/",
        api_key=KEY,
        enabled="on",
    )

    assert answer.status_code == 302
    account = ProviderAccount.objects.get()
    assert account.base_url == "https://api.example.com/v1"
    assert secrets.decrypt(account.encrypted_key) == KEY
    assert AuditEvent.objects.get(type="provider.created").actor.startswith("user:")


def test_S14_the_key_is_on_no_page(operator: Client, account: ProviderAccount) -> None:
    wrong = submitted(operator, get_provider_page(account), api_key=KEY, base_url="nowhere")
    history = reverse("admin:chats_provideraccount_history", args=[account.pk])
    pages = [
        wrong,
        *(operator.get(url) for url in (get_provider_page(account), PROVIDER_LIST, history)),
    ]

    for page in pages:
        html = page.content.decode()
        assert page.status_code == 200
        assert KEY not in html
        assert KEY[:12] not in html
        assert account.encrypted_key not in html
    assert "…cdef" in Page(pages[1].content.decode()).words


def test_saving_without_a_key_keeps_the_stored_one(
    operator: Client, account: ProviderAccount
) -> None:
    submitted(operator, get_provider_page(account), name="Better")

    account.refresh_from_db()
    assert account.name == "Better"
    assert secrets.decrypt(account.encrypted_key) == KEY


def test_S15_another_host_clears_the_key_and_says_so(
    operator: Client, account: ProviderAccount
) -> None:
    submitted(operator, get_provider_page(account), base_url="https://evil.example.net/v1")

    account.refresh_from_db()
    assert account.encrypted_key == ""
    assert message_codes(operator.get(PROVIDER_LIST))[:1] == ["key_deleted"]


@pytest.mark.parametrize(
    "base_url",
    ["http://169.254.169.254/latest", "http://2852039166/", "https://u:p@example.com", "", "x"],
)
def test_S15_an_address_that_may_not_be_called_is_said_at_its_field(
    base_url: str, operator: Client, account: ProviderAccount
) -> None:
    answer = submitted(operator, get_provider_page(account), base_url=base_url)

    assert answer.status_code == 200
    assert "base_url" in answer.context["adminform"].form.errors
    account.refresh_from_db()
    assert account.base_url == "https://api.example.com/v1"


def test_a_key_that_cannot_be_sent_is_said_at_its_field(
    operator: Client, account: ProviderAccount
) -> None:
    answer = submitted(operator, get_provider_page(account), api_key="two words")

    assert answer.context["adminform"].form.errors["api_key"] == [
        account_refusals.KeyNotPlain.sentence
    ]


def test_S03_fields_that_are_not_offered_are_not_taken(
    operator: Client, account: ProviderAccount
) -> None:
    submitted(
        operator,
        get_provider_page(account),
        encrypted_key="mine",
        key_last_four="0000",
        slug="other",
        paused_reason="x",
    )

    account.refresh_from_db()
    assert secrets.decrypt(account.encrypted_key) == KEY
    assert (account.slug, account.key_last_four, account.paused_reason) == ("hosted", "cdef", "")


@pytest.mark.parametrize(
    ("field", "value", "stays"),
    [("label", "Other", True), ("name", "other", False), ("provider", "hosted", False)],
)
def test_learned_values_stay_until_the_model_is_another_one(
    operator: Client,
    account: ProviderAccount,
    demo_model: ModelSpec,
    field: str,
    value: str,
    stays: bool,
) -> None:
    options = {"most_output": 8192}
    learned = {"learned_options": options, "learned_window": 4096}
    ModelSpec.objects.filter(pk=demo_model.pk).update(**learned)
    address = reverse("admin:contextpolicy_modelspec_change", args=[demo_model.pk])
    assert submitted(operator, address, **{field: value}).status_code == 302
    stored = ModelSpec.objects.get(pk=demo_model.pk)
    assert getattr(stored, field) == value
    assert stored.learned_options == (options if stays else {})
    assert stored.learned_window == (4096 if stays else None)


def test_a_form_keeps_options_that_were_learned_since_it_was_read(
    demo_model: ModelSpec, now: datetime
) -> None:
    options = {"most_output": 8192}
    learned = {"learned_options": options, "learned_window": 4096}
    ModelSpec.objects.filter(pk=demo_model.pk).update(**learned)
    model_specs.save_model(model=demo_model, actor="user:1", now=now)
    demo_model.refresh_from_db()
    assert (demo_model.learned_options, demo_model.learned_window) == (options, 4096)


def test_S11_keys_ask_for_a_fresh_sign_in(account: ProviderAccount) -> None:
    otto = person("otto", OPERATOR)
    stale = signed_in(otto, at=timezone.now() - timedelta(minutes=20))

    for url in (
        ADD_PROVIDER,
        get_provider_page(account),
        f"{get_provider_page(account)[:-7]}delete/",
    ):
        for answer in (stale.get(url), stale.post(url, {"name": "x", "post": "yes"})):
            assert answer.status_code == 302
            assert answer.headers["Location"] == f"/account/confirm/?next={url}"
    assert ProviderAccount.objects.get().name == "Hosted"
    assert stale.get(PROVIDER_LIST).status_code == 200


def test_the_servers_models_are_fetched_by_an_action(operator: Client, fake: FakeServer) -> None:
    submitted(
        operator,
        ADD_PROVIDER,
        name="Here",
        slug="here",
        kind="openai",
        base_url=fake.base_url,
        enabled="on",
    )
    account = ProviderAccount.objects.get()

    operator.post(PROVIDER_LIST, {"action": "fetch_models", "_selected_action": [account.pk]})

    assert "Here: 2 new models." in opened(operator, PROVIDER_LIST).words
    assert ModelSpec.objects.filter(provider="here").count() == 2


def test_a_server_that_fails_is_named(
    operator: Client, account: ProviderAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_given: object) -> None:
        raise account_refusals.NoModelsOffered

    monkeypatch.setattr(accounts, "refresh_models", refuse)

    operator.post(PROVIDER_LIST, {"action": "fetch_models", "_selected_action": [account.pk]})

    assert (
        "Hosted: The server responded but has no models." in opened(operator, PROVIDER_LIST).words
    )


def test_an_account_is_removed_with_a_record(operator: Client, account: ProviderAccount) -> None:
    url = reverse("admin:chats_provideraccount_delete", args=[account.pk])

    assert operator.post(url, {"post": "yes"}).status_code == 302

    assert not ProviderAccount.objects.exists()
    assert AuditEvent.objects.filter(type="provider.deleted").count() == 1


class TestModels:
    @pytest.fixture
    def model(self, account: ProviderAccount) -> ModelSpec:
        ModelSpec.objects.create(slug="old", provider="hosted", name="old", is_default=True)
        return ModelSpec.objects.create(slug="m", provider="hosted", name="m")

    def test_limits_and_prices_are_set_with_a_record(
        self, operator: Client, model: ModelSpec
    ) -> None:
        url = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])

        asked = {"context_window": "32768", "input_price": "0.25", "strict_roles": "on"}
        asked["cannot_stream"] = "on"
        answer = submitted(operator, url, label="M", **asked)

        assert answer.status_code == 302
        model.refresh_from_db()
        assert (model.context_window, model.input_price) == (32_768, Decimal("0.25"))
        changes = AuditEvent.objects.get(type="model.changed").data["changes"]
        assert changes["context_window"] == {"from": None, "to": 32_768}
        assert changes["input_price"] == {"from": None, "to": "0.25"}
        assert model.strict_roles
        assert changes["strict_roles"] == {"from": False, "to": True}
        assert changes["cannot_stream"] == {"from": False, "to": True}

    @pytest.mark.parametrize(
        ("entered", "stored"),
        [
            ("web_search,web_search  code_interpreter", "web_search, code_interpreter"),
            ("$web_search", "$web_search"),
            ("web_search、code_interpreter，x", "web_search, code_interpreter, x"),
            ("web_search, function", ""),
            ("<b>", ""),
        ],
    )
    def test_types_of_hosted_tools_are_a_list(
        self, operator: Client, model: ModelSpec, entered: str, stored: str
    ) -> None:
        url = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])
        # The separator of lists in texts depends on the language, that of this list does not.
        operator.cookies["django_language"] = "zh-hans"
        answer = submitted(operator, url, hosted_tools=entered)
        model.refresh_from_db()
        assert model.hosted_tools == stored
        if stored:
            changes = AuditEvent.objects.get(type="model.changed").data["changes"]
            assert changes["hosted_tools"] == {"from": "", "to": stored}
        else:
            assert list(answer.context["adminform"].form.errors) == ["hosted_tools"]

    def test_a_new_default_takes_the_place_of_the_old(
        self, operator: Client, model: ModelSpec
    ) -> None:
        url = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])

        answer = submitted(operator, url, answers_by_default="on")

        assert answer.status_code == 302
        assert ModelSpec.objects.get(is_default=True) == model

    def test_what_was_learned_is_shown_and_not_taken(
        self, operator: Client, model: ModelSpec
    ) -> None:
        url = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])

        submitted(operator, url, calibration="1.9", learned_window="7", label="M")

        model.refresh_from_db()
        assert (model.calibration, model.learned_window) == (1.0, None)

    def test_the_calibration_is_told_with_what_stands_behind_it(
        self, operator: Client, model: ModelSpec
    ) -> None:
        url = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])
        assert str(NOT_CALIBRATED) in opened(operator, url).words

        ModelSpec.objects.filter(pk=model.pk).update(calibration=1.34, calibration_samples=110)

        words = opened(operator, url).words
        assert (
            "1.340: the provider counts about 1,340 tokens where Palimpsest counts 1,000." in words
        )
        assert "Learned from 110 replies." in words

    def test_the_calibration_is_forgotten_with_a_record(
        self, operator: Client, model: ModelSpec
    ) -> None:
        ModelSpec.objects.filter(pk=model.pk).update(calibration=1.5, calibration_samples=9)
        url = reverse("admin:contextpolicy_modelspec_change", args=[model.pk])

        submitted(operator, url, label="M")
        model.refresh_from_db()
        assert (model.calibration, model.calibration_samples) == (1.5, 9)

        submitted(operator, url, forget_calibration="on")
        model.refresh_from_db()
        assert (model.calibration, model.calibration_samples) == (1.0, 0)
        event = AuditEvent.objects.filter(type="model.changed").order_by("-id")[0]
        assert event.data["changes"] == {"calibration": {"from": 1.5, "to": 1.0}}

    def test_a_model_can_be_added_by_hand(self, operator: Client, model: ModelSpec) -> None:
        answer = submitted(
            operator,
            reverse("admin:contextpolicy_modelspec_add"),
            slug="new",
            provider="hosted",
            name="new-model",
        )

        assert answer.status_code == 302
        assert ModelSpec.objects.get(slug="new").name == "new-model"
