"""Nightly retention: expired messages are erased in steps, and the run has a certificate."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, TestCase
from django.utils import timezone

from benchmarks.bulk import cover, fill
from chats.actions import (
    certificates,
    erasure,
    lifecycle,
    retention,
    retention_quotes,
    retention_rules,
    retention_schedule,
)
from chats.admin.retention.runs import CERTIFIED
from chats.ground import queue
from chats.ground.leases import LeaseLost
from chats.memory.preferences import memory_settings
from chats.models import (
    Agent,
    Chat,
    Compaction,
    Message,
    Preference,
    RetentionEntry,
    RetentionRun,
    Turn,
)
from chats.people import keys
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft, TeamDraft
from chats.turns.start import start_turn
from contextpolicy import holds, ledger
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.roles import AUDITOR, OPERATOR, POLICY_ADMIN
from tests.chats.api.programs import Program
from tests.contextpolicy.pages import submitted
from tests.contextpolicy.people import person, signed_in
from tests.support.repository import ROOT
from tests.support.retention_runs import run_all

pytestmark = pytest.mark.django_db
PREVIEW = "/admin/chats/retentionrun/preview/"
NEVER: Callable[[], bool] = lambda: False  # noqa: E731  # a name for what it says


@pytest.fixture
def browser() -> Client:
    """The browser of Ines, a policy administrator."""
    return signed_in(person("ines", POLICY_ADMIN))


@pytest.fixture
def ninety(db: None, now: datetime) -> None:
    """An instance-wide policy that erases messages after ninety days."""
    limit("ninety", 90, level="instance")


def limit(slug: str, days: int, **target: Any) -> None:
    """Assign a policy with a retention period at a level."""
    at = timezone.now()
    values = {"retention_days": days}
    policy = create_policy(slug=slug, name=slug, values=values, actor="system", now=at)
    assign_policy(policy=policy, actor="system", now=at, **target)


def aged(owner: User, *days: int, title: str = "") -> Chat:
    """Create a chat with one message per number: its age in days, oldest first."""
    at = timezone.now()
    chat = lifecycle.create_chat(owner=owner, now=at, title=title)
    fill(chat, [f"Word{number} of {number} days" for number in days], now=at)
    for seq, number in enumerate(days, start=1):
        rows = Message.objects.filter(branch__chat=chat, seq=seq)
        rows.update(created_at=at - timedelta(days=number, minutes=1))
    return chat


def left(chat: Chat) -> list[int | None]:
    """Return the sequence numbers of a chat's messages that still have text."""
    rows = Message.objects.filter(branch__chat=chat, erased_at=None).order_by("seq")
    return list(rows.values_list("seq", flat=True))


@pytest.mark.requirement("S4.5")
def test_an_administrator_sets_previews_and_runs_it(
    browser: Client, alice: User, charlie: User, demo_model: object
) -> None:
    partly, wholly = aged(alice, 200, 95, 10), aged(charlie, 300, 120)
    young = aged(alice, 89)
    answer = submitted(
        browser,
        "/admin/contextpolicy/contextpolicy/add/",
        name="Ninety days",
        slug="ninety",
        retention_days="90",
    )
    assert answer.status_code == 302
    made = ContextPolicy.objects.get(slug="ninety")
    assert made.current is not None
    assert made.current.values["retention_days"] == 90
    assign_policy(policy=made, level="instance", actor="system", now=timezone.now())

    page = browser.get(PREVIEW).content.decode()
    assert "<b>4</b> messages in" in " ".join(page.split())
    for name in ("alice", "charlie"):
        assert f"<td>{name}</td>" in page
    assert "Word" not in page
    assert left(partly) == [1, 2, 3]

    begun = browser.post(PREVIEW)
    retention.continue_retention_run(clock=timezone.now, is_closing=NEVER)

    run = RetentionRun.objects.get()
    assert begun.headers["Location"] == f"/admin/chats/retentionrun/{run.pk}/change/"
    assert left(partly) == [3]
    assert left(young) == [1]
    assert not Chat.objects.filter(pk=wholly.pk).exists()
    assert (run.chats, run.chats_erased, run.messages_erased) == (3, 1, 4)
    assert str(CERTIFIED) in browser.get(begun.headers["Location"]).content.decode()
    assert 'data-note="nothing-due"' in browser.get(PREVIEW).content.decode()


