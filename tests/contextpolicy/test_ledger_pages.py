"""An auditor finds events, reads one, and verifies the chains in the admin."""

import csv
import hashlib
import importlib
import io
import json
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import translation

from chats.admin.audit.break_reasons import localize_break_reason
from contextpolicy.audit import export
from contextpolicy.audit.phrases import PHRASES
from contextpolicy.audit.search import parse_search_line
from contextpolicy.event_types import EVENT_TYPES
from contextpolicy.ledger import record_event
from contextpolicy.models import AuditEvent, EffectivePolicy, LedgerHead
from contextpolicy.presets import seed_policies
from contextpolicy.publish import create_policy, create_policy_version
from contextpolicy.resolution import resolve_policy
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.support.policy_assignments import NOW, Lay
from tests.support.streamed_responses import read_stream

pytestmark = pytest.mark.django_db

LIST = "/admin/contextpolicy/auditevent/"
VERIFY = f"{LIST}verify/"
CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")
TURN = uuid.UUID("018f0000-0000-7000-8000-000000000002")


@pytest.fixture
def browser() -> Client:
    """The browser of Priya, an auditor."""
    return signed_in(person("priya", AUDITOR))


@pytest.fixture
def events(now: datetime, alice: User, browser: Client) -> None:
    """Three events of different kinds, scopes and actors."""
    data = {"policy": "support", "version": 7, "changes": {"window_size": {"from": 9, "to": 8}}}
    record_event("policy.version_created", actor=f"user:{alice.pk}", now=now, data=data)
    record_event(
        "turn.failed", actor="worker", now=now, chat_id=CHAT, turn_id=TURN, data={"code": "x"}
    )
    record_event(
        "chat.created", actor=f"user:{alice.pk}", now=now - timedelta(days=40), chat_id=CHAT
    )


def listed(browser: Client, search: str) -> set[str]:
    """The types of the events on the filtered list."""
    answer = browser.get(LIST, {"q": search})
    assert answer.status_code == 200
    return {row.type for row, _, _ in answer.context["rows"]}


