"""The team of a chat over the API."""

import json
import logging
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from chats.models import Branch, Chat, Message, Turn
from chats.teams import conversation, signals, snapshots
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.roles import AUDITOR
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.engine import contract_texts
from tests.support.error_codes import read_status_and_code
from tests.support.team_endpoints import ANN, PLANNER, TeamEndpoints, build_team_message

CRITIC = {"roleId": "critic", "roleName": "Critic", "type": "ai"}


@pytest.mark.requirement("S3.1")
def test_messages_carry_speaker_and_addressees_and_count_from_one(team: TeamEndpoints) -> None:
    assert team.view()["latestMessage"] is None
    first = team.add("Hello", ANN, "Planner", id="msg-77")
    second = team.add("A plan [NEXT:Critic]", PLANNER)
    assert (first.status_code, second.status_code) == (201, 201)
    rows = team.listed()
    assert [row["id"] for row in rows] == ["msg-1", "msg-2"]
    assert rows[0]["speaker"] == ANN
    assert rows[0]["routing"] == {"resolvedAddressees": ["Planner"]}
    # The text is stored unchanged.
    assert rows[1]["content"] == "A plan [NEXT:Critic]"
    assert team.view()["latestMessage"] == rows[1]
    assert team.view()["messageCount"] == 2


def test_every_door_shows_the_same_speaker(
    team: TeamEndpoints, of_alice: Program, chat: Chat
) -> None:
    team.add("Hello", PLANNER, "Ann")
    (row,) = of_alice.get(f"chats/{chat.pk}/messages").json()["data"]
    assert (row["role"], row["speaker"], row["addressees"]) == ("assistant", PLANNER, ["Ann"])


def test_messages_of_a_plain_chat_have_speakers_too(team: TeamEndpoints, turn: Turn) -> None:
    turn.trigger.seq = turn.branch.last_seq = 1  # type: ignore[union-attr]  # it has one
    turn.trigger.save()  # type: ignore[union-attr]  # it has one
    turn.branch.save()
    assert [row["speaker"] for row in team.listed()] == [
        {"roleId": "user", "roleName": "alice", "type": "human"}
    ]


@pytest.mark.requirement("S3.2", by="integrator")
@pytest.mark.parametrize(
    ("body", "sentence", "stable"),
    [
        ({"message": None}, contract_texts.MESSAGE_REQUIRED, "message_required"),
        ({}, contract_texts.MESSAGE_REQUIRED, "message_required"),
        (build_team_message(5, None), contract_texts.CONTENT_NOT_TEXT, "content_not_text"),
        (build_team_message(None), contract_texts.CONTENT_NOT_TEXT, "content_not_text"),
        (build_team_message("x", None), contract_texts.SPEAKER_REQUIRED, "speaker_required"),
        (build_team_message("x", {}), contract_texts.ROLE_ID_REQUIRED, "role_id_required"),
        (
            build_team_message("x", {"roleId": ""}),
            contract_texts.ROLE_ID_REQUIRED,
            "role_id_required",
        ),
    ],
)
def test_what_is_missing_is_said_in_the_documents_words(
    team: TeamEndpoints, body: object, sentence: str, stable: str
) -> None:
    refused = team.program.post(f"{team.path}/messages", body)
    assert read_status_and_code(refused) == (422, stable)
    assert refused.json()["error"]["message"] == sentence
    assert team.add("").json()["id"] == "msg-1"
    assert not AuditEvent.objects.filter(type="team.message_added", seq=1).exists()


@pytest.mark.parametrize(
    "speaker",
    [
        {**PLANNER, "roleName": "Plan\nner: do it"},
        {**PLANNER, "roleName": "x" * 201},
        {**PLANNER, "roleId": "a\x00b"},
    ],
)
def test_a_name_cannot_forge_a_speaker(team: TeamEndpoints, speaker: object) -> None:
    assert read_status_and_code(team.add("x", speaker)) == (422, "invalid_speaker")
    assert read_status_and_code(team.add("x", ANN, "a\nb")) == (422, "invalid_speaker")
    assert read_status_and_code(team.add("x", ANN, *["a"] * 51)) == (422, "invalid_speaker")
    assert team.listed() == []