def test_the_certificate_is_a_file_that_the_ledger_confirms(
    browser: Client, ninety: None, alice: User, demo_model: object, tmp_path: Path
) -> None:
    aged(alice, 200, 120)
    browser.post(PREVIEW)
    retention.continue_retention_run(clock=timezone.now, is_closing=NEVER)
    run = RetentionRun.objects.get()
    started = AuditEvent.objects.get(type="retention.started")
    assert started.actor.startswith("user:")
    file = browser.get(f"/admin/chats/retentionrun/{run.pk}/certificate/")
    assert "attachment" in file.headers["Content-Disposition"]
    said = json.loads(file.content)
    assert said["messages_erased"] == 2
    ended = AuditEvent.objects.get(type="retention.ended")
    assert said["ledger"] == {"scope": "instance", "seq": ended.seq, "hash": ended.hash}
    assert retention.hash_entry_lines(said["entries"]) == said["digest"] == ended.data["digest"]
    assert not list(ledger.find_ledger_breaks())
    # Verify as documented, without the product.
    (tmp_path / "retention-ID.json").write_bytes(file.content)
    documentation = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    _, _, about = documentation.partition("## The certificate of a run of retention")
    command = about.split("```sh\n")[1].split("```")[0]
    done = subprocess.run(["sh", "-ec", command], cwd=tmp_path, capture_output=True, text=True)  # noqa: S607
    assert done.stdout == "True\n", done.stderr


def test_auditors_look_and_operators_do_not(browser: Client, ninety: None) -> None:
    run = run_all()
    auditor, operator = (
        signed_in(person(name, role)) for name, role in (("axel", AUDITOR), ("olga", OPERATOR))
    )
    certificate = f"/admin/chats/retentionrun/{run.pk}/certificate/"
    for where in (PREVIEW, certificate, "/admin/chats/retentionrun/"):
        assert auditor.get(where).status_code == 200
        assert operator.get(where).status_code == 403
    assert 'data-act="start-run"' in browser.get(PREVIEW).content.decode()
    assert 'data-act="start-run"' not in auditor.get(PREVIEW).content.decode()
    assert auditor.post(PREVIEW).status_code == 403
    missing = "/admin/chats/retentionrun/0e8b8a4c-0c56-4d55-9d5b-6a8f0e0f6c11/certificate/"
    assert auditor.get(missing).status_code == 404


def test_a_program_previews_begins_and_reads_the_certificate(ninety: None, alice: User) -> None:
    aged(alice, 200, 10)
    ines = person("ines", POLICY_ADMIN)
    of_ines, of_axel, of_alice = (program(each) for each in (ines, person("axel", AUDITOR), alice))
    said = of_ines.get("retention").json()
    assert (said["chats"], said["messages"], said["is_all"]) == (1, 1, True)
    assert said["people"][0]["username"] == "alice"
    assert of_axel.post("retention/runs").status_code == 403
    assert of_alice.get("retention").status_code == 404
    assert of_alice.get("retention/runs").status_code == 404
    begun = of_ines.post("retention/runs")
    assert begun.status_code == 202
    # A running run is returned again. It has no certificate yet.
    assert of_ines.post("retention/runs").json()["id"] == begun.json()["id"]
    where = f"retention/runs/{begun.json()['id']}/certificate"
    assert of_ines.get(where).status_code == 404
    retention.continue_retention_run(clock=timezone.now, is_closing=NEVER)
    certificate = of_axel.get(where).json()
    assert certificate["messages_erased"] == 1
    assert retention.hash_entry_lines(certificate["entries"]) == certificate["digest"]
    assert of_axel.get("retention/runs").json()["data"][0]["messages_erased"] == 1
    assert of_alice.get(where).status_code == 404


def program(owner: User) -> Program:
    """Return an API client of a user, with a key for all scopes."""
    _, secret = keys.create_key(
        owner=owner, name="a program", scopes=keys.SCOPES, now=timezone.now()
    )
    return Program(secret)


