"""The message cap of a team: the oldest messages leave prompts in a batch and stay searchable."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chats.compaction import maintain, message_cap, plan, window
from chats.ground import queue
from chats.memory.search import archive
from chats.memory.search.search import search_archive
from chats.models import Branch, Chat, Compaction, Message, Team, TeamVersion, Turn
from chats.prompt.composition import WindowMoveRequired
from chats.teams import conversation, draft_checks, rosters, snapshots, team_drafts
from chats.teams.draft_checks import InvalidTeam
from chats.teams.team_drafts import TeamDraft
from contextpolicy.engine.compose.assembly import WindowNeeded
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, EffectivePolicy, ModelSpec
from tests.chats.api.conftest import program
from tests.chats.api.programs import MakeProgram
from tests.support.chat_pages import get_chat_url
from tests.support.error_codes import read_status_and_code
from tests.support.team_rounds import TeamPlay, draft_team

__all__ = ["program"]
Teams = Callable[..., Team]
ANN = {"roleId": "ann", "roleName": "Ann", "type": "human"}


def branch_of(chat: Chat) -> Branch:
    """Reload the chat's active branch."""
    rows = Branch.objects.select_related("active_compaction__base", "chat")
    return rows.get(chat=chat, parent=None)


@pytest.fixture
def capped(chat: Chat, team_of: Teams) -> Callable[..., Chat]:
    """Alice's chat with a team that has a cap, filled with this number of messages."""

    def make(*, message_cap: int = 20, messages: int = 0, now: datetime) -> Chat:
        chat.team = team_of("Planner", message_cap=message_cap)
        chat.save()
        fill(chat, messages, now=now)
        return chat

    return make


def fill(chat: Chat, count: int, *, now: datetime) -> None:
    """Store messages at the end of the chat, without a task."""
    branch = branch_of(chat)
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role="user",
            speaker=ANN,
            parts=[{"type": "text", "text": f"Fact {seq} about herons"}],
            created_at=now,
        )
        for seq in range(branch.last_seq + 1, branch.last_seq + count + 1)
    )
    last = branch.last_seq + count
    Branch.objects.filter(pk=branch.pk).update(last_seq=last)
    Chat.objects.filter(pk=chat.pk).update(accepted_count=last)


def add(chat: Chat, user: User, now: datetime, text: str = "One more") -> None:
    """Add a message over the API."""
    data = {"content": text, "speaker": ANN}
    chat = Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk)
    counter = ApproximateCounter()
    conversation.add_message(user=user, chat=chat, data=data, counter=counter, now=now)


def work_off(chat: Chat, now: datetime) -> None:
    """Run the chat's task as the worker does."""
    maintain.maintain_chat_context(chat_id=chat.pk, counter=ApproximateCounter(), now=now)


