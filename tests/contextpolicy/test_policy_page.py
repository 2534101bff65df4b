"""The policy form shows the main settings first, validates input, and saves only on request."""

import json
import re
import uuid
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from chats.admin.policies.form_text import FIGURE_CHANGED, NO_ROOM, NOT_SET
from chats.admin.policies.strategy_sentences import BUILT_IN_WRITER
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.imports import OWN_FORM
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.presets import RETRIEVED
from contextpolicy.publish import (
    activate_version,
    create_policy,
    create_policy_version,
    restore_policy_version,
)
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import Page, message_codes, opened, submitted
from tests.contextpolicy.people import person, signed_in
from tests.support.policy_pages import get_active_version, get_policy_page

pytestmark = pytest.mark.django_db

LIST = "/admin/contextpolicy/contextpolicy/"
ADD = f"{LIST}add/"
IMPORT = f"{LIST}import/"
SUMMARY = {"strategy": "dynamic_summary", "token_budget": 8_000, "keep_last_messages": 20}


@pytest.fixture
def browser(db: None) -> Client:
    """The browser of Ines, who administers policies."""
    return signed_in(person("ines", POLICY_ADMIN))


def made(now: datetime, values: dict[str, Any], **options: Any) -> ContextPolicy:
    """A policy with these values."""
    given = {"slug": "support", "name": "Support", "actor": "system", **options}
    return create_policy(values=values, now=now, **given)


def looked_at(client: Client, url: str, **changes: Any) -> Any:
    """Change some fields and return the editor of the unsaved preview."""
    answer = submitted(client, url, **{"_look": "all", **changes})
    assert answer.status_code == 200
    return answer.context["editor"]


@pytest.mark.parametrize(
    "strategy", ["", "simple", "sliding_window", "dynamic_summary", "entity_state"]
)
def test_a_strategy_shows_at_most_seven_inputs_and_every_field_once(
    strategy: str, browser: Client
) -> None:
    editor = looked_at(browser, ADD, strategy=strategy)

    assert 3 <= len(editor.first) <= 7
    # A new policy starts with the recommended values.
    assert {row.name for row in editor.also} == set(RETRIEVED)
    assert [card["value"] for card in editor.cards if card["checked"]] == [strategy]
    assert len(editor.cards) == 5
    names = [row.name for row in editor.rows if not row.name.startswith("config__")]
    assert sorted(names) == sorted(set(PolicyValues().to_json()) - {"strategy", "strategy_config"})
    assert not ContextPolicy.objects.exists()


@pytest.mark.policy_case(14)
def test_a_field_that_is_set_locked_or_found_is_never_folded_away(
    browser: Client, now: datetime
) -> None:
    policy = made(now, {**SUMMARY, "undo_right": "nobody", "turn_threshold": 90})

    editor = browser.get(get_policy_page(policy)).context["editor"]
    assert [row.name for row in editor.also] == ["turn_threshold", "undo_right"]
    assert [told.warning.code for told in editor.also[0].warnings] == ["turns_never_fire"]
    people = next(group for group in editor.more if group.title == "Summary permissions")
    assert (people.total, people.set_above) == (4, 1)
    assert "4 settings (1 set above)" in opened(browser, get_policy_page(policy)).words

    editor = looked_at(browser, get_policy_page(policy), lock_warm_up="on", max_bytes="-4")
    assert {"max_bytes", "warm_up"} <= {row.name for row in editor.also}
    assert get_active_version(policy).number == 1


def test_one_search_finds_a_setting_by_its_words(browser: Client) -> None:
    editor = looked_at(browser, ADD, _find="required facts")
    assert [row.name for row in editor.found] == ["pinned_kinds"]
    editor = looked_at(browser, ADD, _find="no such thing at all")
    assert editor.found == []