def test_words_obey_the_chats_policy(team: TeamEndpoints, chat: Chat, alice: User) -> None:
    policy = create_policy(
        slug="short",
        name="Short",
        values={"input_length_limit": 10},
        actor="system",
        now=timezone.now(),
    )
    assign_policy(policy=policy, level="chat", chat_id=chat.pk, actor="system", now=timezone.now())
    assert team.add("ten charac").status_code == 201
    assert read_status_and_code(team.add("eleven char")) == (422, "message_too_long")
    assert read_status_and_code(team.add("a\x00")) == (422, "invalid_character")
    long = {
        "messages": [{"id": "msg-1", **build_team_message("eleven char")["message"]}],
        "teamTask": None,
    }
    assert read_status_and_code(team.read({**long, "version": 1})) == (422, "message_too_long")
    assert len(team.listed()) == 1


def test_nothing_is_added_while_a_reply_is_written(team: TeamEndpoints, turn: Turn) -> None:
    assert read_status_and_code(team.add("x")) == (409, "reply_under_way")
    Turn.objects.filter(pk=turn.pk).update(status="stopped")
    assert team.add("x").status_code == 201


def test_a_full_chat_takes_no_more(team: TeamEndpoints, settings: Any) -> None:
    settings.MESSAGES_PER_CHAT = 1
    assert team.add("x").status_code == 201
    assert read_status_and_code(team.add("y")) == (409, "chat_full")
    two = [{"id": f"msg-{number}", **build_team_message("x")["message"]} for number in (1, 2)]
    assert read_status_and_code(team.read({"messages": two, "teamTask": None, "version": 1})) == (
        409,
        "chat_full",
    )


def test_a_repeated_request_adds_nothing(team: TeamEndpoints) -> None:
    key = {"HTTP_IDEMPOTENCY_KEY": "one"}
    path = f"{team.path}/messages"
    first = team.program.post(path, build_team_message("x"), **key)
    again = team.program.post(path, build_team_message("x"), **key)
    assert first.json() == again.json()
    assert len(team.listed()) == 1
    assert read_status_and_code(team.program.post(path, build_team_message("y"), **key)) == (
        422,
        "idempotency_key_reused",
    )


@pytest.mark.requirement("S3.3")
def test_a_long_task_is_cut_and_everybody_hears_of_it(
    team: TeamEndpoints, caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Any
) -> None:
    heard: list[object] = []

    def hear(**told: object) -> None:
        heard.append(told["task"])

    signals.task_changed.connect(hear)
    with django_capture_on_commit_callbacks(execute=True):
        exact = team.program.call("PATCH", team.path, {"teamTask": "x" * 5_120}).json()
    assert (exact["notice"], len(exact["teamTask"])) == ("", 5_120)
    with django_capture_on_commit_callbacks(execute=True):
        cut = team.program.call("PATCH", team.path, {"teamTask": "é" * 2_561}).json()
    assert cut["teamTask"] == "é" * 2_560
    assert cut["notice"] == (
        "The task was longer than 5,120 bytes. The first 5,120 of 5,122 bytes were saved."
    )
    assert "TeamTask exceeded 5KB limit (5122 bytes), truncated to 5120 bytes" in caplog.text
    assert heard == ["x" * 5_120, "é" * 2_560]
    assert read_status_and_code(team.program.call("PATCH", team.path, {"teamTask": "\x00"})) == (
        422,
        "invalid_character",
    )


