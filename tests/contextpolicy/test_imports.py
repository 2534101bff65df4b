"""A strategy in another system's format becomes a policy, through the administration."""

import json
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from contextpolicy import policy_refusals, publish
from contextpolicy.import_json import LONGEST_IMPORT
from contextpolicy.imports import PolicyExists, export_policy, import_strategy
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec, PolicyVersion
from contextpolicy.plugins import MalformedImport
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import Page, opened
from tests.contextpolicy.people import person, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.requirement("S2.6")]

IMPORT = "/admin/contextpolicy/contextpolicy/import/"
LIST = "/admin/contextpolicy/contextpolicy/"
FORM = {
    "id": "my-complex-agent",
    "contextStrategy": {
        "type": "plugin",
        "pluginId": "std-summarization-strategy",
        "config": {"compressionModel": "light", "threshold": 20},
    },
}
VALUES = {"strategy": "dynamic_summary", "summarization_model": "light", "turn_threshold": 20}


@pytest.fixture
def admin(db: None) -> User:
    """Ines administers policies, and there is a light model."""
    ModelSpec.objects.create(slug="light", provider="demo", name="light")
    return person("ines", POLICY_ADMIN)


@pytest.fixture
def browser(admin: User) -> Client:
    """The browser of Ines."""
    return signed_in(admin)


@pytest.fixture
def state(now: datetime) -> ContextPolicy:
    """A policy with a strategy config and other values."""
    values = {
        "strategy": "questions_only",
        "strategy_config": {"count": 2},
        "state_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "token_budget": 24_000,
        "archive": False,
    }
    policy = publish.create_policy(slug="s", name="S", values={}, actor="system", now=now)
    PolicyVersion.objects.filter(policy=policy).update(values=values, locks=["token_budget"])
    policy.refresh_from_db()
    return policy


def give(text: str | None = None, **options: Any) -> Any:
    """Import a document as the product does."""
    return import_strategy(
        text=json.dumps(FORM) if text is None else text,
        actor="user:1",
        **{"now": datetime.fromisoformat("2026-11-20T12:00:00+00:00"), **options},
    )


def test_the_documents_own_example_becomes_a_policy_that_applies_nowhere_yet(
    browser: Client, admin: User
) -> None:
    answer = browser.post(IMPORT, {"pasted": json.dumps(FORM)}, follow=True)

    policy = ContextPolicy.objects.get()
    assert (policy.slug, policy.name) == ("my-complex-agent", "my-complex-agent")
    assert policy.current is not None
    assert (policy.current.number, policy.current.values) == (1, VALUES)
    assert policy.current.created_by_id == admin.pk
    assert policy.current.note == "Imported: my-complex-agent"
    assert not policy.assignments.exists()
    events = AuditEvent.objects.filter(actor=f"user:{admin.pk}").values_list("type", flat=True)
    assert list(events.order_by("id")) == ["policy.created", "policy.version_created"]
    assert answer.redirect_chain[-1][0] == f"{LIST}{policy.pk}/change/"
    page = Page(answer.content.decode())
    assert "Imported as version 1 of my-complex-agent." in page.words
    assert page.fields["turn_threshold"] == ["20"]


def test_a_file_is_taken_and_counts_before_the_text(browser: Client) -> None:
    file = SimpleUploadedFile("plugin.json", b"\xef\xbb\xbf" + json.dumps(FORM).encode())
    browser.post(IMPORT, {"file": file, "pasted": "not this", "name": "Agents"})
    policy = ContextPolicy.objects.get()
    assert (policy.slug, policy.name) == ("agents", "Agents")
    assert policy.current is not None
    assert policy.current.values == VALUES


def test_into_a_policy_it_replaces_the_whole_strategy_and_nothing_else(
    browser: Client, state: ContextPolicy
) -> None:
    browser.post(IMPORT, {"pasted": json.dumps(FORM), "into": state.pk})

    state.refresh_from_db()
    assert state.current is not None
    assert state.current.number == 2
    assert state.current.values == {**VALUES, "token_budget": 24_000, "archive": False}
    assert state.current.locks == ["token_budget"]
    assert state.versions.get(number=1).values["strategy"] == "questions_only"
    assert ContextPolicy.objects.count() == 1


def test_what_works_but_may_surprise_is_said(browser: Client) -> None:
    form = {"type": "plugin", "pluginId": "simple", "config": {"reserve_tokens": 100}}
    answer = browser.post(IMPORT, {"pasted": json.dumps(form), "name": "Short"}, follow=True)
    # As a message if it is about the whole policy, and at its field.
    assert Page(answer.content.decode()).words.count("Replies are cut at 100 tokens.") == 3