@pytest.mark.policy_case(1)
@pytest.mark.policy_case(3)
def test_an_empty_field_says_what_holds_and_where_it_comes_from(
    browser: Client, now: datetime, support: Group, alice: User
) -> None:
    strict = made(
        now, {"token_budget": 6_000}, slug="strict", name="Strict", locks=["token_budget"]
    )
    assign_policy(policy=strict, level="instance", actor="system", now=now)
    policy = made(now, {"strategy": "simple", "keep_last_messages": 9})
    assign_policy(policy=policy, level="group", group=support, actor="system", now=now)

    def hints(**seen: str) -> dict[str, str]:
        editor = looked_at(browser, get_policy_page(policy), **seen)
        return {row.name: row.hint for row in editor.rows}

    alone = hints()
    assert alone["token_budget"] == "16,000 · default of “Newest messages (fixed number)”"
    assert alone["window_size"] == "12 · server setting"
    assert alone["keep_last_messages"] == ""
    assert alone["allowed_models"].startswith("any · ")
    group = hints(**{"seen-group": str(support.pk)})
    assert group["token_budget"] == "6,000 · everyone · Strict v1, locked"
    assert group["reserve_tokens"] == "1,500 · a quarter of the token budget"
    alice.groups.add(support)
    assert hints(**{"seen-person": "alice"})["token_budget"] == group["token_budget"]
    chat = uuid.UUID("018f0000-0000-7000-8000-000000000001")
    loose = made(now, {"fold_turns": 2}, slug="loose", name="Loose")
    assign_policy(policy=loose, level="chat", chat_id=chat, actor="system", now=now)
    seen = hints(**{"seen-person": "alice", "seen-chat": str(chat)})
    assert seen["fold_turns"] == "2 · chat · Loose v1"
    # A value without effect says so, and names the effective value.
    editor = looked_at(
        browser, get_policy_page(policy), token_budget="20000", **{"seen-group": str(support.pk)}
    )
    row = next(row for row in editor.rows if row.name == "token_budget")
    assert row.hint == "Overridden. In effect: 6,000 · everyone · Strict v1, locked"


def test_a_policy_is_seen_as_if_it_replaced_the_one_assigned_there(
    browser: Client, now: datetime, support: Group
) -> None:
    """A group has one policy, so the limits of the current one end with the assignment."""
    strict = made(now, {"token_budget": 6_000}, slug="strict", name="Strict")
    assign_policy(policy=strict, level="group", group=support, actor="system", now=now)
    policy = made(now, {"token_budget": 20_000})

    editor = looked_at(browser, get_policy_page(policy), **{"seen-group": str(support.pk)})

    assert next(row for row in editor.rows if row.name == "token_budget").hint == ""


def test_what_is_typed_is_judged_and_not_saved(browser: Client, now: datetime) -> None:
    policy = made(now, SUMMARY)
    events = AuditEvent.objects.count()
    fields = opened(browser, get_policy_page(policy)).fields
    sent = {**fields, "_look": "told", "token_budget": "9000", "layout": "A"}

    part = browser.post(
        get_policy_page(policy), sent, headers={"HX-Request": "true", "HX-Target": "policy-told"}
    )

    html = part.content.decode()
    assert html.lstrip().startswith('<div id="policy-told">')
    told = Page(html).words
    assert "Sends at most 6,750 (was 6,000) tokens and keeps 2,250 (was 2,000) free for" in told
    assert "layout_flattens_roles" in html
    assert 'id="hint-reserve_tokens" hx-swap-oob="true">2,250 · a quarter of' in html
    assert Page(html).inline == []
    assert get_active_version(policy).values == SUMMARY
    assert AuditEvent.objects.count() == events


def test_each_figure_in_plain_words_is_a_link_to_its_field(browser: Client, now: datetime) -> None:
    policy = made(now, {**SUMMARY, "turn_threshold": 90})

    html = browser.get(get_policy_page(policy)).content.decode()

    assert '<a class="policy-figure" href="#id_token_budget">6,000</a>' in html
    assert '<a class="policy-figure" href="#id_turn_threshold">90</a>' in html
    for target in re.findall(r'class="policy-figure[^"]*" href="#([^"]+)"', html):
        assert f'id="{target}"' in html
    assert "is-changed" not in html
    assert 'id="was-token_budget"></span>' in html
    assert "differs from the saved version" not in html