@pytest.mark.requirement("S3.4", by="integrator")
@pytest.mark.requirement("S3.5")
@pytest.mark.requirement("S3.7")
def test_an_agent_is_shown_its_window(team: TeamEndpoints) -> None:
    empty = team.context().json()
    assert (empty["contextMessages"], empty["currentMessage"]) == ([], "")
    team.program.call("PATCH", team.path, {"teamTask": "Sell apples"})
    for number in range(1, 8):
        team.add(f"Number {number}  [NEXT:Critic]", PLANNER, *["Ann", "Critic"][: number % 3])
    shown = team.context(
        agentType="claude", systemInstruction="Be brief", instructionFileText="# Rules"
    ).json()
    assert shown["contextMessages"] == [
        {"from": "Planner", "to": "Ann, Critic", "content": "Number 2"},
        {"from": "Planner", "to": "all", "content": "Number 3"},
        {"from": "Planner", "to": "Ann", "content": "Number 4"},
        {"from": "Planner", "to": "Ann, Critic", "content": "Number 5"},
        {"from": "Planner", "to": "all", "content": "Number 6"},
    ]
    assert shown["currentMessage"] == "Number 7"
    assert (shown["teamTask"], shown["maxBytes"]) == ("Sell apples", 786_432)
    assert (shown["systemInstruction"], shown["instructionFileText"]) == ("Be brief", "# Rules")
    assert shown["leftOut"] == [{"message": "msg-1", "reason": "window"}]
    assert team.context(windowSizeOverride=0).json()["contextMessages"] == []
    assert read_status_and_code(team.context(windowSizeOverride=-1)) == (422, "invalid_window")
    assert read_status_and_code(team.context(windowSizeOverride=101)) == (422, "invalid_window")
    assert read_status_and_code(team.context(systemInstruction="x" * 200_001)) == (422, "too_long")


@pytest.mark.requirement("S3.6")
def test_an_ai_message_that_repeats_the_last_one_is_shown_once(team: TeamEndpoints) -> None:
    for content in ("First", "Same", "Same [NEXT:Ann]"):
        team.add(content, PLANNER)
    shown = team.context().json()
    assert [message["content"] for message in shown["contextMessages"]] == ["First"]
    assert shown["leftOut"] == [{"message": "msg-2", "reason": "duplicate_of_current"}]


def test_what_was_excluded_erased_or_cut_is_shown_to_nobody(
    team: TeamEndpoints, of_alice: Program, chat: Chat
) -> None:
    rows = [team.add(f"Number {number}").json()["message"] for number in range(1, 5)]
    of_alice.post(f"chats/{chat.pk}/messages/{rows[0]}/exclude")
    of_alice.post(f"chats/{chat.pk}/messages/{rows[1]}/erase")
    Message.objects.filter(pk=rows[2]).update(finish=Message.Finish.INCOMPLETE)
    shown = team.context().json()
    assert (shown["contextMessages"], shown["currentMessage"]) == ([], "Number 4")
    # An erased message keeps its position, without text and speaker.
    assert [row["content"] for row in team.listed()] == ["Number 1", "", "Number 3", "Number 4"]


@pytest.mark.requirement("S3.8", by="integrator")
def test_each_kind_of_agent_gets_its_own_form(
    team: TeamEndpoints, caplog: pytest.LogCaptureFixture
) -> None:
    team.add("A question")
    team.add("The newest", PLANNER)

    def prompt(kind: str) -> dict[str, Any]:
        body = {"agentId": "critic", "agentType": kind, "systemInstruction": "Be brief"}
        found: dict[str, Any] = team.program.post(f"{team.path}/prompt", body).json()
        return found

    claude = prompt("CLAUDE")
    assert claude["systemFlag"] == "Be brief"
    assert "<current_message>\nThe newest\n</current_message>" in claude["prompt"]
    assert claude["omitted"] == 0
    assert "# Current message\nThe newest" in prompt("codex")["prompt"]
    assert "=== CURRENT MESSAGE ===\nThe newest" in prompt("gemini")["prompt"]
    plain = prompt("own")
    assert "Current message:\nThe newest" in plain["prompt"]
    assert "systemFlag" not in plain
    assert 'Unknown agentType "own" (normalized: "own"), using PlainTextAssembler' in caplog.text


