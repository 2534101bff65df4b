"""Requirements for the context manager of a team, tested on stored chats."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions.branching import branch_from_message
from chats.models import Chat
from chats.teams import conversation, signals, snapshots
from chats.teams.conversation import TeamMessageRefused
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.team.agent_formats import AgentPrompt
from contextpolicy.engine.team.team import AgentContext, TeamMessage
from tests.engine import contract_texts

COUNTER = ApproximateCounter()
HUMAN = {"roleId": "ann", "roleName": "Ann", "type": "human"}
AGENT = {"roleId": "planner", "roleName": "Planner", "type": "ai"}


class TeamChat:
    """A stored chat, as an agent framework uses it."""

    def __init__(self, chat: Chat, user: User, now: datetime) -> None:
        self.chat = chat
        self.user = user
        self.marks: dict[str, Any] = {"actor": f"user:{user.pk}", "now": now}
        self.now = now

    def add(self, content: object = "Hello", speaker: object = HUMAN, **more: object) -> Any:
        """Add a message. With None, pass no message at all."""
        data = None if content is None else {"content": content, "speaker": speaker, **more}
        return self.put(data)

    def put(self, data: object) -> TeamMessage:
        """Add the given data."""
        return conversation.add_message(
            user=self.user, chat=self.fresh(), data=data, counter=COUNTER, now=self.now
        ).message

    def fresh(self) -> Chat:
        """Reload the chat."""
        return Chat.objects.select_related("active_branch", "owner").get(pk=self.chat.pk)

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages."""
        exported: Any = self.export()["messages"]
        return list(exported)

    def newest(self) -> str | None:
        """Return the text of the newest message."""
        found = conversation.find_newest_message(self.fresh())
        return found.text if found else None

    def set_task(self, task: str) -> str | None:
        """Set the task and return the stored value."""
        return conversation.set_task(chat=self.fresh(), task=task, **self.marks).team_task

    def context(self, agent_type: str = "claude-code", **options: Any) -> AgentContext:
        """Return the context of an agent."""
        agent = conversation.RequestedAgent(agent_id="critic", agent_type=agent_type, **options)
        return conversation.assemble_agent_context(chat=self.fresh(), agent=agent)

    def prompt(self, agent_type: str) -> AgentPrompt:
        """Return an agent's prompt."""
        agent = conversation.RequestedAgent(agent_id="critic", agent_type=agent_type)
        return conversation.build_agent_prompt(chat=self.fresh(), agent=agent)

    def export(self) -> dict[str, object]:
        """Return the state as a snapshot."""
        return snapshots.export_team_snapshot(chat=self.fresh(), now=self.now)

    def read(self, snapshot: object) -> None:
        """Replace the state."""
        snapshots.import_team_snapshot(
            chat=self.fresh(), snapshot=snapshot, counter=COUNTER, **self.marks
        )

    def clear(self) -> None:
        """Clear the chat."""
        snapshots.clear_team_chat(chat=self.fresh(), **self.marks)


@pytest.fixture
def team(chat: Chat, alice: User, now: datetime) -> TeamChat:
    """Alice's chat."""
    return TeamChat(chat, alice, now)


@pytest.fixture
def hear(request: pytest.FixtureRequest) -> Callable[..., list[object]]:
    """Listen to a signal until the test ends."""

    def listen(signal: Any, name: str) -> list[object]:
        heard: list[object] = []

        def note(**told: object) -> None:
            heard.append(told[name])

        signal.connect(note, weak=False)
        request.addfinalizer(lambda: signal.disconnect(note))
        return heard

    return listen


def test_add_message_stores_and_returns_message_with_generated_id(team: TeamChat) -> None:
    added = team.add("Hello", id="msg-99")
    assert (added.id, added.content) == ("msg-1", "Hello")
    assert team.messages()[0]["id"] == "msg-1"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, contract_texts.MESSAGE_REQUIRED),
        ({"content": 7, "speaker": HUMAN}, contract_texts.CONTENT_NOT_TEXT),
        ({"content": "x"}, contract_texts.SPEAKER_REQUIRED),
        ({"content": "x", "speaker": {"roleName": "A"}}, contract_texts.ROLE_ID_REQUIRED),
    ],
    ids=["null_message", "non_string_content", "missing_speaker", "missing_role_id"],
)
def test_add_message_throws_on(team: TeamChat, data: object, sentence: str) -> None:
    with pytest.raises(TeamMessageRefused, match=sentence) as refused:
        team.put(data)
    assert isinstance(refused.value.__cause__, TypeError)
    assert team.messages() == []
    assert team.add().id == "msg-1"


