"""A policy administrator edits policies in the admin; an invalid policy cannot be saved."""

import json
import re
import uuid
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec, PolicyAssignment
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.presets import RETRIEVED, seed_policies
from contextpolicy.publish import create_policy, create_policy_version
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import Page, message_codes, opened, submitted
from tests.contextpolicy.people import person, signed_in
from tests.support.policy_pages import get_active_version, get_policy_page

pytestmark = pytest.mark.django_db

ADD = "/admin/contextpolicy/contextpolicy/add/"
IMPORT = "/admin/contextpolicy/contextpolicy/import/"
CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")


@pytest.fixture
def admin(db: None) -> User:
    """Ines administers policies."""
    return person("ines", POLICY_ADMIN)


@pytest.fixture
def browser(admin: User) -> Client:
    """The browser of Ines."""
    return signed_in(admin)


@pytest.fixture
def policy(now: datetime) -> ContextPolicy:
    """A policy that uses each kind of field."""
    ModelSpec.objects.create(slug="light", provider="demo", name="light")
    return create_policy(
        slug="support",
        name="Support",
        values={
            "strategy": "dynamic_summary",
            "token_budget": 24_000,
            "prepare_at": 0.7,
            "turn_threshold": None,
            "summarization_model": "",
            "allowed_models": ["light"],
            "archive": False,
            "cut_style": "head_tail",
            "system_text": "\n  Be brief.\nAlways.\n",
        },
        locks=["token_budget", "allowed_models"],
        actor="system",
        now=now,
    )


def test_a_new_policy_is_made_with_its_first_version(browser: Client, admin: User) -> None:
    answer = submitted(
        browser, ADD, name="Night shift", slug="night", token_budget="12000", note="Trial"
    )

    assert answer.status_code == 302
    policy = ContextPolicy.objects.get(slug="night")
    assert get_active_version(policy).values == {"token_budget": 12_000, **RETRIEVED}
    assert (get_active_version(policy).note, get_active_version(policy).created_by_id) == (
        "Trial",
        admin.pk,
    )
    event = AuditEvent.objects.get(type="policy.version_created")
    assert event.actor == f"user:{admin.pk}"


def test_many_ticked_options_are_saved(browser: Client, policy: ContextPolicy) -> None:
    slugs = [f"m{number:03}" for number in range(250)]
    ModelSpec.objects.bulk_create(ModelSpec(slug=s, provider="demo", name=s) for s in slugs)
    some = slugs[:150]
    answer = submitted(browser, get_policy_page(policy), allowed_models=some, file_models=slugs)
    assert answer.status_code == 302
    values = get_active_version(policy).values
    assert (values["allowed_models"], values["file_models"]) == (some, slugs)


def test_a_new_policy_is_not_called_like_an_address_of_the_api(browser: Client) -> None:
    answer = submitted(browser, ADD, name="Lint", token_budget="12000")

    assert "The name &#x27;lint&#x27; is reserved." in answer.content.decode()
    assert not ContextPolicy.objects.exists()


@pytest.mark.parametrize("taken", [{"name": "SUPPORT"}, {"slug": "Support"}], ids=["name", "slug"])
def test_names_and_slugs_of_policies_ignore_case(
    browser: Client, policy: ContextPolicy, taken: dict[str, str]
) -> None:
    ContextPolicy.objects.filter(pk=policy.pk).update(name="Support", slug="support")
    given = {"name": "Help", "slug": "help", "token_budget": "12000", **taken}
    answer = submitted(browser, ADD, **given)
    assert "already exists" in answer.content.decode()
    assert (
        ContextPolicy.objects.exclude(pk=policy.pk).filter(slug__iexact=given["slug"]).count() == 0
    )


def test_saving_an_untouched_form_changes_nothing(browser: Client, policy: ContextPolicy) -> None:
    events = AuditEvent.objects.count()

    answer = submitted(browser, get_policy_page(policy))

    assert answer.status_code == 302
    assert get_active_version(policy).number == 1
    assert AuditEvent.objects.count() == events