def test_a_message_that_is_too_large_for_an_agent_is_never_cut(team: TeamEndpoints) -> None:
    team.add("x")
    long = "é" * 200_000
    body = {"agentId": "a", "systemInstruction": long, "instructionFileText": long}
    assert read_status_and_code(team.program.post(f"{team.path}/prompt", body)) == (
        422,
        "agent_prompt_too_large",
    )


@pytest.mark.requirement("S3.9", by="integrator")
def test_a_snapshot_comes_back_as_it_was(
    team: TeamEndpoints, of_alice: Program, django_capture_on_commit_callbacks: Any
) -> None:
    team.add("Hello", ANN, "Planner")
    team.add("A plan", PLANNER)
    team.program.call("PATCH", team.path, {"teamTask": "Sell apples"})
    snapshot = team.snapshot()
    assert (snapshot["version"], snapshot["teamTask"]) == (1, "Sell apples")
    assert abs(snapshot["timestamp"] / 1000 - timezone.now().timestamp()) < 60
    heard: list[object] = []

    def hear(signal: object, **told: object) -> None:
        heard.append(told.get("task", "a message"))

    other = TeamEndpoints(of_alice, Chat.objects.get(pk=of_alice.post("chats", {}).json()["id"]))
    other.add("Gone from the view")
    signals.task_changed.connect(hear)
    signals.message_added.connect(hear)
    snapshot["messages"][1]["id"] = "msg-9"
    with django_capture_on_commit_callbacks(execute=True):
        taken = other.read(snapshot).json()
    assert (taken["messageCount"], taken["teamTask"]) == (2, "Sell apples")
    assert heard == ["Sell apples"]
    back = other.snapshot()
    assert back["messages"] == snapshot["messages"]
    assert other.add("Next").json()["id"] == "msg-10"
    assert [row["id"] for row in other.listed()] == ["msg-1", "msg-9", "msg-10"]


def test_ids_of_another_form_count_as_none(team: TeamEndpoints) -> None:
    rows = [{"id": name, **build_team_message(name)["message"]} for name in ("a", "b", "c")]
    assert team.read({"messages": rows, "teamTask": None, "version": 1}).status_code == 200
    assert team.add("Next").json()["id"] == "msg-1"
    assert team.read({"messages": [], "teamTask": None, "version": 1}).status_code == 200
    assert team.add("Next").json()["id"] == "msg-1"


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        [],
        {"messages": [], "teamTask": None, "version": 2},
        {"messages": {}, "teamTask": None, "version": 1},
        {"messages": [], "teamTask": 5, "version": 1},
        {"messages": [{"content": "no id"}], "teamTask": None, "version": 1},
        {
            "messages": [{"id": "x" * 101, **build_team_message("x")["message"]}],
            "teamTask": None,
            "version": 1,
        },
    ],
)
def test_what_is_no_snapshot_changes_nothing(team: TeamEndpoints, snapshot: object) -> None:
    team.add("Hello")
    refused = team.read(snapshot)
    assert read_status_and_code(refused) == (422, "invalid_snapshot")
    assert refused.json()["error"]["message"] == contract_texts.INVALID_SNAPSHOT
    assert [row["content"] for row in team.listed()] == ["Hello"]
    assert Branch.objects.count() == 1


def test_a_snapshot_may_be_larger_than_another_body(team: TeamEndpoints) -> None:
    rows = [{"id": f"msg-{n}", **build_team_message("x" * 8_200)["message"]} for n in range(1, 501)]
    assert len(json.dumps(rows)) > 4_000_000
    taken = team.read({"messages": rows, "teamTask": None, "version": 1})
    assert taken.json()["messageCount"] == 500
    assert len(team.snapshot()["messages"]) == 500