@pytest.mark.usefixtures("events")
class TestFinding:
    def test_events_are_found_by_every_key(self, browser: Client, alice: User) -> None:
        version, failed, begun = "policy.version_created", "turn.failed", "chat.created"
        cases = {
            "event:turn.failed": {failed},
            "turn.failed": {failed},
            "event:policy": {version},
            "event:policy.*,chat.created": {version, begun},
            "chat:any": {failed, begun},
            "chat:none event:policy": {version},
            "actor:worker": {failed},
            f"chat:{str(CHAT).upper()}": {failed, begun},
            f"chat:{CHAT} -actor:worker": {begun},
            f"turn:{TURN}": {failed},
            str(TURN): {failed},
            "actor:alice": {version, begun},
            f"actor:user:{alice.pk} field:window_size": {version},
            "policy:support": {version},
            "policy:other": set(),
            "event:policy actor:worker": set(),
            "at:2026-10-01..2026-10-31 actor:alice": {begun},
            "at:..2026-11-19 actor:alice": {begun},
            "at:2026-11-20 chat:any": {failed},
            "at:2026-11-20T10:01 chat:any": set(),
        }
        assert {said: listed(browser, said) for said in cases} == cases

    @pytest.mark.policy_case(22)
    def test_what_is_not_understood_is_said_and_no_range_is_hidden(self, browser: Client) -> None:
        said = {
            "evnt:policy": ("unknown_key", "“evnt:”"),
            "event:polcy": ("unknown_event", "policy?"),
            "hello": ("no_key", "actor:hello"),
            "actor:nobody": ("unknown_person", "“nobody”"),
            "field:windw_size": ("unknown_field", " window_size "),
            "at:yesterday": ("not_a_day", "“yesterday”"),
            "at:..": ("no_day", "“at:”"),
            "chat:12": ("not_an_id", "“chat:”"),
            "event:": ("no_value", "“event:”"),
            "'\"*;-- -": ("no_key", ";--"),
            "a" * 501: ("too_long", "500"),
        }
        for text, (reason, named) in said.items():
            page = browser.get(LIST, {"q": text})
            assert f'role="alert" data-reason="{reason}"' in page.content.decode(), text
            assert named in page.context["problem"]
            assert page.context["rows"] == []
        assert "All time" in opened(browser, LIST).words

    def test_pages_go_on_by_a_cursor_and_end_with_a_word(
        self, browser: Client, now: datetime
    ) -> None:
        for number in range(120):
            record_event("skill.created", actor="system", now=now, data={"skill": f"s{number}"})
        seen, url = [], f"{LIST}?q=event:skill"
        for _ in range(3):
            answer = browser.get(url)
            seen += [row.data["skill"] for row, _, _ in answer.context["rows"]]
            # Events written during paging do not shift the pages.
            record_event("skill.created", actor="system", now=now, data={"skill": "late"})
            url = f"{LIST}?{answer.context['older']}"
        assert seen == [f"s{number}" for number in reversed(range(120))]
        assert 'data-note="no-older-events"' in answer.content.decode()

    @pytest.mark.policy_case(26)
    def test_reading_leaves_one_row_for_each_search(
        self, browser: Client, now: datetime, alice: User
    ) -> None:
        for _ in range(2):
            listed(browser, "actor:alice")
            listed(browser, "")
        read = AuditEvent.objects.filter(type="ledger.read")
        assert {row.data["search"] for row in read} == {"", f"actor:user:{alice.pk}"}
        assert read.count() == 2

    def test_no_method_reads_without_a_row(self, browser: Client) -> None:
        read = AuditEvent.objects.filter(type="ledger.read")
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"):
            answer = browser.generic(method, f"{LIST}?q=actor:worker")
            assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
        for form in ("pdf", "", "CSV"):
            answer = browser.post(f"{LIST}export/?q=actor:worker", {"q": "", "form": form})
            assert (answer.status_code, answer.content) == (302, b"")
        assert browser.put(f"{LIST}export/?q=actor:worker").status_code == 405
        assert not read.exists()

        browser.head(LIST, {"q": "actor:worker"})
        browser.get(f"{LIST}export/", {"q": "event:turn"})

        assert [row.data["search"] for row in read.order_by("pk")] == ["actor:worker", "event:turn"]

    def test_a_person_is_named_beside_the_id(self, browser: Client, alice: User) -> None:
        assert f"alice (user:{alice.pk})" in opened(browser, LIST).words

    def test_an_actor_that_is_gone_stays_an_id(self, browser: Client, now: datetime) -> None:
        record_event("chat.deleted", actor="user:987654", now=now, chat_id=CHAT)

        assert "user:987654" in opened(browser, LIST).words

    def test_a_change_is_told_in_words_as_old_and_new(self, browser: Client, lay: Lay) -> None:
        before = {"strategy": "simple", "window_size": 20}
        policy = lay("support", before, version=3, level="instance")
        create_policy_version(
            policy=policy,
            values={**before, "window_size": 12, "archive": False},
            locks=[],
            note="",
            actor="system",
            now=NOW,
        )
        words = opened(browser, f"{LIST}?q=event:policy.version_created").words

        assert "Policy “Support” v3 → v4: archive not set → no; window 20 → 12" in words
        assert "note" not in words
        assert "locks" not in words

    def test_many_rows_take_no_more_queries_than_few(self, browser: Client, now: datetime) -> None:
        browser.get(LIST)
        with CaptureQueriesContext(connection) as few:
            browser.get(LIST)
        for number in range(30):
            made = User.objects.create(username=f"person {number}")
            record_event("policy.assigned", actor=f"user:{made.pk}", now=now)
        with CaptureQueriesContext(connection) as many:
            browser.get(LIST)

        assert len(many) == len(few)


def test_one_event_shows_its_data_its_hashes_and_that_they_fit(
    browser: Client, now: datetime
) -> None:
    event = record_event(
        "policy.created", actor="system", now=now, data={"name": "<script>", "n": 1}
    )

    url = reverse("admin:contextpolicy_auditevent_change", args=[event.pk])
    page = opened(browser, url)

    assert '"name": "<script>"' in page.words
    assert event.hash in page.words
    assert event.previous_hash in page.words
    assert page.inline == []
    assert 'alt="True"' in browser.get(url).content.decode()