def test_what_differs_from_the_saved_version_is_marked(browser: Client, now: datetime) -> None:
    ModelSpec.objects.create(slug="light", provider="demo", name="light")
    values = {**SUMMARY, "summarization_model": "light", "summary_max_tokens": 700}
    policy = made(now, {**values, "compact_at": 0.8, "archive": False}, locks=["token_budget"])

    editor = looked_at(
        browser,
        get_policy_page(policy),
        token_budget="9000",
        lock_token_budget=None,
        summarization_model="(built in)",
        summary_max_tokens="",
        compact_at="75",
        archive="yes",
        pinned_kinds=["number"],
        system_text="One.\nTwo.",
        summary_instruction="x" * 90,
    )

    was = {row.name: row.was for row in editor.rows if row.was}
    assert was == {
        "token_budget": "was 8,000, was locked",
        "summarization_model": "was light (demo)",
        "summary_max_tokens": "was 700",
        "compact_at": "was 80 %",
        "archive": "was no",
        "pinned_kinds": str(NOT_SET),
        "system_text": str(NOT_SET),
        "summary_instruction": str(NOT_SET),
    }
    assert editor.is_changed
    for field, title, text in (
        ("token_budget", "was 6,000", "6,750"),
        ("compact_at", "was 4,800", "5,062"),
        ("summarization_model", "was light", str(BUILT_IN_WRITER)),
        ("pinned_kinds", "new", "numbers"),
    ):
        assert f"{FIGURE_CHANGED.format(field, title, text)}<span" in editor.sentence
    assert '<a class="policy-figure" href="#id_keep_last_messages">20</a>' in editor.sentence
    # The texts of a version are long: earlier ones are in the list of versions.
    submitted(browser, get_policy_page(policy), system_text="One.\nTwo.")
    editor = looked_at(browser, get_policy_page(policy), system_text="Three.", strategy="simple")
    assert {row.name: row.was for row in editor.rows if row.was} == {"system_text": "changed"}
    assert editor.strategy_was == "was newest messages and a summary of the older ones"


def test_a_new_policy_and_a_copy_have_nothing_to_differ_from(
    browser: Client, now: datetime
) -> None:
    made(now, SUMMARY)
    for address in (ADD, f"{ADD}?start=support"):
        editor = looked_at(browser, address, token_budget="9000")
        assert not editor.is_changed
        assert "is-changed" not in editor.sentence


def test_what_people_wrote_stands_escaped_in_plain_words(browser: Client, now: datetime) -> None:
    evil = '"><img src=x onerror=alert(1)>'
    values = {**SUMMARY, "tool_output_rules": {evil: {"limit": 9}}, "summary_sections": [evil]}
    policy = made(now, values)

    for changes in ({}, {"summary_sections": f"{evil}2", "tool_output_rules": f"{evil}2: limit 8"}):
        answer = submitted(browser, get_policy_page(policy), _look="all", **changes)
        html = answer.content.decode()
        assert "&lt;img src=x" in answer.context["editor"].sentence
        assert "<img src=x" not in html
        assert Page(html).inline == []
    assert "was &quot;&gt;&lt;img" in answer.context["editor"].sentence


def test_a_button_writes_the_mended_values_into_the_form(browser: Client, now: datetime) -> None:
    ModelSpec.objects.create(slug="light", provider="demo", name="light")
    policy = made(now, SUMMARY)
    found = browser.get(get_policy_page(policy)).context["editor"].warnings
    kept = next(told for told in found if told.warning.code == "kept_above_mark")
    assert "6,800 tokens" in kept.sentence
    assert kept.fix == "Set “Maximum summary length” to 600"

    answer = submitted(browser, get_policy_page(policy), _fix=kept.key)

    page = Page(answer.content.decode())
    assert page.fields["summary_max_tokens"] == ["600"]
    assert "Unsaved changes: Maximum summary length." in page.words
    assert "kept_above_mark" not in page.words
    assert get_active_version(policy).values == SUMMARY
    browser.post(get_policy_page(policy), page.fields)
    assert get_active_version(policy).values == {**SUMMARY, "summary_max_tokens": 600}