@pytest.mark.requirement("S3.12")
def test_the_oldest_leave_in_one_batch_and_are_found(
    capped: Callable[..., Chat],
    alice: User,
    now: datetime,
    django_capture_on_commit_callbacks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(queue, "publish_task", lambda task, given, **_more: sent.append(task))
    chat = capped(messages=19, now=now)
    with django_capture_on_commit_callbacks(execute=True):
        add(chat, alice, now)
    assert sent == []
    work_off(chat, now)
    assert branch_of(chat).active_compaction is None

    with django_capture_on_commit_callbacks(execute=True):
        add(chat, alice, now)
    assert sent == [queue.MAINTAIN_CHAT]
    work_off(chat, now)

    row = branch_of(chat).active_compaction
    assert row is not None
    assert (row.kind, row.status, row.reason) == ("window", "published", "cap")
    # Of 21 messages 15 stay: three quarters of 20.
    assert (row.from_seq, row.to_seq) == (1, 6)
    assert Message.objects.filter(branch__chat=chat).count() == 21
    event = AuditEvent.objects.get(type="window.moved")
    assert event.data["reason"] == "cap"
    archive.index_branch(branch_of(chat))
    found = search_archive(branch_of(chat), question="fact 3 herons", most=5).rows
    assert found[0].seq == 3
    assert {found.seq for found in found} <= set(range(1, 7))


def test_the_next_batch_goes_when_the_cap_is_passed_again(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(messages=21, now=now)
    work_off(chat, now)
    fill(chat, 5, now=now)
    work_off(chat, now)
    first = branch_of(chat).active_compaction
    assert first is not None
    assert first.to_seq == 6
    fill(chat, 1, now=now)
    work_off(chat, now)
    second = branch_of(chat).active_compaction
    assert second is not None
    assert (second.from_seq, second.to_seq, second.previous) == (1, 12, first)
    # A task delivered twice changes nothing.
    work_off(chat, now)
    assert branch_of(chat).active_compaction == second


def test_a_team_without_a_cap_and_a_chat_without_a_team_keep_all(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(message_cap=0, messages=200, now=now)
    work_off(chat, now)
    Chat.objects.filter(pk=chat.pk).update(team=None)
    work_off(chat, now)
    assert branch_of(chat).active_compaction is None
    Chat.objects.filter(pk=chat.pk).update(active_branch=None)
    assert message_cap.apply_message_cap(chat_id=chat.pk, now=now) is None


def test_nothing_moves_below_a_reply_and_the_end_of_the_round_asks_again(
    play: Callable[..., TeamPlay], now: datetime
) -> None:
    game = play("Planner", "Critic", message_cap=20)
    fill(game.chat, 20, now=now)
    game.ask()
    game.answer("A plan.")
    work_off(game.chat, now)
    assert branch_of(game.chat).active_compaction is None
    game.answer("No.")
    work_off(game.chat, now)
    row = branch_of(game.chat).active_compaction
    assert row is not None
    # 23 messages, 15 stay.
    assert row.to_seq == 8


def test_a_prompt_of_an_agent_begins_behind_the_cap(
    play: Callable[..., TeamPlay], now: datetime
) -> None:
    game = play("Planner", message_cap=20)
    game.chat.team.current.agents.update(window_size=100)  # type: ignore[union-attr]  # it has one
    fill(game.chat, 40, now=now)
    work_off(game.chat, now)
    game.ask("And now?")
    game.answer("A plan.")
    sent = "\n".join(content for _, content in game.prompts[-1])
    assert "Fact 25 about" not in sent
    assert "Fact 26 about" in sent


def test_no_turn_is_split(capped: Callable[..., Chat], now: datetime) -> None:
    chat = capped(messages=30, now=now)
    branch = branch_of(chat)
    turns = Message.objects.filter(branch=branch)
    turn = Turn.objects.create(
        branch=branch, accepted=99, trigger=turns[0], status="completed", queued_at=now
    )
    turns.filter(seq__gte=14, seq__lte=18).update(turn=turn)
    assert message_cap.find_cutoff_seq(branch, cap=20) == 18
    turns.filter(seq__gte=14).update(turn=turn)
    assert message_cap.find_cutoff_seq(branch, cap=20) == 13
    turns.update(turn=turn)
    assert message_cap.find_cutoff_seq(branch, cap=20) is None
    assert message_cap.apply_message_cap(chat_id=chat.pk, now=now) is None


def test_a_pause_after_an_undo_holds_for_the_cap_too(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(messages=30, now=now)
    Branch.objects.filter(chat=chat).update(compaction_paused=True, paused_at=now)
    work_off(chat, now)
    assert branch_of(chat).active_compaction is None
    Branch.objects.filter(chat=chat).update(compaction_paused=False, paused_at=None)
    work_off(chat, now)
    assert branch_of(chat).active_compaction is not None


def test_a_chat_that_changed_meanwhile_is_left_alone(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(messages=30, now=now)
    branch = branch_of(chat)
    effective = EffectivePolicy.objects.create(digest="e" * 64, values={}, sources={})
    needed = WindowNeeded(5, tokens_before=0, tokens_after=0, reason="cap")
    move = WindowMoveRequired(needed, effective)
    Chat.objects.filter(pk=chat.pk).update(deleted_at=now)
    assert message_cap.move_window_if_idle(branch, move=move, now=now) is None
    assert message_cap.apply_message_cap(chat_id=chat.pk, now=now) is None
    Chat.objects.filter(pk=chat.pk).update(deleted_at=None, active_branch=None)
    assert message_cap.move_window_if_idle(branch, move=move, now=now) is None
    assert not Compaction.objects.exists()


def test_the_window_of_a_cap_says_nothing_about_summaries(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(messages=30, now=now)
    work_off(chat, now)
    branch = branch_of(chat)
    assert not plan.has_late_summaries(branch)
    assert not window.is_makeshift(branch.active_compaction)
    assert window.is_makeshift(Compaction(kind="window", reason="tokens"))
    Compaction.objects.create(
        branch=branch,
        kind="summary",
        status="published",
        text="A summary.",
        from_seq=1,
        to_seq=3,
        trigger="tokens",
        displaced=branch.active_compaction,
        effective_policy=branch.active_compaction.effective_policy,  # type: ignore[union-attr]  # there is one
        created_at=now,
        published_at=now,
    )
    Branch.objects.filter(pk=branch.pk).update(active_compaction=None)
    assert not plan.has_late_summaries(branch_of(chat))


def test_a_summary_that_reaches_less_far_keeps_the_window_of_a_cap(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(messages=30, now=now)
    work_off(chat, now)
    active = branch_of(chat).active_compaction
    assert active is not None
    summary = Compaction.objects.create(
        branch=branch_of(chat),
        kind="summary",
        status="prepared",
        text="A summary.",
        from_seq=1,
        to_seq=4,
        trigger="tokens",
        effective_policy=active.effective_policy,
        created_at=now,
    )
    above = window.keep_window_over_summary(summary, active=active, now=now)
    assert above is not None
    assert (above.base, above.from_seq, above.to_seq, above.reason) == (summary, 5, 15, "cap")
    Compaction.objects.filter(pk=active.pk).update(reason="tokens")
    active.refresh_from_db()
    assert window.keep_window_over_summary(summary, active=active, now=now) is None


def test_an_import_over_the_cap_is_worked_off(
    capped: Callable[..., Chat],
    alice: User,
    now: datetime,
    django_capture_on_commit_callbacks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(queue, "publish_task", lambda task, given, **_more: sent.append(task))
    chat = capped(messages=25, now=now)
    taken = snapshots.export_team_snapshot(chat=chat_of(chat), now=now)
    with django_capture_on_commit_callbacks(execute=True):
        snapshots.import_team_snapshot(
            chat=chat_of(chat),
            snapshot=taken,
            counter=ApproximateCounter(),
            actor=f"user:{alice.pk}",
            now=now,
        )
    assert queue.MAINTAIN_CHAT in sent


def chat_of(chat: Chat) -> Chat:
    """Load the chat as a request does."""
    return Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk)


def test_adding_costs_the_same_in_a_long_chat(
    capped: Callable[..., Chat], alice: User, now: datetime
) -> None:
    chat = capped(message_cap=5_000, messages=10, now=now)
    add(chat, alice, now)
    with CaptureQueriesContext(connection) as short:
        add(chat, alice, now)
    fill(chat, 4_900, now=now)
    with CaptureQueriesContext(connection) as long:
        add(chat, alice, now)
    assert len(long) == len(short)
    fill(chat, 200, now=now)
    with CaptureQueriesContext(connection) as over:
        add(chat, alice, now)
    assert len(over) == len(short)
    assert not any("COUNT(" in query["sql"].upper() for query in over)


def test_an_agent_of_a_program_is_shown_no_more_than_the_cap(
    capped: Callable[..., Chat], now: datetime
) -> None:
    chat = capped(messages=60, now=now)
    agent = conversation.RequestedAgent(agent_id="planner", window_size=100)
    shown = conversation.assemble_agent_context(chat=chat_of(chat), agent=agent)
    assert len(shown.context_messages) == 20
    assert [reason for _, reason in shown.left_out] == ["window"]


@pytest.mark.parametrize(
    ("values", "is_fine"),
    [
        ({"message_cap": 0}, True),
        ({"message_cap": 20}, True),
        ({"message_cap": 100_000}, True),
        ({"message_cap": 19}, False),
        ({"message_cap": 100_001}, False),
        ({"message_cap": -1}, False),
        ({"message_cap": 29, "hop_limit": 30}, False),
        ({"message_cap": 30, "hop_limit": 30}, True),
    ],
)
def test_a_cap_holds_a_whole_round(values: dict[str, int], is_fine: bool) -> None:
    asked = draft_team("Planner", **values)
    if is_fine:
        draft_checks.check_team(asked)
        return
    with pytest.raises(InvalidTeam) as refused:
        draft_checks.check_team(asked)
    assert (refused.value.code, refused.value.param) == ("invalid_team", "message_cap")
    least, most = refused.value.details["least"], refused.value.details["most"]
    assert least <= most
    assert not least <= asked.message_cap <= most


def test_versions_and_copies_keep_the_cap(
    made: Callable[..., Team], alice: User, now: datetime
) -> None:
    team = made("Planner", message_cap=50)
    asked: TeamDraft = team_drafts.build_version_draft(team.current)  # type: ignore[arg-type]  # it has one
    assert asked.message_cap == 50
    copied = rosters.copy_team(user=alice, team_id=team.pk, now=now).team
    assert copied.current is not None
    assert copied.current.message_cap == 50
    before = rosters.compute_version_digest(team.current)  # type: ignore[arg-type]  # it has one
    changed = replace(asked, message_cap=0)
    rosters.update_team(user=alice, team_id=team.pk, draft=changed, now=now)
    team.refresh_from_db()
    assert team.current is not None
    assert team.current.message_cap == 0
    assert rosters.compute_version_digest(team.current) != before


def test_the_digest_of_a_version_from_before_there_was_a_cap_stays(
    made: Callable[..., Team],
) -> None:
    team = made("Planner")
    assert team.current is not None
    values = asdict(team_drafts.build_version_draft(team.current))
    del values["message_cap"], values["max_bytes"], values["agents"][0]["prompt_form"]
    type(team.current).objects.update(max_bytes=0)
    team.current.refresh_from_db()
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    expected = hashlib.sha256(canonical.encode()).hexdigest()
    assert rosters.compute_version_digest(team.current) == expected


@pytest.mark.requirement("S3.12", by="integrator")
def test_a_program_sets_the_cap_and_finds_what_left(
    alice: User,
    chat: Chat,
    demo_model: ModelSpec,
    program: MakeProgram,
    django_capture_on_commit_callbacks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(queue, "publish_task", lambda task, given, **_more: sent.append(task))
    of_alice = program(alice)
    body = {"name": "Team", "agents": [{"name": "Planner"}], "message_cap": 7}
    refused = of_alice.post("teams", body)
    assert read_status_and_code(refused) == (422, "invalid_team")
    assert refused.json()["error"]["param"] == "message_cap"
    assert read_status_and_code(of_alice.post("teams", {**body, "message_cap": "20"})) == (
        400,
        "invalid_value",
    )
    team = of_alice.post("teams", {**body, "message_cap": 20}).json()
    assert team["message_cap"] == 20
    assert of_alice.get(f"teams/{team['id']}").json()["message_cap"] == 20
    assert of_alice.call("PATCH", f"chats/{chat.pk}", {"team": team["id"]}).status_code == 200
    with django_capture_on_commit_callbacks(execute=True):
        for number in range(21):
            said = {"content": f"Heron {number}", "speaker": ANN}
            of_alice.post(f"chats/{chat.pk}/team/messages", {"message": said})
    assert sent.count(queue.MAINTAIN_CHAT) == 1
    work_off(chat, timezone.now())
    archive.index_branch(branch_of(chat))
    found = of_alice.get(f"chats/{chat.pk}/archive", q="heron", speaker="ANN").json()
    assert found["to_seq"] == 6
    assert {row["seq"] for row in found["data"]} == {1, 2, 3, 4, 5, 6}
    assert len(of_alice.get(f"chats/{chat.pk}/team/messages", limit=100).json()["data"]) == 21


def test_the_form_takes_a_cap_and_the_marker_says_why(
    alice: User, made: Callable[..., Team], chat: Chat, demo_model: ModelSpec, now: datetime
) -> None:
    page = Client()
    page.force_login(alice)
    team = made("Planner")
    address = f"/teams/{team.pk}"
    assert 'name="message_cap"' in page.get(address).content.decode()
    rules = {"routing": "all", "hop_limit": "8", "token_limit": "9", "seconds_limit": "9"}
    agent = {"agent-0-name": "Planner", "agent-0-type": "ai", "agent-0-window_size": "12"}
    form = {
        "do": "save",
        "name": "Team",
        "agent-TOTAL_FORMS": "1",
        "agent-INITIAL_FORMS": "0",
        **rules,
        **agent,
        "message_cap": "20",
    }
    assert page.post(address, form).status_code == 302
    assert TeamVersion.objects.get(team=team, number=2).message_cap == 20
    refused = page.post(address, {**form, "message_cap": "7"})
    assert refused.status_code == 422
    assert "Enter a message limit of 20 to 100,000" in refused.content.decode()
    assert 'value="7"' in refused.content.decode()

    Chat.objects.filter(pk=chat.pk).update(team=team)
    fill(chat, 30, now=now)
    work_off(chat, now)
    html = page.get(get_chat_url(chat)).content.decode()
    words = "because the chat has more messages than its team keeps in prompts"
    assert words in " ".join(html.split())