# The text, the code of the error on the page, and a name or number that the page says.
BAD: dict[str, tuple[str, str, str]] = {
    "no json": ("{", "not_json", "line 1, column 2"),
    "nothing": (" ", "empty", "JSON"),
    "another form": ('{"type": "builtin"}', "wrong_form", "pluginId"),
    "unknown strategy": ('{"type": "plugin", "pluginId": "x"}', "unknown_strategy", "'x'"),
    "unknown key": (
        '{"type": "plugin", "pluginId": "simple", "config": {"mood": 1}}',
        "wrong_keys",
        "'mood'",
    ),
    "unknown model": (
        json.dumps(FORM).replace("light", "gemini-1.5-flash"),
        "unknown_model",
        "'gemini-1.5-flash'",
    ),
    "wrong kind": (json.dumps(FORM).replace("20", '"many"'), "malformed_policy", "turn_threshold"),
    "not a number": (json.dumps(FORM).replace("20", "NaN"), "not_storable", "JSON"),
    "endless number": (json.dumps(FORM).replace("20", "1e999"), "not_storable", "JSON"),
    "endless digits": (json.dumps(FORM).replace("20", "9" * 5000), "not_storable", "JSON"),
    "half a pair": (json.dumps(FORM).replace("light", "\\ud800"), "not_storable", "JSON"),
    "a NUL": (json.dumps(FORM).replace("light", "\\u0000"), "not_storable", "JSON"),
    "nested": ("[" * 90_000, "too_deep", "JSON"),
    "many levels": (json.dumps(FORM).replace('"light"', "[" * 30 + "]" * 30), "too_deep", "JSON"),
    "levels below Python's limit": ("[" * 970 + "]" * 970, "too_deep", "JSON"),
    "too long": ('"' + "x" * LONGEST_IMPORT + '"', "too_long", f"{LONGEST_IMPORT + 2:,}"),
    "no name": (json.dumps(FORM["contextStrategy"]), "no_name", "ID"),
}


def error_codes(answer: Any) -> set[str]:
    """Return the codes of the errors on the form of an import."""
    found = answer.context["form"].errors.as_data().values()
    return {error.code for errors in found for error in errors}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_refused_changes_nothing_and_is_said_on_the_page(
    kind: str, browser: Client, state: ContextPolicy
) -> None:
    text, code, named = BAD[kind]
    before = AuditEvent.objects.count()
    answer = browser.post(IMPORT, {"pasted": text})
    page = Page(answer.content.decode())
    assert answer.status_code == 200
    assert error_codes(answer) == {code}
    (errors,) = answer.context["form"].errors.values()
    assert all(said in page.words and named in said for said in map(str, errors))
    assert page.fields["pasted"] == [text]
    assert (ContextPolicy.objects.count(), PolicyVersion.objects.count()) == (1, 1)
    assert AuditEvent.objects.count() == before


def test_a_name_that_another_policy_has_is_refused_on_the_page(
    browser: Client, now: datetime
) -> None:
    publish.create_policy(slug="other", name="My-Complex-Agent", values={}, actor="system", now=now)

    answer = browser.post(IMPORT, {"pasted": json.dumps(FORM)})

    assert error_codes(answer) == {"policy_name_taken"}
    assert ContextPolicy.objects.count() == 1


def test_a_file_that_is_no_text_is_refused(browser: Client) -> None:
    file = SimpleUploadedFile("x.json", b"\xff\xfe\x00")
    assert error_codes(browser.post(IMPORT, {"file": file})) == {"not_text"}


def test_a_new_policy_never_takes_the_place_of_another(admin: User) -> None:
    give()
    with pytest.raises(PolicyExists, match="my-complex-agent"):
        give()
    assert PolicyVersion.objects.count() == 1


@pytest.mark.usefixtures("db")
def test_an_exported_policy_keeps_its_description_and_a_slug(now: datetime) -> None:
    """A name in another script gives no slug, so the exported one is used."""
    made = publish.create_policy(
        slug="support", name="客服", description="给客服组", values={}, actor="system", now=now
    )
    text = json.dumps(export_policy(made, with_skills=False))
    ContextPolicy.objects.update(current=None)
    PolicyVersion.objects.all().delete()
    made.delete()

    policy = import_strategy(text=text, actor="system", now=now)

    assert (policy.slug, policy.name, policy.description) == ("support", "客服", "给客服组")
    second = import_strategy(text=text, name="Second", actor="system", now=now)
    assert (second.slug, second.description) == ("second", "给客服组")
    with pytest.raises(PolicyExists):
        import_strategy(text=text, name="客服二", actor="system", now=now)


def test_of_two_at_once_the_second_is_told(
    admin: User, state: ContextPolicy, now: datetime
) -> None:
    stale = ContextPolicy.objects.select_related("current").get(pk=state.pk)
    give(into=state)
    with pytest.raises(policy_refusals.PolicyChangedMeanwhile):
        give(into=stale)


def test_a_retired_policy_is_not_offered(browser: Client, state: ContextPolicy) -> None:
    ContextPolicy.objects.update(retired=True)
    answer = browser.post(IMPORT, {"pasted": json.dumps(FORM), "into": state.pk})
    assert "Select a valid choice" in answer.content.decode()