def test_each_offered_summariser_can_be_saved(browser: Client, policy: ContextPolicy) -> None:
    page = get_policy_page(policy)
    form = browser.get(page).context["adminform"].form
    offered = [value for value, _ in form.fields["summarization_model"].choices]

    answers = [submitted(browser, page, summarization_model=value) for value in offered]

    assert "light" in offered
    assert {answer.status_code for answer in answers} == {302}


def test_each_kind_of_field_makes_the_round_trip(browser: Client, policy: ContextPolicy) -> None:
    before = get_active_version(policy)

    submitted(browser, get_policy_page(policy), fold_turns="3")

    after = get_active_version(policy)
    assert after.number == 2
    assert after.values == {**before.values, "fold_turns": 3}
    assert after.locks == before.locks


@pytest.mark.parametrize(
    ("field", "typed", "stored"),
    [
        ("token_budget", "18000", 18_000),
        ("compact_to", "42.5", 0.425),
        ("turn_threshold", "12", 12),
        ("compact_at_tokens", "0", None),
        ("window_size", "0", None),
        ("keep_last_messages", "0", 0),
        ("summarization_model", "light", "light"),
        ("archive", "yes", True),
        ("hide_system_text", "no", False),
        ("cut_style", "head", "head"),
        ("system_text", "请用纯文本回答。", "请用纯文本回答。"),
        ("strategy", "sliding_window", "sliding_window"),
        ("layout", "B", "B"),
        ("question_prefix", "Asked: ", "Asked: "),
        ("question_prefix", "(none)", ""),
        ("summary_instruction", "Keep each\r\norder.", "Keep each\norder."),
        ("summary_instruction", "(none)", ""),
        ("summary_sections", "Orders\r\n\r\n Open questions ", ["Orders", "Open questions"]),
        ("summary_sections", "(built in)", []),
        ("chat_system", "ignore", "ignore"),
        ("show_date", "yes", True),
        ("state_schema", "none", {}),
        pytest.param(
            "state_schema",
            "destination (text)\r\ndate (date)",
            {
                "type": "object",
                "properties": {
                    "destination": {"type": "string"},
                    "date": {"type": "string", "format": "date"},
                },
                "additionalProperties": False,
            },
            marks=pytest.mark.requirement("S2.5", by="admin"),
        ),
        ("max_bytes", "90000", 90_000),
        ("max_bytes", "0", None),
        ("file_kinds", ["pdf", "image"], ["pdf", "image"]),
        ("file_kinds", ["none"], []),
        ("file_mebibytes", "5", 5),
        ("files_per_message", "0", None),
        ("pins_tokens", "800", 800),
        ("window_turns", "40", 40),
        ("window_tokens", "8000", 8_000),
        ("compact_every_turns", "30", 30),
        ("pinned_kinds", ["url", "name"], ["url", "name"]),
        ("pinned_kinds", ["none"], []),
        ("tool_output_rules", "none", {}),
        (
            "tool_output_rules",
            "look_up: limit 4,000, keep newest 3\r\n*: limit 500\r\nquote: no rule",
            {"look_up": {"limit": 4_000, "keep_newest": 3}, "*": {"limit": 500}, "quote": {}},
        ),
        ("system_text", "One.\r\nTwo.", "One.\nTwo."),
        ("system_text", "(none)", ""),
    ],
)
def test_a_field_is_stored_as_the_engine_takes_it(
    field: str, typed: str, stored: object, browser: Client, policy: ContextPolicy
) -> None:
    answer = submitted(browser, get_policy_page(policy), **{field: typed})

    assert answer.status_code == 302
    assert get_active_version(policy).values[field] == stored