def test_buttons_write_rules_and_the_value_that_a_lock_needs(
    browser: Client, now: datetime
) -> None:
    policy = made(now, {**SUMMARY, "tool_output_rules": {"a": {"limit": 900}}})

    def pressed(code: str, **changes: Any) -> Any:
        told = looked_at(browser, get_policy_page(policy), **changes).warnings
        button = next(each for each in told if each.warning.code == code)
        answer = submitted(browser, get_policy_page(policy), _fix=button.key, **changes)
        fields = Page(answer.content.decode()).fields
        assert code not in {each.warning.code for each in answer.context["editor"].warnings}
        return button.fix, fields

    said, fields = pressed("lock_without_value", lock_reserve_tokens="on")
    assert said == "Set “Reserved for the reply” to 2,000"
    assert fields["reserve_tokens"] == ["2000"]
    rules = "a: limit 5000\nb: limit 90, keep newest 2"
    changes = {"tool_output_limit": "800", "tool_output_rules": rules}
    said, fields = pressed("tool_limit_above_general", **changes)
    assert said.endswith("to a: limit 800\nb: limit 90, keep newest 2")
    assert fields["tool_output_rules"] == ["a: limit 800\nb: limit 90, keep newest 2"]


def test_every_clash_is_said_at_once_at_its_field_by_its_label(browser: Client) -> None:
    answer = submitted(
        browser,
        ADD,
        name="Night",
        strategy="dynamic_summary",
        fold_turns="30",
        turn_threshold="20",
        keep_last_messages="50",
        window_size="10",
        reference_count="400",
        token_budget="x",
    )

    errors = answer.context["editor"].form.errors
    assert {"fold_turns", "keep_last_messages", "window_size", "token_budget"} <= set(errors)
    assert "reference_count" in errors
    page = Page(answer.content.decode())
    assert 'data-note="nothing-saved"' in answer.content.decode()
    assert '<a href="#id_fold_turns">Turns summarised at once</a>' in answer.content.decode()
    assert answer.content.decode().count(" autofocus") == 1
    assert "“Turns summarised at once” (30) exceeds “Summarise after (turns)” (20)" in page.words
    impossible = looked_at(browser, ADD, token_budget="900", reserve_tokens="1000")
    assert impossible.sentence == str(NO_ROOM)
    assert not ContextPolicy.objects.exists()
    told = looked_at(browser, ADD, strategy="dynamic_summary", compact_to="80").warnings
    assert '<a href="#id_compact_to">“Shorten the history to (% full)”</a>' in told[0].sentence
    warning = told[0].warning
    assert (warning.level, told[0].fix) == ("error", "Clear “Shorten the history to (% full)”")


def test_a_copy_is_a_start_and_leaves_the_original(browser: Client, now: datetime) -> None:
    made(now, {**SUMMARY, "pinned_kinds": ["number"]}, locks=["token_budget"])

    answer = submitted(browser, f"{ADD}?start=support", name="Night shift")

    assert answer.status_code == 302
    copy = ContextPolicy.objects.get(slug="night-shift")
    assert get_active_version(copy).values == {**SUMMARY, "pinned_kinds": ["number"]}
    assert get_active_version(copy).locks == ["token_budget"]
    assert get_active_version(ContextPolicy.objects.get(slug="support")).number == 1