def test_add_message_calls_on_message_added_hook(
    team: TeamChat, hear: Callable[..., list[object]], django_capture_on_commit_callbacks: Any
) -> None:
    heard = hear(signals.message_added, "message")
    with django_capture_on_commit_callbacks(execute=True):
        added = team.add("Hello")
    assert heard == [added]


def test_get_messages_returns_shallow_copy(team: TeamChat) -> None:
    team.add()
    team.messages().clear()
    assert len(team.messages()) == 1


def test_get_messages_returns_empty_array_initially(team: TeamChat) -> None:
    assert team.messages() == []


def test_get_latest_message_returns_null_when_empty(team: TeamChat) -> None:
    assert team.newest() is None


def test_get_latest_message_returns_last_message(team: TeamChat) -> None:
    team.add("First")
    team.add("Last")
    assert team.newest() == "Last"


def test_set_team_task_stores_task(team: TeamChat) -> None:
    team.set_task("Sell apples")
    assert team.fresh().team_task == "Sell apples"


def test_set_team_task_truncates_at_5kb(team: TeamChat) -> None:
    assert team.set_task("x" * 5_121) == "x" * 5_120
    assert team.set_task("😀" * 1_281) == "😀" * 1_280
    assert team.set_task("x" * 5_120) == "x" * 5_120


def test_set_team_task_logs_warning_on_truncation(
    team: TeamChat, caplog: pytest.LogCaptureFixture
) -> None:
    team.set_task("x" * 6_000)
    assert (
        "[ContextManager] TeamTask exceeded 5KB limit (6000 bytes), truncated to 5120 bytes"
        in caplog.text
    )


def test_set_team_task_calls_on_team_task_changed_hook(
    team: TeamChat, hear: Callable[..., list[object]], django_capture_on_commit_callbacks: Any
) -> None:
    heard = hear(signals.task_changed, "task")
    with django_capture_on_commit_callbacks(execute=True):
        team.set_task("x" * 6_000)
    assert heard == ["x" * 5_120]


def test_get_team_task_returns_null_initially(team: TeamChat) -> None:
    assert team.fresh().team_task is None


def test_returns_empty_context_when_no_messages(team: TeamChat) -> None:
    team.set_task("Sell apples")
    shown = team.context(system_instruction="Be brief")
    assert (shown.context_messages, shown.current_message) == ((), "")
    assert (shown.team_task, shown.system_instruction) == ("Sell apples", "Be brief")


def test_applies_context_window_size_limit(team: TeamChat) -> None:
    for number in range(8):
        team.add(f"Number {number}")
    shown = [message.content for message in team.context().context_messages]
    assert shown == [f"Number {number}" for number in range(2, 7)]


def test_respects_window_size_override(team: TeamChat) -> None:
    for number in range(8):
        team.add(f"Number {number}")
    assert len(team.context(window_size=2).context_messages) == 2
    assert team.context(window_size=0).context_messages == ()
    with pytest.raises(conversation.InvalidWindow):
        team.context(window_size=-1)


def test_strips_markers_from_context_messages(team: TeamChat) -> None:
    team.add("[FROM:Ann] Hello  [NEXT:Planner]")
    team.add("[TEAM_TASK] all of this [NEXT:]")
    team.add("The newest")
    assert [message.content for message in team.context().context_messages] == ["Hello"]
    assert team.messages()[0]["content"] == "[FROM:Ann] Hello  [NEXT:Planner]"


def test_strips_markers_from_current_message(team: TeamChat) -> None:
    team.add("What now? [NEXT:Planner]")
    assert team.context().current_message == "What now?"


def test_deduplicates_ai_to_ai_context(team: TeamChat) -> None:
    team.add("Same", AGENT)
    team.add("Same [NEXT:Ann]", AGENT)
    shown = team.context()
    assert shown.context_messages == ()
    assert shown.left_out == (("msg-1", "duplicate_of_current"),)


def test_does_not_deduplicate_human_messages(team: TeamChat) -> None:
    team.add("Same")
    team.add("Same")
    assert len(team.context().context_messages) == 1


def test_passes_system_instruction_and_instruction_file_text(team: TeamChat) -> None:
    shown = team.context(system_instruction="Be brief", instruction_file_text="# Rules")
    assert (shown.system_instruction, shown.instruction_file_text) == ("Be brief", "# Rules")