@pytest.mark.policy_case(2)
@pytest.mark.parametrize("door", ["form", "import", "program"])
def test_what_is_stored_is_what_was_given_and_the_page_shows_it(
    door: str, browser: Client, policy: ContextPolicy
) -> None:
    values = {**EXTREMES, "token_budget": 18_000, "system_text": "Line one.\nLine two."}
    given = create_policy(
        slug="given", name="Given", values=values, actor="system", now=timezone.now()
    )
    form = json.loads(browser.get(f"{get_policy_page(given)}?export=json").content)
    if door == "form":
        answer = browser.post(
            ADD,
            {**opened(browser, get_policy_page(given)).fields, "name": "Taken", "slug": "taken"},
        )
        assert answer.status_code == 302, answer.context["adminform"].form.errors
    elif door == "import":
        answer = browser.post(IMPORT, {"pasted": json.dumps(form), "name": "Taken"})
        assert answer.status_code == 302, answer.context["form"].errors
    else:
        ines = User.objects.get(username="ines")
        body = {"slug": "taken", "name": "Taken", "values": form["values"], "locks": []}
        sent = signed_in(ines).post("/api/v1/policies", body, content_type="application/json")
        assert sent.status_code == 201, sent.json()
        assert sent.json()["current"]["values"] == get_active_version(given).values
    taken = ContextPolicy.objects.get(slug="taken")
    assert get_active_version(taken).values == get_active_version(given).values
    shown, expected = (opened(browser, get_policy_page(each)).fields for each in (taken, given))
    told = {name: value for name, value in shown.items() if name in EXTREMES}
    assert told == {name: value for name, value in expected.items() if name in EXTREMES}
    assert told


def test_an_emptied_field_says_nothing_any_more(browser: Client, policy: ContextPolicy) -> None:
    submitted(
        browser, get_policy_page(policy), token_budget="", lock_token_budget=None, strategy=""
    )

    values = get_active_version(policy).values
    assert "token_budget" not in values
    assert "strategy" not in values
    assert get_active_version(policy).locks == ["allowed_models"]


def test_a_lock_stands_beside_its_field(browser: Client, policy: ContextPolicy) -> None:
    submitted(browser, get_policy_page(policy), lock_archive="on", lock_token_budget=None)

    assert get_active_version(policy).locks == ["allowed_models", "archive"]


@pytest.mark.requirement("S0.7", by="admin")
@pytest.mark.parametrize(
    ("changes", "field", "code", "words"),
    [
        ({"reserve_tokens": "30000"}, "reserve_tokens", "reserve_exceeds_budget", "30,000"),
        ({"compact_to": "80"}, "compact_to", "marks_out_of_order", "14,400"),
        ({"summary_max_tokens": "9500"}, "summary_max_tokens", "summary_reaches_low_mark", "9,500"),
        ({"lock_fold_turns": "on"}, "fold_turns", "lock_without_value", "fold_turns"),
        ({"tool_output_rules": "x: 5"}, "tool_output_rules", "lines_refused", "Line 1: “5” "),
        ({"state_schema": "(text)"}, "state_schema", "lines_refused", "Line 1 "),
        ({"pinned_kinds": ["url", "none"]}, "pinned_kinds", "none_with_others", ""),
        ({"allowed_models": ["light", "none"]}, "allowed_models", "none_with_others", ""),
        ({"file_kinds": ["pdf", "none"]}, "file_kinds", "none_with_others", ""),
        ({"max_bytes": "40"}, "max_bytes", "max_bytes_too_small", "1,021"),
        ({"pins_tokens": "50000"}, "pins_tokens", "pins_too_large", "1,000"),
        ({"window_tokens": "10"}, "window_tokens", "window_too_small", "10"),
        ({"token_budget": "-1"}, "token_budget", "min_value", "1"),
        ({"system_text": "x" * 20_001}, "system_text", "max_length", "20000"),
        ({"strategy": "magic"}, "strategy", "invalid_choice", "magic"),
        ({"allowed_models": ["ghost"]}, "allowed_models", "invalid_choice", "ghost"),
    ],
)
def test_what_cannot_work_is_said_at_its_field_and_not_saved(
    changes: dict[str, Any],
    field: str,
    code: str,
    words: str,
    browser: Client,
    policy: ContextPolicy,
) -> None:
    answer = submitted(browser, get_policy_page(policy), **changes)

    assert answer.status_code == 200
    errors = answer.context["adminform"].form.errors
    assert code in {error.code for error in errors.as_data()[field]}
    assert words in " ".join(errors[field])
    page = Page(answer.content.decode())
    # The page uses each field's label.
    pieces = [piece for each in errors[field] for piece in re.split(r"\w+_\w+", each)]
    assert all(" ".join(piece.split()) in page.words for piece in pieces)
    assert get_active_version(policy).number == 1