def test_owners_are_told(ninety: None, alice: User, chat: Chat) -> None:
    page = signed_in(alice)
    told = " ".join(page.get(f"/chats/{chat.pk}/").content.decode().split())
    assert "Messages here are erased after</span> 90 days" in told
    assert "Messages are erased after 90 days" in page.get("/chats/new").content.decode()
    values = program(alice).get(f"chats/{chat.pk}/policy").json()["values"]
    assert values["retention_days"] == 90


def test_the_shortest_time_of_all_levels_holds(
    ninety: None, alice: User, charlie: User, demo_model: object
) -> None:
    hers, theirs = aged(alice, 40, 5), aged(charlie, 40, 5)
    other = aged(alice, 10, 1)
    limit("thirty", 30, level="user", user=alice)
    limit("longer", 400, level="chat", chat_id=hers.pk)
    limit("week", 7, level="chat", chat_id=other.pk)
    found = retention_rules.map_retention_days([hers, theirs, other])
    assert found == {hers.pk: 30, theirs.pk: 90, other.pk: 7}
    run_all()
    assert (left(hers), left(theirs), left(other)) == ([2], [1, 2], [2])


def test_it_takes_what_was_made_of_the_messages(
    ninety: None, alice: User, chat: Chat, work: Any
) -> None:
    now = timezone.now()
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    for text in ("My name is Alice Berg.", "And the code is 7781.", "Thanks"):
        work(start_turn(user=alice, chat=chat, text=text, now=now).turn)
    branch = chat.branches.get()
    cover(branch, to_seq=4, now=now)
    old = timezone.now() - timedelta(days=91)
    Message.objects.filter(seq__lte=2).update(created_at=old)
    assert Preference.objects.exists()

    run = run_all()

    assert left(chat) == [3, 4, 5, 6]
    assert not Preference.objects.exists()
    summary = Compaction.objects.get()
    assert (summary.text, summary.erased_at is not None) == ("", True)
    branch.refresh_from_db()
    assert branch.active_compaction is None
    events = AuditEvent.objects.filter(type="message.erased").order_by("seq")
    assert [event.data["reason"] for event in events] == ["retention", "retention"]
    assert all(event.actor == "system" for event in events)
    entry = run.entries.get()
    assert (entry.messages, entry.days, entry.last_hash) == (2, 90, events[1].hash)
    assert not certificates.list_certificate_faults(run)


QUOTED = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."