def test_opening_one_event_leaves_one_row(browser: Client, now: datetime) -> None:
    event = record_event("chat.created", actor="system", now=now, chat_id=CHAT)
    url = reverse("admin:contextpolicy_auditevent_change", args=[event.pk])
    read = AuditEvent.objects.filter(type="ledger.read")

    assert browser.post(url, {}).status_code == 403
    assert signed_in(person("ada", POLICY_ADMIN)).get(url).status_code == 403
    assert browser.get(f"{LIST}999999/change/").status_code == 302
    assert browser.get(f"{LIST}x/change/").status_code == 302
    assert not read.exists()
    for method in ("get", "get", "head"):
        assert getattr(browser, method)(url).status_code == 200
    assert [row.data for row in read] == [{"event": f"chat:{CHAT}#1"}]

    assert browser.get(url.replace("change", "history")).status_code == 200
    other = read.get()
    assert browser.get(url.replace(str(event.pk), str(other.pk))).status_code == 200
    assert [row.data["event"] for row in read.order_by("pk")][1:] == [f"instance#{other.seq}"]


def drop_triggers() -> None:
    """Remove the triggers that refuse changes of the audit log."""
    triggers = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in triggers.DROP[connection.vendor]:
            cursor.execute(statement)


class TestVerifying:
    def test_a_ledger_that_holds_says_so(self, browser: Client, now: datetime) -> None:
        record_event("chat.created", actor="user:1", now=now, chat_id=CHAT)

        words = opened(browser, VERIFY).words

        assert "2 audit logs verified" in words
        assert f"{AuditEvent.objects.count()} rows recomputed" in words

    def test_a_broken_chain_is_named_with_its_first_bad_row(
        self, browser: Client, now: datetime
    ) -> None:
        for _ in range(3):
            record_event("chat.created", actor="user:1", now=now, chat_id=CHAT)
        drop_triggers()
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE contextpolicy_auditevent SET actor = 'user:9' WHERE seq = 2 AND scope = %s",
                [f"chat:{CHAT}"],
            )

        words = opened(browser, VERIFY).words

        assert "1 audit log broken" in words
        assert f"chat:{CHAT} 2 the content of the row was changed" in words
        assert "1 audit log verified" in opened(browser, f"{VERIFY}?scope=instance").words

    def test_a_reason_with_a_number_is_in_the_language_of_the_reader(
        self, browser: Client, now: datetime
    ) -> None:
        record_event("chat.created", actor="user:1", now=now, chat_id=CHAT)
        drop_triggers()
        LedgerHead.objects.filter(scope=f"chat:{CHAT}").update(count=2)

        page = browser.get(VERIFY, headers={"accept-language": "zh-hans"})

        with translation.override("zh-hans"):
            reason = localize_break_reason("later rows are missing: 2 rows were written")
        assert reason in [found.reason for found in page.context["breaks"]]

    def test_a_chain_that_does_not_exist_is_no_success(self, browser: Client) -> None:
        page = browser.get(f"{VERIFY}?scope=%3Cb%3Enowhere").content.decode()

        assert 'data-note="unknown-log"' in page

    def test_the_list_leads_to_it(self, browser: Client) -> None:
        assert VERIFY in opened(browser, LIST).urls


def test_an_effective_policy_names_the_source_of_each_value(browser: Client, now: datetime) -> None:
    seed_policies(now=now)
    row = resolve_policy(user_id=1, group_ids=[], chat_id=None, model_window=None, defaults={})

    url = reverse("admin:contextpolicy_effectivepolicy_change", args=[row.pk])
    words = opened(browser, url).words

    assert "strategy dynamic_summary instance demo v1" in words
    assert "token_budget 2600 instance demo v1" in words
    assert "Adjusted values: nothing" in words
    assert EffectivePolicy.objects.count() == 1


def test_what_was_tried_on_chats_is_told_in_words(browser: Client, now: datetime) -> None:
    create_policy(slug="support", name="Support", values={}, actor="system", now=now)
    counts = {"in_use": 1_200, "judged": 900, "changed": 14, "would_refuse": 2, "failed": 0}
    radius = {"policy": "support", "base": 2, "place": "instance", **counts}
    record_event("radius.stopped", actor="system", now=now, data=radius)
    draft = {"policy": "support", "version": 3, "base": 2, "days": 7}
    record_event("evaluation.started", actor="system", now=now, data=draft)

    words = opened(browser, LIST).words

    assert (
        "Count of chats affected by policy “Support” stopped: 900 of 1,200 chats evaluated, 14 "
        "would change, 2 would be refused; place instance; failed 0"
    ) in words
    assert "Evaluation of draft v3 of policy “Support” started: days 7" in words


def test_every_event_has_a_sentence() -> None:
    assert set(PHRASES) == EVENT_TYPES