def test_nobody_writes_over_a_version_they_have_not_seen(
    browser: Client, policy: ContextPolicy, now: datetime
) -> None:
    stale = opened(browser, get_policy_page(policy)).fields
    create_policy_version(policy=policy, values={}, locks=[], note="", actor="system", now=now)

    answer = browser.post(get_policy_page(policy), {**stale, "fold_turns": "3"})

    assert "Version 2 was saved while you were editing" in Page(answer.content.decode()).words
    assert get_active_version(policy).number == 2


def test_a_name_changes_without_a_new_version(browser: Client, policy: ContextPolicy) -> None:
    submitted(browser, get_policy_page(policy), name="Help desk")

    policy.refresh_from_db()
    assert policy.name == "Help desk"
    assert get_active_version(policy).number == 1
    assert AuditEvent.objects.filter(type="policy.changed").count() == 1


def test_a_policy_that_applies_is_not_retired(
    browser: Client, policy: ContextPolicy, now: datetime
) -> None:
    assign_policy(policy=policy, level="instance", actor="system", now=now)

    answer = submitted(browser, get_policy_page(policy), retired="on", fold_turns="4")

    assert message_codes(answer) == ["policy_in_use"]
    # The page keeps the values of the form.
    form = answer.context["adminform"].form
    assert form["fold_turns"].value() == "4"
    assert form["retired"].value()
    policy.refresh_from_db()
    assert not policy.retired
    assert get_active_version(policy).number == 1


def test_the_page_says_what_the_policy_does_where_and_since_when(
    browser: Client, policy: ContextPolicy, now: datetime, support: Group
) -> None:
    assign_policy(policy=policy, level="group", group=support, actor="system", now=now)
    submitted(browser, get_policy_page(policy), token_budget="20000", note="Cheaper")

    words = opened(browser, get_policy_page(policy)).words

    assert "Sends at most 15,000 tokens and keeps 5,000 free for the reply." in words
    assert "the built-in extractor prepares a summary" in words
    assert "A group : Support staff" in words
    assert "token_budget 24000, locked 20000, locked" in words
    assert "Cheaper" in words
    assert "ines" in words


def test_empty_fields_show_what_holds_instead(browser: Client, policy: ContextPolicy) -> None:
    html = browser.get(get_policy_page(policy)).content.decode()

    assert "6,000 · a quarter of the token budget" in html
    assert "45 % · default of “Newest messages and a summary of the older ones”" in html
    assert "none · default of" in html


def test_what_works_but_surprises_is_said_after_saving(
    browser: Client, policy: ContextPolicy
) -> None:
    submitted(browser, get_policy_page(policy), system_text="Use the key sk-abcdefghij0123456789.")

    assert "secret_in_text" in message_codes(browser.get(get_policy_page(policy)))


def test_every_value_of_a_policy_is_in_the_form(browser: Client, policy: ContextPolicy) -> None:
    answer = browser.get(get_policy_page(policy))
    page = Page(answer.content.decode())
    form = answer.context["adminform"].form

    for name in set(PolicyValues().to_json()) - {"strategy_config"}:
        field = form.fields[name]
        assert field.label, name
        assert len(field.help_text) > 5, name
        assert f'name="{name}"' in answer.content.decode(), name
        assert f'name="lock_{name}"' in answer.content.decode(), name
        # Strategies are cards; the selected one is highlighted.
        assert f'id="hint-{name}"' in answer.content.decode() or name == "strategy", name
    assert page.inline == []


EXTREMES: dict[str, Any] = {
    "strategy": "dynamic_summary",
    "state_schema": {"type": "object", "properties": {"a": {"minLength": 3}}, "required": ["a"]},
    "layout": "C",
    "question_prefix": "",
    "chat_system": "append",
    "show_date": False,
    "window_size": None,
    "window_turns": None,
    "window_tokens": 5_000,
    "compact_to": 0.30000000000000004,
    "compact_every_turns": None,
    "max_bytes": None,
    "pins_tokens": None,
    "pinned_kinds": [],
    "allowed_models": [],
    "memory_providers": [],
    "system_text": "Line one.\r\nLine two.\n\n",
    "tool_output_rules": {"a b:c": {"keep_newest": 0}, "*": {}},
}