class TestDrafts:
    def test_a_draft_governs_nobody_until_it_is_put_in_force(
        self, browser: Client, now: datetime
    ) -> None:
        policy = made(now, SUMMARY)

        submitted(browser, get_policy_page(policy), token_budget="9000", _draft="1")

        assert (get_active_version(policy).number, policy.versions.count()) == (1, 2)
        page = opened(browser, get_policy_page(policy))
        assert page.fields["token_budget"] == ["9000"]
        assert "Version 2 is a draft Version 1 is active." in page.words
        event = AuditEvent.objects.filter(type="policy.version_created").latest("id")
        assert event.data["draft"] is True
        submitted(browser, get_policy_page(policy))
        assert get_active_version(policy).number == 2
        policy.refresh_from_db()
        assert [v.state for v in policy.versions.order_by("number")] == ["retired", "active"]
        assert AuditEvent.objects.filter(type="policy.version_activated").count() == 1

    @pytest.mark.policy_case(11)
    def test_an_older_version_is_restored_as_a_new_one(
        self, browser: Client, now: datetime, support: Group
    ) -> None:
        policy = made(now, SUMMARY, locks=["token_budget"])
        assign_policy(policy=policy, level="group", group=support, actor="system", now=now)
        create_policy_version(policy=policy, values={}, locks=[], note="", actor="system", now=now)

        answer = browser.post(get_policy_page(policy), {"_restore": "1"}, follow=True)

        assert "Version 3 has the values and locks of version 1." in answer.content.decode()
        assert (get_active_version(policy).number, get_active_version(policy).values) == (
            3,
            SUMMARY,
        )
        assert get_active_version(policy).locks == ["token_budget"]
        assert policy.assignments.count() == 1
        answer = browser.post(get_policy_page(policy), {"_restore": "77"}, follow=True)
        assert "This policy has no version 77." in answer.content.decode()
        auditor = signed_in(person("priya", AUDITOR))
        assert auditor.post(get_policy_page(policy), {"_restore": "1"}).status_code == 403
        assert get_active_version(policy).number == 3

    @pytest.mark.policy_case(11)
    def test_one_that_lacks_a_value_is_restored_whole(self, browser: Client, now: datetime) -> None:
        bare = {"strategy": "simple"}
        policy = made(now, bare)
        common: dict[str, Any] = {"note": "", "actor": "system", "now": now}
        create_policy_version(policy=policy, values=SUMMARY, locks=["token_budget"], **common)

        answer = browser.post(get_policy_page(policy), {"_restore": "1"}, follow=True)

        assert "version_restored" in message_codes(answer)
        assert (get_active_version(policy).values, get_active_version(policy).locks) == (bare, [])
        assert opened(browser, get_policy_page(policy)).fields["token_budget"] == [""]

    def test_of_two_who_activate_the_second_is_told(self, now: datetime) -> None:
        policy = made(now, SUMMARY)
        common: dict[str, Any] = {"policy": policy, "actor": "system", "now": now}
        create_policy_version(values={}, locks=[], note="", is_draft=True, **common)
        assert activate_version(number=2, **common).number == 2
        assert activate_version(number=2, **common).number == 2
        create_policy_version(values=SUMMARY, locks=[], note="", is_draft=True, **common)
        with pytest.raises(Exception, match="Version 3 was saved"):
            activate_version(number=2, **common)
        assert restore_policy_version(number=1, **common).number == 4


@pytest.mark.policy_case(9)
class TestTwoAdministrators:
    def test_only_touched_fields_are_written(self, browser: Client, now: datetime) -> None:
        policy = made(now, SUMMARY)
        stale = opened(browser, get_policy_page(policy)).fields
        theirs = {**SUMMARY, "keep_last_messages": 12, "fold_turns": 3}
        common: dict[str, Any] = {"actor": "system", "now": now, "note": ""}
        create_policy_version(policy=policy, values=theirs, locks=["fold_turns"], **common)
        ContextPolicy.objects.filter(pk=policy.pk).update(name="Help desk")

        answer = browser.post(get_policy_page(policy), {**stale, "token_budget": "9000"})

        page = Page(answer.content.decode())
        assert "Version 2 was saved while you were editing" in page.words
        assert "Newest messages kept 20 12 20" in page.words
        assert "Token budget 8000 8000 9000" in page.words
        assert get_active_version(policy).number == 2
        browser.post(get_policy_page(policy), page.fields)
        assert get_active_version(policy).values == {**theirs, "token_budget": 9_000}
        assert get_active_version(policy).locks == ["fold_turns"]
        assert ContextPolicy.objects.get(pk=policy.pk).name == "Help desk"

    @pytest.mark.parametrize("keeps_theirs", [True, False])
    def test_where_both_changed_a_field_the_second_decides(
        self, keeps_theirs: bool, browser: Client, now: datetime
    ) -> None:
        policy = made(now, SUMMARY)
        stale = opened(browser, get_policy_page(policy)).fields
        theirs = {**SUMMARY, "keep_last_messages": 12}
        create_policy_version(
            policy=policy, values=theirs, locks=[], note="", actor="system", now=now
        )
        answer = browser.post(get_policy_page(policy), {**stale, "keep_last_messages": "16"})
        (clash,) = answer.context["editor"].form.conflicts
        assert (clash.before, clash.theirs, clash.mine, clash.is_clash) == ("20", "12", "16", True)
        fields = Page(answer.content.decode()).fields
        assert fields["keep_last_messages"] == ["16"]

        sent = {**fields, **({"keep_theirs": ["keep_last_messages"]} if keeps_theirs else {})}
        browser.post(get_policy_page(policy), sent)

        assert get_active_version(policy).values["keep_last_messages"] == (
            12 if keeps_theirs else 16
        )