def noting(made: Any, *, into: list[bool]) -> Any:
    """Create exports with `made`, and record which of them scan."""

    def making(*args: Any, **fields: Any) -> Any:
        found = made(*args, **fields)
        into.append(found.walks)
        return found

    return making


@pytest.mark.policy_case(23)
class TestExporting:
    @pytest.mark.policy_case(16)
    def test_lines_are_the_hashed_bytes_and_the_last_one_counts_them(
        self, browser: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(export, "PAGE", 3)
        for number in range(10):
            record_event("chat.created", actor="user:1", now=now, chat_id=CHAT, data={"n": number})
        lines = exported(browser, "jsonl", f"chat:{CHAT}").splitlines()
        foot = json.loads(lines.pop())

        previous = "0" * 64
        for line in lines:
            previous = hashlib.sha256(previous.encode() + line).hexdigest()
        assert previous == AuditEvent.objects.filter(chat_id=CHAT).latest("seq").hash
        whole = b"".join(line + b"\n" for line in lines)
        assert (foot["rows"], foot["chains"]) == (10, 1)
        assert foot["sha256"] == hashlib.sha256(whole).hexdigest()
        started, ended = AuditEvent.objects.filter(type__startswith="ledger.export").order_by("pk")
        assert started.data["export"] == ended.data["export"] == foot["export"]
        assert ended.data["rows"] == 10
        assert ended.data["search"] == f"chat:{CHAT}"

    def test_much_that_is_found_is_taken_from_a_walk_over_all_chains(
        self, browser: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(export, "PAGE", 3)
        for number in range(30):
            chat_id = uuid.UUID(int=number % 4 + 1)
            # The middle has ranges without matching events.
            kind = "chat.created" if number % 4 < 2 else "chat.titled"
            record_event(kind, actor="user:1", now=now, chat_id=chat_id, data={"n": number})
        search, walked = "event:chat.created", list[bool]()
        monkeypatch.setattr(export, "ExportUnderWay", noting(export.ExportUnderWay, into=walked))

        sorted_anew = exported(browser, "jsonl", search).splitlines()
        monkeypatch.setattr(export, "MOST_SORTED", 5)
        walk = exported(browser, "jsonl", search).splitlines()
        exported(browser, "jsonl", "")

        assert walked == [False, True, False]
        assert walk[:-1] == sorted_anew[:-1]
        feet = [json.loads(lines[-1]) for lines in (walk, sorted_anew)]
        for key, wanted in (("rows", 16), ("chains", 2)):
            assert [foot[key] for foot in feet] == [wanted, wanted]
        assert feet[0]["sha256"] == feet[1]["sha256"]

    def test_S22_a_table_holds_no_formula_and_all_that_was_found(
        self, browser: Client, now: datetime
    ) -> None:
        for begin in "=+-@\t\r":
            record_event("skill.created", actor=f"{begin}1+1", now=now, data={"skill": "x"})
        table = list(csv.reader(io.StringIO(exported(browser, "csv", "event:skill").decode())))

        assert [row[4] for row in table[1:]] == [f"'{begin}1+1" for begin in "=+-@\t\r"]
        assert len(table[0]) == len(table[1])

    def test_what_is_not_understood_is_not_exported(self, browser: Client) -> None:
        answer = browser.post(f"{LIST}export/", {"q": "foo:1", "form": "csv"})
        assert answer["Location"].endswith("?q=foo%3A1")
        unknown = browser.post(f"{LIST}export/", {"q": "actor:alice", "form": "pdf"})
        assert unknown["Location"] == "../?q=actor%3Aalice"
        assert browser.get(f"{LIST}export/").context["title"] == "Audit log"
        assert not AuditEvent.objects.filter(type="ledger.export_started").exists()

    def test_charlie_exports_nothing(self) -> None:
        charlie = signed_in(person("charlie", POLICY_ADMIN))
        answer = charlie.post(f"{LIST}export/", {"q": "", "form": "csv"})
        assert answer.status_code == 403


def exported(browser: Client, form: str, search: str) -> bytes:
    """The whole of an export."""
    answer: Any = browser.post(f"{LIST}export/", {"q": search, "form": form})
    assert answer.status_code == 200
    return read_stream(answer)


def test_a_draft_is_called_one_until_it_is_in_force(browser: Client, now: datetime) -> None:
    data = {"policy": "support", "version": 4}
    record_event("policy.version_created", actor="system", now=now, data={**data, "draft": True})
    record_event("policy.version_activated", actor="system", now=now, data=data)
    words = opened(browser, f"{LIST}?q=policy:support").words
    assert "Draft v4 of policy “support”" in words
    assert "Policy “support” v4 published" in words


class TestWhatWasDoneToSomebody:
    """An auditor finds what others did to a person, and every event that names an object."""

    @pytest.fixture
    def told(self, now: datetime, alice: User, bob: User, browser: Client) -> None:
        """Events about Alice and in her chat; her own events and Bob's are not included."""
        own, other = f"user:{alice.pk}", f"user:{bob.pk}"
        record_event("chat.created", actor=own, now=now, chat_id=CHAT)
        record_event(
            "message.pinned", actor=own, now=now, chat_id=CHAT, data={"message": str(TURN)}
        )
        record_event("turn.completed", actor="worker", now=now, chat_id=CHAT, turn_id=TURN)
        record_event("content.opened", actor=other, now=now, chat_id=CHAT, data={"reason": "r"})
        record_event("chat.erased", actor="system", now=now, chat_id=CHAT)
        record_event("role.changed", actor=other, now=now, data={"user": alice.pk})
        record_event(
            "api_key.revoked", actor=other, now=now, data={"owner": alice.pk, "key": str(CHAT)}
        )
        record_event("password.changed", actor=own, now=now, data={"user": alice.pk})
        record_event("user.changed", actor=own, now=now, data={"user": bob.pk})
        data = {"level": "user", "user": alice.pk, "policy": "support", "previous": ""}
        record_event("policy.assigned", actor=other, now=now, data=data)

    @pytest.mark.usefixtures("told")
    def test_it_is_found_by_name_in_any_case_or_number(self, browser: Client, alice: User) -> None:
        others = {
            "content.opened",
            "chat.erased",
            "role.changed",
            "api_key.revoked",
            "policy.assigned",
        }
        for said in ("person:alice", "person:ALICE", f"person:user:{alice.pk}"):
            assert listed(browser, said) == others, said
        assert listed(browser, "person:bob") == {"user.changed"}
        assert listed(browser, "person:alice event:role") == {"role.changed"}
        answer = browser.get(LIST, {"q": "event:role", "person": "alice", "object": " "})
        assert [row.type for row, _, _ in answer.context["rows"]] == ["role.changed"]
        assert answer.context["q"] == "event:role person:alice"

    @pytest.mark.usefixtures("told")
    def test_an_object_is_found_by_its_id_or_short_name(self, browser: Client) -> None:
        cases = {
            f"object:{str(TURN).upper()}": {"message.pinned", "turn.completed"},
            "object:support": {"policy.assigned"},
            "object:suppor": set(),
            "object:level": set(),
            f"object:{CHAT} event:api_key": {"api_key.revoked"},
        }
        assert {said: listed(browser, said) for said in cases} == cases

    @pytest.mark.usefixtures("told")
    @pytest.mark.parametrize(
        "term",
        [
            "person:alice",
            "person:alice,bob",
            "policy:support",
            "field:window_size",
            "object:support",
            f"object:{TURN}",
            f"chat:{CHAT}",
            "chat:none",
            f"turn:{TURN}",
            f"id:{CHAT}",
            "actor:people",
            "event:role",
            "at:2020-01-01",
        ],
    )
    def test_a_minus_finds_all_other_events(self, term: str, now: datetime) -> None:
        record_event("policy.changed", actor="system", now=now, data={})
        found, others = (
            set(AuditEvent.objects.filter(parse_search_line(line).condition))
            for line in (term, f"-{term}")
        )
        assert found | others == set(AuditEvent.objects.all())
        assert not found & others

    def test_what_is_no_person_or_object_is_refused(self, browser: Client) -> None:
        for text, reason in {
            "person:nobody": "unknown_person",
            "person:worker": "unknown_person",
            'object:"': "no_object",
        }.items():
            assert f'data-reason="{reason}"' in browser.get(LIST, {"q": text}).content.decode()


def test_a_table_opens_in_excel_with_letters_of_every_script(
    browser: Client, now: datetime
) -> None:
    record_event("skill.created", actor="system", now=now, data={"skill": "摘要"})
    file = exported(browser, "csv", "event:skill")
    assert file.startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(io.StringIO(file.decode("utf-8-sig"))))
    assert rows[0][0] == "scope"
    assert "摘要" in rows[1][7]