def test_what_nobody_touched_stays_exactly_as_it_is_stored(browser: Client, now: datetime) -> None:
    policy = create_policy(slug="extreme", name="Extreme", values=EXTREMES, actor="system", now=now)

    submitted(browser, get_policy_page(policy))
    assert get_active_version(policy).number == 1

    submitted(browser, get_policy_page(policy), fold_turns="3")
    assert get_active_version(policy).values == {**EXTREMES, "fold_turns": 3}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"memory_providers": ["gone"]}, ""),
        ({"retention_days": None}, ""),
        ({"allowed_models": ["gone"]}, "unknown_model"),
        ({"summarization_model": "gone"}, "unknown_model"),
        ({"skills": ["gone"]}, "unknown_skill"),
        ({"tools": ["gone/*"]}, "unknown_tool"),
        ({"history_provider": "gone"}, "unknown_history_provider"),
    ],
    ids=str,
)
def test_a_value_that_the_form_does_not_offer_is_never_dropped(
    values: dict[str, Any], code: str, browser: Client, now: datetime
) -> None:
    """Without its list of providers, for example, a policy would allow all of them."""
    policy = create_policy(slug="old", name="Old", values={}, actor="system", now=now)
    ContextPolicy.objects.get(pk=policy.pk).versions.update(values=values)

    answer = submitted(browser, get_policy_page(policy), fold_turns="3")

    if code:
        errors = answer.context["adminform"].form.errors.as_data()
        assert [error.code for error in errors[next(iter(values))]] == [code]
    else:
        assert get_active_version(policy).values == {**values, "fold_turns": 3}


def test_what_a_browser_sends_for_line_ends_is_no_change(browser: Client, now: datetime) -> None:
    values = {
        "system_text": "One.\nTwo.",
        "tool_output_rules": {"a": {"limit": 9}, "b": {"limit": 8}},
        "state_schema": {"type": "object", "properties": {"a": {}, "b": {}}},
    }
    policy = create_policy(slug="lines", name="Lines", values=values, actor="system", now=now)
    fields = opened(browser, get_policy_page(policy)).fields
    sent = {name: [v.replace("\n", "\r\n") for v in value] for name, value in fields.items()}

    browser.post(get_policy_page(policy), sent)

    assert get_active_version(policy).number == 1


def test_S29_the_page_says_what_would_surprise(browser: Client, policy: ContextPolicy) -> None:
    assert "No warnings" in opened(browser, get_policy_page(policy)).words

    submitted(browser, get_policy_page(policy), layout="A", window_turns="900")

    words = opened(browser, get_policy_page(policy)).words
    assert "layout_flattens_roles" in words
    assert "window_beyond_limit" in words


def test_a_new_strategy_needs_no_change_of_the_form(browser: Client) -> None:
    page = browser.get(ADD).content.decode()

    for name in ("simple", "sliding_window", "dynamic_summary"):
        assert f'value="{name}"' in page


def test_who_only_looks_sees_the_values_and_no_form(policy: ContextPolicy, now: datetime) -> None:
    auditor = signed_in(person("priya", AUDITOR))

    page = opened(auditor, get_policy_page(policy))

    assert "token_budget 24000 locked" in page.words
    assert "Be brief." in page.words
    assert "token_budget" not in page.fields
    assert auditor.post(get_policy_page(policy), {"name": "x"}).status_code == 403


def test_what_people_type_is_shown_as_text(browser: Client, policy: ContextPolicy) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"

    submitted(
        browser, get_policy_page(policy), name=evil, system_text=evil, note=evil, description=evil
    )

    for url in (get_policy_page(policy), reverse("admin:contextpolicy_contextpolicy_changelist")):
        html = browser.get(url).content.decode()
        assert "<img src=x" not in html
        assert "<script>alert" not in html
        assert Page(html).inline == []