class TestFiles:
    def test_what_is_exported_is_imported_whole(self, browser: Client, now: datetime) -> None:
        policy = made(now, {**SUMMARY, "pinned_kinds": ["number"]}, locks=["pinned_kinds"])

        answer = browser.get(f"{get_policy_page(policy)}?export=json")
        file = SimpleUploadedFile("p.json", answer.content)
        browser.post(IMPORT, {"file": file, "name": "Another"})

        assert "support.policy.json" in answer["Content-Disposition"]
        copy = ContextPolicy.objects.get(slug="another")
        assert (get_active_version(copy).values, get_active_version(copy).locks) == (
            get_active_version(policy).values,
            ["pinned_kinds"],
        )

    @pytest.mark.policy_case(4)
    @pytest.mark.policy_case(5)
    def test_bad_files_are_refused_with_every_finding_and_nothing_saved(
        self, browser: Client
    ) -> None:
        form = {
            OWN_FORM: 7,
            "name": "Bad",
            "colour": "red",
            "values": {
                "strategy": "not_installed",
                "budget": 5,
                "token_budget": "many",
                "reference_count": 400,
            },
            "locks": ["layout"],
        }
        words = Page(browser.post(IMPORT, {"pasted": json.dumps(form)}).content.decode()).words
        for said in ("'colour'", "is 7", "'budget'", "'many'", "not_installed", "layout is locked"):
            assert said in words, said
        twice = json.dumps(form)[:-1] + ', "name": "Worse"}'
        answer = browser.post(IMPORT, {"pasted": twice})
        assert "in an object of the JSON: &#x27;name&#x27;" in answer.content.decode()
        large = SimpleUploadedFile("p.json", b" " * 10_000_000)
        answer = browser.post(IMPORT, {"file": large})
        assert answer.status_code in {200, 413}
        assert not ContextPolicy.objects.exists()


def said_after(client: Client, url: str, **changes: Any) -> str:
    """Submit the form of a policy; return the messages of the next page."""
    answer = submitted(client, url, **changes)
    assert answer.status_code == 302
    return opened(client, answer.headers["Location"]).words


def test_a_save_names_the_version_that_is_active(browser: Client) -> None:
    words = said_after(browser, ADD, name="Careful", token_budget="9000", _draft="1")
    assert "“Careful” is saved: version 1 is a draft. No version is active yet" in words
    policy = ContextPolicy.objects.get()
    words = said_after(browser, get_policy_page(policy), _save="1")
    assert "“Careful” is saved. Version 1 is active." in words
    words = said_after(browser, get_policy_page(policy), token_budget="8000", _draft="1")
    assert "“Careful” is saved: version 2 is a draft. Version 1 stays active" in words
    assert "successfully" not in words
    words = said_after(browser, get_policy_page(policy), _continue="1")
    assert "“Careful” is saved. Version 2 is active." in words


def test_a_look_at_a_form_without_a_name_says_nothing_of_it(browser: Client) -> None:
    answer = submitted(browser, ADD, _look="all", name="", strategy="simple")
    html = answer.content.decode()
    assert "cannot be blank" not in html
    assert "is required" not in html
    answer = submitted(browser, ADD, name="", strategy="simple")
    assert "is required" in answer.content.decode()
    assert not ContextPolicy.objects.exists()


def test_the_list_says_the_state_in_a_word(browser: Client, now: datetime) -> None:
    made(now, {}, slug="a", name="A")
    made(now, {}, slug="b", name="B", is_draft=True)
    gone = made(now, {}, slug="c", name="C")
    ContextPolicy.objects.filter(pk=gone.pk).update(retired=True)
    rows = browser.get(LIST).content.decode().split('class="field-state')[1:]
    assert [row.split(">")[1].split("<")[0] for row in rows] == ["Active", "Draft", "Retired"]
    assert "icon-no" not in "".join(rows)