def test_passes_max_bytes_to_output(team: TeamChat) -> None:
    assert team.context().to_json()["maxBytes"] == 786_432


def test_clear_removes_all_messages(team: TeamChat) -> None:
    team.add()
    team.clear()
    assert team.messages() == []


def test_clear_resets_team_task(
    team: TeamChat, hear: Callable[..., list[object]], django_capture_on_commit_callbacks: Any
) -> None:
    team.set_task("Sell apples")
    heard = hear(signals.task_changed, "task")
    with django_capture_on_commit_callbacks(execute=True):
        team.clear()
        team.clear()
    assert team.fresh().team_task is None
    assert heard == [None, None]


def test_clear_resets_message_id_counter(team: TeamChat) -> None:
    team.add()
    team.clear()
    assert team.add().id == "msg-1"


def test_export_snapshot_returns_serializable_object(team: TeamChat, now: datetime) -> None:
    team.add("Hello", AGENT, routing={"resolvedAddressees": ["Ann"]})
    found = json.loads(json.dumps(team.export()))
    assert found == {
        "messages": [
            {
                "id": "msg-1",
                "content": "Hello",
                "speaker": AGENT,
                "routing": {"resolvedAddressees": ["Ann"]},
            }
        ],
        "teamTask": None,
        "timestamp": int(now.timestamp() * 1000),
        "version": 1,
    }


def test_import_snapshot_restores_messages(team: TeamChat) -> None:
    team.add("Hello")
    team.add("A plan", AGENT)
    before = team.export()
    team.clear()
    team.read(before)
    assert team.export() == before
    assert team.add().id == "msg-3"


def test_import_snapshot_restores_team_task(team: TeamChat) -> None:
    team.read({"messages": [], "teamTask": "x" * 6_000, "timestamp": 1, "version": 1})
    assert team.fresh().team_task == "x" * 5_120


@pytest.mark.parametrize("snapshot", [None, {}, {"messages": [], "teamTask": None, "version": 2}])
def test_import_snapshot_throws_on_invalid_format(team: TeamChat, snapshot: object) -> None:
    team.add("Hello")
    before = team.export()
    with pytest.raises(snapshots.SnapshotRefused, match=contract_texts.INVALID_SNAPSHOT):
        team.read(snapshot)
    assert team.export() == before


def test_uses_claude_context_assembler_for_claude_code(team: TeamChat) -> None:
    team.add()
    assert team.prompt("claude-code").prompt == team.prompt("Claude").prompt
    assert "<current_message>" in team.prompt("claude").prompt


def test_uses_codex_context_assembler_for_openai_codex(team: TeamChat) -> None:
    team.add()
    assert "# Current message" in team.prompt("openai-codex").prompt
    assert team.prompt("CODEX").prompt == team.prompt("openai-codex").prompt


def test_uses_gemini_context_assembler_for_google_gemini(team: TeamChat) -> None:
    team.add()
    assert "=== CURRENT MESSAGE ===" in team.prompt("google-gemini").prompt
    assert team.prompt("Gemini").prompt == team.prompt("google-gemini").prompt


def test_falls_back_to_plain_text_assembler_for_unknown_type(team: TeamChat) -> None:
    team.add()
    assert "Current message:" in team.prompt("own").prompt


def test_logs_warning_for_unknown_agent_type(
    team: TeamChat, caplog: pytest.LogCaptureFixture
) -> None:
    team.add()
    team.prompt("own")
    assert (
        '[ContextManager] Unknown agentType "own" (normalized: "own"), using PlainTextAssembler'
        in caplog.text
    )


def test_two_agents_with_one_name_are_told_apart_by_their_role(team: TeamChat) -> None:
    team.add("Same", AGENT)
    team.add("Same", {**AGENT, "roleId": "other"})
    assert len(team.context().context_messages) == 1


def test_a_branch_keeps_the_ids_of_its_path(team: TeamChat) -> None:
    message = {"content": "x", "speaker": HUMAN}
    rows = [{"id": "msg-7", **message}, {"id": "msg-9", **message}]
    team.read({"messages": rows, "teamTask": None, "version": 1})
    team.add("Third")
    third = conversation.find_newest_message(team.fresh())
    assert third is not None
    branch_from_message(user=team.user, message=third, now=team.now)
    assert team.add("Fourth").id == "msg-11"
    assert [row["id"] for row in team.messages()] == ["msg-7", "msg-9", "msg-10", "msg-11"]