class TestAssignments:
    ADD = "/admin/contextpolicy/policyassignment/add/"

    @pytest.mark.parametrize("level", ["instance", "group", "user", "chat"])
    def test_a_policy_is_assigned_to_each_level(
        self, level: str, browser: Client, policy: ContextPolicy, support: Group, alice: User
    ) -> None:
        target = {
            "instance": {},
            "group": {"members_of": str(support.pk)},
            "user": {"person": "alice"},
            "chat": {"chat": str(CHAT)},
        }[level]

        answer = submitted(browser, self.ADD, policy=str(policy.pk), place=level, **target)

        assert answer.status_code == 302
        row = PolicyAssignment.objects.get()
        assert (row.policy, row.level) == (policy, level)
        assert AuditEvent.objects.filter(type="policy.assigned").count() == 1

    def test_the_link_on_the_policy_page_chooses_the_policy(
        self, browser: Client, policy: ContextPolicy
    ) -> None:
        page = opened(browser, get_policy_page(policy))
        link = next(url for url in page.urls if "policyassignment/add/?" in url)

        assert opened(browser, link).fields["policy"] == [str(policy.pk)]

    @pytest.mark.parametrize(
        ("level", "given", "field"),
        [
            ("user", {}, "person"),
            ("user", {"person": "nobody-of-that-name"}, "person"),
            ("group", {}, "members_of"),
            ("chat", {"chat": "not-an-id"}, "chat"),
            ("instance", {"chat": str(CHAT)}, "chat"),
            ("", {}, "place"),
        ],
    )
    def test_the_target_has_to_be_the_one_of_the_level(
        self,
        level: str,
        given: dict[str, str],
        field: str,
        browser: Client,
        policy: ContextPolicy,
    ) -> None:
        answer = submitted(browser, self.ADD, policy=str(policy.pk), place=level, **given)

        assert answer.status_code == 200
        assert field in answer.context["adminform"].form.errors
        assert not PolicyAssignment.objects.exists()

    def test_it_takes_the_place_of_the_one_before(
        self, browser: Client, policy: ContextPolicy, now: datetime
    ) -> None:
        seed_policies(now=now)

        answer = submitted(browser, self.ADD, policy=str(policy.pk), place="instance")

        assert answer.status_code == 302
        assert PolicyAssignment.objects.get(level="instance").policy == policy

    def test_a_retired_policy_is_not_offered(self, browser: Client, policy: ContextPolicy) -> None:
        ContextPolicy.objects.update(retired=True)

        answer = submitted(browser, self.ADD, policy=str(policy.pk), place="instance")

        assert "policy" in answer.context["adminform"].form.errors

    def test_it_is_taken_back_with_a_record(
        self, browser: Client, policy: ContextPolicy, now: datetime
    ) -> None:
        row = assign_policy(policy=policy, level="instance", actor="system", now=now)
        url = reverse("admin:contextpolicy_policyassignment_delete", args=[row.pk])

        answer = browser.post(url, {"post": "yes"})

        assert answer.status_code == 302
        assert not PolicyAssignment.objects.exists()
        assert AuditEvent.objects.filter(type="policy.unassigned").count() == 1


@pytest.mark.parametrize("page", ["contextpolicy", "policyassignment"])
def test_a_list_takes_as_many_queries_for_many_rows_as_for_few(
    page: str, browser: Client, now: datetime
) -> None:
    url = reverse(f"admin:contextpolicy_{page}_changelist")

    def grow(number: int) -> None:
        policy = create_policy(
            slug=f"p{number}", name=f"P{number}", values={}, actor="system", now=now
        )
        assign_policy(policy=policy, level="chat", chat_id=uuid.uuid4(), actor="system", now=now)

    grow(0)
    browser.get(url)
    with CaptureQueriesContext(connection) as few:
        browser.get(url)
    for number in range(1, 20):
        grow(number)
    with CaptureQueriesContext(connection) as many:
        browser.get(url)

    assert len(many) == len(few)


def test_who_only_looks_reads_structured_values_as_they_are_written(now: datetime) -> None:
    values = {
        "tool_output_rules": {"look_up": {"limit": 500}},
        "state_schema": {
            "type": "object",
            "properties": {"date": {"type": "string", "format": "date"}},
            "additionalProperties": False,
        },
        "pinned_kinds": ["url", "name"],
        "window_turns": None,
    }
    policy = create_policy(slug="s", name="S", values=values, actor="system", now=now)

    words = opened(signed_in(person("priya", AUDITOR)), get_policy_page(policy)).words

    assert "tool_output_rules look_up: limit 500" in words
    assert "state_schema date (date)" in words
    assert "pinned_kinds url, name" in words
    assert "window_turns none" in words