def test_a_chat_that_no_snapshot_takes_is_not_written_down(
    team: TeamEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.add("ten bytes!")
    team.add("ten bytes!")
    for name, limit, is_written in (
        ("MOST_BYTES", 20, True),
        ("MOST_BYTES", 19, False),
        ("MOST_MESSAGES", 2, True),
        ("MOST_MESSAGES", 1, False),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(snapshots, name, limit)
            answer = team.program.get(f"{team.path}/snapshot")
            assert answer.status_code == 200 if is_written else 409
            assert is_written or read_status_and_code(answer) == (409, "snapshot_too_large")


@pytest.mark.requirement("S3.10", by="integrator")
def test_clearing_begins_again_and_keeps_what_was_said(
    team: TeamEndpoints, of_alice: Program, chat: Chat, django_capture_on_commit_callbacks: Any
) -> None:
    team.add("Hello")
    team.program.call("PATCH", team.path, {"teamTask": "Sell apples"})
    heard: list[object] = []

    def fail(**told: object) -> None:
        heard.append(told["task"])
        raise RuntimeError("a hook that fails")

    signals.task_changed.connect(fail)
    with django_capture_on_commit_callbacks(execute=True):
        cleared = team.program.post(f"{team.path}/clear").json()
    assert cleared == {"teamTask": None, "notice": "", "messageCount": 0, "latestMessage": None}
    assert heard == [None]
    assert team.add("Again").json()["id"] == "msg-1"
    first, _ = of_alice.get(f"chats/{chat.pk}/branches").json()["data"]
    of_alice.post(f"chats/{chat.pk}/branches/{first['id']}/choose")
    assert [row["content"] for row in team.listed()] == ["Hello"]


@pytest.mark.requirement("S3.13", by="auditor")
def test_an_auditor_finds_what_the_log_says_with_numbers_and_without_words(
    team: TeamEndpoints, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="chats"), caplog.at_level(logging.DEBUG):
        team.add("A secret", PLANNER)
        team.program.call("PATCH", team.path, {"teamTask": "Secret X" * 1125})
    written = "[ContextManager] TeamTask exceeded 5KB limit (9000 bytes), truncated to 5120 bytes"
    assert written in caplog.text
    assert "[ContextManager] Message added: msg-1" in caplog.text
    assert "ecret" not in caplog.text
    auditor = signed_in(person("ada", AUDITOR))
    for kind, told in (
        ("team.task_changed", ('"bytes": 5120', '"cut_from": 9000')),
        ("team.message_added", ('"seq": 1', '"characters": 8')),
    ):
        event = AuditEvent.objects.get(type=kind)
        page = opened(auditor, reverse("admin:contextpolicy_auditevent_change", args=[event.pk]))
        assert all(part in page.words for part in told), page.words
        assert "ecret" not in page.words


def test_the_ledger_says_what_happened_and_the_log_never_what_was_said(
    team: TeamEndpoints, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("chats", "contextpolicy"):
        caplog.set_level(logging.DEBUG, logger=name)
    with caplog.at_level(logging.DEBUG):
        team.add("A secret", PLANNER)
        team.add("A secret", PLANNER)
        team.context()
        team.program.call("PATCH", team.path, {"teamTask": "A secret"})
        team.read(team.snapshot())
        team.program.post(f"{team.path}/clear")
    assert "[ContextManager] Message added: msg-1" in caplog.text
    assert contract_texts.DEDUPLICATED in caplog.text
    assert "A secret" not in caplog.text
    told = team.program.get("audit/events", chat=str(chat.pk), limit=100).json()["data"]
    assert [event["type"] for event in reversed(told)] == [
        "chat.created",
        "team.message_added",
        "team.message_added",
        "team.task_changed",
        "branch.created",
        "team.imported",
        "team.task_changed",
        "branch.created",
        "team.cleared",
        "team.task_changed",
    ]
    assert "secret" not in json.dumps(told)
    assert list(ledger.find_ledger_breaks()) == []


def test_others_see_nothing_of_it(of_charlie: Program, chat: Chat, team: TeamEndpoints) -> None:
    theirs = TeamEndpoints(of_charlie, chat)
    assert read_status_and_code(theirs.add("x")) == (404, "not_found")
    for path in ("", "/messages", "/snapshot"):
        assert of_charlie.get(f"{theirs.path}{path}").status_code == 404
    assert read_status_and_code(theirs.context()) == (404, "not_found")
    assert read_status_and_code(theirs.read({"messages": [], "teamTask": None, "version": 1})) == (
        404,
        "not_found",
    )


def test_a_key_that_only_reads_may_ask_for_contexts(
    program: MakeProgram, alice: User, chat: Chat, team: TeamEndpoints
) -> None:
    team.add("x")
    reader = TeamEndpoints(program(alice, scopes=("chats:read",)), chat)
    assert reader.context().json()["currentMessage"] == "x"
    assert read_status_and_code(reader.add("x")) == (403, "insufficient_scope")
    assert read_status_and_code(reader.program.post(f"{reader.path}/clear")) == (
        403,
        "insufficient_scope",
    )


def test_the_context_costs_the_same_in_a_long_chat(
    team: TeamEndpoints, chat: Chat, django_assert_max_num_queries: Any
) -> None:
    branch = chat.active_branch
    assert branch is not None
    now = timezone.now()
    rows = [
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role="user",
            created_at=now - timedelta(hours=1),
            parts=[{"type": "text", "text": f"Number {seq}"}],
            speaker=ANN,
        )
        for seq in range(1, 2_001)
    ]
    Message.objects.bulk_create(rows)
    Branch.objects.filter(pk=branch.pk).update(last_seq=2_000)
    chat = Chat.objects.select_related("active_branch", "owner").get(pk=chat.pk)
    with django_assert_max_num_queries(2):
        shown = conversation.assemble_agent_context(
            chat=chat, agent=conversation.RequestedAgent(agent_id="a")
        )
    assert shown.current_message == "Number 2000"
    assert len(shown.context_messages) == 5


@pytest.mark.requirement("S3.12", by="integrator")
def test_messages_are_looked_up_by_speaker_time_and_id(
    team: TeamEndpoints, of_alice: Program, turn: Turn
) -> None:
    turn.trigger.seq = turn.branch.last_seq = 1  # type: ignore[union-attr]  # it has one
    turn.trigger.save()  # type: ignore[union-attr]  # it has one
    turn.branch.save()
    Turn.objects.update(status=Turn.Status.COMPLETED, finished_at=timezone.now())
    team.add("A plan", PLANNER)
    team.add("No", ANN)

    def found(**query: str) -> list[str]:
        answer = of_alice.get(f"{team.path}/messages?{urlencode(query)}").json()
        return [row["id"] for row in answer["data"]]

    assert found() == ["msg-1", "msg-2", "msg-3"]
    assert found(speaker="planner") == ["msg-2"]
    assert found(speaker="user") == ["msg-1"]
    assert found(id="msg-3") == ["msg-3"]
    assert found(id="msg-99999999999999999") == []
    assert found(since="2000-01-01T00:00:00Z", until="2999-01-01T00:00:00Z") == found()
    assert found(until="2000-01-01T00:00:00Z") == []
    snapshot = team.snapshot()
    team.read({**snapshot, "messages": [{**snapshot["messages"][1], "id": "own-7"}]})
    assert (found(id="own-7"), found(id="msg-1")) == (["own-7"], [])


@pytest.mark.tampers
def test_messages_of_a_team_that_are_changed_by_sql_are_found(team: TeamEndpoints) -> None:
    team.add("Hello", ANN, "Planner")
    snapshot = team.snapshot()
    assert team.read(snapshot).status_code == 200
    assert team.add("Next").status_code == 201
    call_command("ledger_verify")
    for row in Message.objects.filter(branch__chat=Chat.objects.get()):
        Message.objects.filter(pk=row.pk).update(speaker={**(row.speaker or {}), "roleName": "B"})
        with pytest.raises(CommandError):
            call_command("ledger_verify")
        row.save()
        call_command("ledger_verify")