def test_the_list_leads_there_and_only_policy_administrators_may(browser: Client) -> None:
    assert IMPORT in browser.get(LIST).content.decode()
    assert opened(browser, IMPORT).inline == []
    auditor = signed_in(person("ada", AUDITOR))
    assert IMPORT not in auditor.get(LIST).content.decode()
    for answer in (auditor.get(IMPORT), auditor.post(IMPORT, {"pasted": json.dumps(FORM)})):
        assert answer.status_code == 403
    charlie = signed_in(User.objects.create_user("charlie"))
    assert charlie.get(IMPORT).status_code in {302, 403, 404}
    assert not ContextPolicy.objects.exists()


def test_it_is_refused_by_code(admin: User) -> None:
    with pytest.raises(MalformedImport) as refusal:
        give("{}")
    assert refusal.value.code == "malformed_strategy_import"
    assert PolicyExists.code == "policy_exists"


HISTORY = {"keepLastMessages": 12, "maxInputTokensApprox": 9_000, "archiveOnCompact": False}


@pytest.mark.parametrize(
    "form",
    [
        {"id": "ship", "context": {"history": HISTORY}},
        {"id": "ship", **{f"context.history.{key}": value for key, value in HISTORY.items()}},
    ],
    ids=["nested", "dotted"],
)
def test_settings_of_a_kept_history_become_a_policy(browser: Client, form: dict[str, Any]) -> None:
    answer = browser.post(IMPORT, {"into": "", "name": "", "pasted": json.dumps(form)})
    assert answer.status_code == 302, answer.content.decode()
    current = ContextPolicy.objects.get(slug="ship").current
    assert current is not None
    assert current.values == {
        "strategy": "dynamic_summary",
        "keep_last_messages": 12,
        "token_budget": 13_000,
        # Otherwise a quarter of the budget would be reserved, which gives another limit.
        "reserve_tokens": 4_000,
        "archive": False,
    }


@pytest.mark.usefixtures("db")
def test_settings_of_a_kept_history_keep_the_reserve_of_a_draft(now: datetime) -> None:
    policy = publish.create_policy(slug="s", name="S", values={}, actor="system", now=now)
    draft = {"reserve_tokens": 2_000, "token_budget": 8_000}
    publish.create_policy_version(
        policy=policy, values=draft, locks=[], note="", actor="system", now=now, is_draft=True
    )
    form = json.dumps({"context": {"history": {"maxInputTokensApprox": 9_000}}})

    import_strategy(text=form, into=policy, actor="system", now=now)

    values = policy.versions.latest("number").values
    assert (values["reserve_tokens"], values["token_budget"]) == (2_000, 11_000)


@pytest.mark.parametrize(
    "history", [{"keepLastMessages": "12"}, {"archiveOnCompact": 1}, {"keep": 3}]
)
def test_settings_of_a_kept_history_that_nothing_stands_for_are_refused(
    browser: Client, history: dict[str, Any]
) -> None:
    form = {"id": "ship", "context": {"history": history}}
    answer = browser.post(IMPORT, {"into": "", "name": "", "pasted": json.dumps(form)})
    assert "context.history" in answer.content.decode()
    assert not ContextPolicy.objects.filter(slug="ship").exists()


@pytest.mark.policy_case(5)
@pytest.mark.parametrize(
    ("form", "said"),
    [
        (
            {
                "type": "plugin",
                "pluginId": "std-summarization-strategy",
                "config": {"threshold": 4, "turn_threshold": 9, "compressionModel": "", "x": 1},
            },
            ["'threshold' and as 'turn_threshold'", "'x'"],
        ),
        (
            {
                "type": "plugin",
                "pluginId": "std-summarization-strategy",
                "config": {"zeal": 1, "colour": 2},
            },
            ["'colour'", "'zeal'"],
        ),
        (
            {
                "id": "ship",
                "context": {"history": {"archiveOnCompact": 1, "keep": 3}},
                "context.history.maxInputTokensApprox": "many",
            },
            [
                "'keep'",
                "maxInputTokensApprox must be a whole",
                "archiveOnCompact must be true or false",
            ],
        ),
        (
            {
                "id": "ship",
                "context": {"history": {"keepLastMessages": 5}},
                "context.history.keepLastMessages": 9,
            },
            ["context.history.keepLastMessages is set twice"],
        ),
    ],
    ids=["two names", "unknown keys", "history", "two spellings"],
)
def test_two_names_of_one_value_are_refused_and_all_is_said_at_once(
    browser: Client, form: dict[str, Any], said: list[str]
) -> None:
    answer = browser.post(IMPORT, {"into": "", "name": "Twice", "pasted": json.dumps(form)})
    words = Page(answer.content.decode()).words
    for each in said:
        assert each in words
    assert not ContextPolicy.objects.exists()