@pytest.mark.parametrize("at_once", [1, 10])
def test_the_certificate_of_a_message_names_its_quotes(
    ninety: None, alice: User, chat: Chat, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", at_once)
    first, second = f"First. {QUOTED}", "Second: the red key opens the door of the cellar, always."
    texts = [first, f"{QUOTED} {second}", f"Quoted: {second}", "Nothing", f"Quoted: {QUOTED}"]
    fill(chat, texts, now=timezone.now())
    old = timezone.now() - timedelta(days=91)
    Message.objects.filter(seq__lte=2).update(created_at=old)
    ids = [str(pk) for pk in Message.objects.order_by("seq").values_list("pk", flat=True)]
    late = list[str]()
    take = retention.erase_message_batch

    def after_another(*given: Any, **named: Any) -> bool:
        if not late:
            row = Message.objects.latest("seq")
            row.pk, row.seq, row.accepted = uuid.uuid4(), 6, row.accepted + 1
            row.save(force_insert=True)
            late.append(str(row.pk))
        return take(*given, **named)

    monkeypatch.setattr(retention, "erase_message_batch", after_another)
    run = run_all()

    events = AuditEvent.objects.filter(type="message.erased").order_by("seq")
    named = {event.data["message"]: event.data["quoted_by"] for event in events}
    between = [ids[1]] if at_once == 1 else []
    assert named == {ids[0]: [*between, ids[4], *late], ids[1]: [ids[2], ids[4], *late]}
    assert not certificates.list_certificate_faults(run)
    erased = Message.objects.get(pk=ids[0])
    assert [str(quote.message.pk) for quote in erasure.list_quotes(erased)] == [ids[4], *late]


def test_the_certificate_of_a_standard_phrase_names_some_quotes(
    ninety: None, alice: User, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_quotes, "MOST_NAMED", 3)
    fill(chat, [f"{QUOTED} {number}" for number in range(8)], now=timezone.now())
    Message.objects.filter(seq=1).update(created_at=timezone.now() - timedelta(days=91))
    ids = [str(pk) for pk in Message.objects.order_by("seq").values_list("pk", flat=True)]
    run_all()
    assert AuditEvent.objects.get(type="message.erased").data["quoted_by"] == ids[1:4]


def test_a_chat_in_which_a_reply_is_written_waits(
    ninety: None, alice: User, chat: Chat, now: datetime
) -> None:
    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    Message.objects.update(created_at=timezone.now() - timedelta(days=91))
    run = run_all()
    assert (run.chats_busy, run.messages_erased) == (1, 0)
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    assert run_all().messages_erased == 1


def test_a_chat_that_fails_holds_up_no_other(
    ninety: None, alice: User, demo_model: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted([aged(alice, 200, 10), aged(alice, 200, 10)], key=pk_of)
    take = erasure.erase_locked_messages

    def fails_at_first(rows: Any, *, chat: Chat, **more: Any) -> Any:
        if chat.pk == first.pk:
            raise ValueError("a fault")
        return take(rows, chat=chat, **more)

    monkeypatch.setattr(erasure, "erase_locked_messages", fails_at_first)
    run = run_all()
    assert (left(first), left(second)) == ([1, 2], [2])
    assert (run.chats_failed, run.messages_erased, run.chats) == (1, 1, 2)
    assert not certificates.list_certificate_faults(run)


@pytest.mark.policy_case(27)
def test_a_hold_that_is_placed_in_the_middle_of_a_run_holds(
    ninety: None, alice: User, charlie: User, demo_model: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    first, second = sorted([aged(alice, 200, 190, 10), aged(charlie, 200, 190, 10)], key=pk_of)
    run = retention.start_retention_run(actor="system", now=timezone.now())
    lease = retention.claim_retention_run()
    assert lease is not None
    steps = retention.run_retention_steps(lease, clock=timezone.now)
    next(steps)
    assert left(first) == [2, 3]
    for chat in (first, second):
        holds.place_hold(
            level="chat",
            chat_id=chat.pk,
            case="7",
            reason="Why",
            actor="user:1",
            now=timezone.now(),
        )
    rest(steps)
    assert (left(first), left(second)) == ([2, 3], [1, 2, 3])
    run.refresh_from_db()
    assert (run.chats_held, run.messages_erased, run.chats) == (2, 1, 2)
    found = retention_rules.preview_retention(now=timezone.now())
    assert (found.messages, found.held_messages, found.held_chats) == (0, 3, 2)
    assert not certificates.list_certificate_faults(run)


def pk_of(chat: Chat) -> Any:
    """Return the id that a run uses to order the chats."""
    return chat.pk


def rest(steps: Iterator[None]) -> int:
    """Run the remaining steps and return their number."""
    return sum(1 for _ in steps)


@pytest.mark.parametrize("stops", range(1, 9))
def test_a_run_that_was_left_goes_on_where_it_ended(
    stops: int,
    ninety: None,
    alice: User,
    demo_model: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 2)
    chats = [aged(alice, 200, 190, 180, 10), aged(alice, 200, 190), aged(alice, 5)]
    chats += [aged(alice, 100, 99, 98, 97, 96, 3)]
    retention.start_retention_run(actor="system", now=timezone.now())
    lease = retention.claim_retention_run()
    assert lease is not None
    for _, _ in zip(
        range(stops), retention.run_retention_steps(lease, clock=timezone.now), strict=False
    ):
        pass
    # While its worker is alive, no other worker continues the run.
    is_over = not RetentionRun.objects.get().is_open
    assert retention.claim_retention_run() is None
    RetentionRun.objects.update(lease_until=timezone.now() - timedelta(hours=1))

    retention.continue_retention_run(clock=timezone.now, is_closing=NEVER)

    run = RetentionRun.objects.get()
    assert not run.is_open or is_over
    assert (run.chats, run.messages_erased, run.chats_erased) == (4, 10, 1)
    assert [left(chat) for chat in chats if chat != chats[1]] == [[4], [1], [6]]
    assert AuditEvent.objects.filter(type="message.erased").count() == 8
    assert AuditEvent.objects.filter(type="retention.ended").count() == 1
    assert not certificates.list_certificate_faults(run)


def test_who_lost_the_run_erases_nothing(ninety: None, alice: User, demo_model: object) -> None:
    chat = aged(alice, 200, 10)
    retention.start_retention_run(actor="system", now=timezone.now())
    late = retention.claim_retention_run()
    assert late is not None
    RetentionRun.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    assert retention.claim_retention_run() is not None
    with pytest.raises(LeaseLost):
        rest(retention.run_retention_steps(late, clock=timezone.now))
    assert left(chat) == [1, 2]
    assert not RetentionEntry.objects.exists()


def test_a_worker_that_is_told_to_end_hands_the_run_on(
    ninety: None, alice: User, demo_model: object, sent: list[Any]
) -> None:
    aged(alice, 200, 10)
    with TestCase.captureOnCommitCallbacks(execute=True):
        retention.start_retention_run(actor="system", now=timezone.now())
        retention.continue_retention_run(clock=timezone.now, is_closing=lambda: True)
    assert RetentionRun.objects.get().is_open
    assert (queue.RETAIN, {}) in sent
    assert retention.claim_retention_run() is not None


def test_it_is_due_once_a_night_where_a_policy_asks(
    alice: User, demo_model: object, sent: list[Any]
) -> None:
    night = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)
    assert not retention_schedule.is_retention_due(now=night)
    limit("ninety", 90, level="instance")
    assert retention_schedule.is_retention_due(now=night)
    assert not retention_schedule.is_retention_due(now=night.replace(hour=12))
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert retention_schedule.enqueue_due(now=night) == 1
    assert sent[-1] == (queue.RETAIN, {})
    retention.continue_retention_run(clock=lambda: night, is_closing=NEVER)
    assert RetentionRun.objects.get().finished_at == night
    assert not retention_schedule.is_retention_due(now=night + timedelta(hours=2))
    assert retention_schedule.enqueue_due(now=night + timedelta(hours=2)) == 0
    assert retention_schedule.is_retention_due(now=night + timedelta(days=1))
    # A night during which the server was off is made up for.
    assert retention_schedule.is_retention_due(now=night + timedelta(days=1, hours=13))


@pytest.mark.parametrize("what", ["entry", "count", "ledger"])
def test_a_certificate_that_was_changed_is_found(
    what: str, ninety: None, alice: User, demo_model: object
) -> None:
    aged(alice, 200, 190, 10)
    run = run_all()
    assert not certificates.list_certificate_faults(run)
    if what == "entry":
        RetentionEntry.objects.update(messages=7)
    elif what == "count":
        RetentionRun.objects.update(messages_erased=7)
    else:
        RetentionEntry.objects.update(last_hash="0" * 64)
    run.refresh_from_db()
    assert certificates.list_certificate_faults(run)


def test_days_have_their_limits(browser: Client) -> None:
    for days in ("0", "36501", "-1"):
        submitted(
            browser,
            "/admin/contextpolicy/contextpolicy/add/",
            name="Days",
            slug="days",
            retention_days=days,
        )
        assert not retention_schedule.is_limited()


def test_the_shortest_period_of_a_teams_agents_applies_to_its_chats(
    alice: User, demo_model: object, now: datetime
) -> None:
    limit("year", 365, level="instance")
    short = create_policy(
        slug="week", name="Week", values={"retention_days": 7}, actor="system", now=now
    )
    with_team, without = aged(alice, 30, 3), aged(alice, 30, 3)
    agents = (AgentDraft(name="Planner"), AgentDraft(name="Critic"))
    saved = rosters.create_team(
        user=alice, draft=TeamDraft(name="Pair", agents=agents), shared=False, now=now
    )
    Agent.objects.filter(name="Critic").update(policy=short)
    Chat.objects.filter(pk=with_team.pk).update(team=saved.team)
    run_all()
    assert (left(with_team), left(without)) == ([2], [1, 2])
