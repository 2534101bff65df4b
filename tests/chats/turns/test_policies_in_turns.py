"""Policy values and the resulting provider requests, in real turns."""

from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Branch, Chat, Compaction, Message, Receipt
from chats.prompt.sent_texts import load_receipt_sources, recreate_sent_text
from chats.prompt.tools import registry as tools
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns.start import start_turn
from contextpolicy import plugins
from contextpolicy.engine.history.entries import estimate_sendable_tokens
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.window import HistoryView, WindowChoice
from contextpolicy.models import EffectivePolicy, ModelSpec
from contextpolicy.resolution import load_policy_values
from tests.chats.rebuilding import not_rebuilt
from tests.support.compactions_on_pages import get_branch
from tests.support.engine_inputs import STRATEGIES
from tests.support.model_requests import Ask, Work, list_sent_messages

TOOL = ToolSpec("look_up", "Looks things up.", {"type": "object"})
SCHEMA = {"type": "object", "properties": {"date": {"type": "string"}}}


BLOCK = "Conversation (recent):\nUser: First?\nAssistant: One.\nUser: Second?\nAssistant: Two."


@pytest.mark.requirement("S1.5")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
def test_each_strategy_goes_out_in_each_layout(
    layout: str, strategy: str, chat: Chat, govern: Callable[..., None], ask: Ask
) -> None:
    chat.system_text = "Be kind."
    chat.save()
    govern(
        strategy=strategy,
        layout=layout,
        question_prefix="Asked: ",
        system_text="Be brief.",
        state_schema=SCHEMA,
    )
    extracted = ["{}"] if strategy == "entity_state" else []
    ask("First?", "One.", *extracted)
    ask("Second?", "Two.", *extracted)

    found = list_sent_messages(ask("Third?", "Three.", *extracted))

    assert found[0] == ("system", "Be kind." if layout == "A" else "Be brief.\n\nBe kind.")
    has_block = strategy != "entity_state"
    if layout == "multi_turn":
        dialogue = [
            ("user", "First?"),
            ("assistant", "One."),
            ("user", "Second?"),
            ("assistant", "Two."),
        ]
        assert found[1:] == [*(dialogue if has_block else []), ("user", "Third?")]
    elif not has_block:
        assert found[1:] == [("user", "Third?")]
    elif layout == "B":
        assert found[1:] == [("user", BLOCK), ("user", "Third?")]
    else:
        assert found[1:] == [("user", f"{BLOCK}\n\nAsked: Third?")]


@pytest.mark.parametrize(
    ("rule", "system"),
    [
        ("append", "Be brief.\n\nBe kind."),
        ("replace", "Be kind."),
        ("ignore", "Be brief."),
    ],
)
def test_the_policy_says_what_becomes_of_the_chats_own_text(
    rule: str, system: str, chat: Chat, govern: Callable[..., None], ask: Ask
) -> None:
    chat.system_text = "Be kind."
    chat.save()
    govern(strategy="sliding_window", chat_system=rule, system_text="Be brief.")

    assert list_sent_messages(ask("Hello?"))[0] == ("system", system)


@pytest.mark.parametrize(
    ("ceiling", "kept"),
    [
        ({"window_turns": 2}, ["Q2", "A2", "Q3", "A3", "Q4"]),
        ({"window_size": 2}, ["Q3", "A3", "Q4"]),
        ({"max_chars_per_message": 1}, None),
    ],
)
def test_ceilings_hold_under_the_simple_strategy(
    ceiling: dict[str, int], kept: list[str] | None, govern: Callable[..., None], ask: Ask
) -> None:
    govern(strategy="simple", **ceiling)
    for number in (1, 2, 3):
        ask(f"Q{number}", f"A{number}")

    found = [content for _, content in list_sent_messages(ask("Q4"))]

    if kept is None:
        assert all(len(content) == 1 for content in found[:-1])
    else:
        assert found == kept


def test_a_window_in_turns_moves_in_batches(govern: Callable[..., None], ask: Ask) -> None:
    govern(strategy="sliding_window", window_turns=2, compact_to=0.5)
    for number in (1, 2, 3):
        ask(f"Q{number}", f"A{number}")

    assert [content for _, content in list_sent_messages(ask("Q4"))] == ["Q3", "A3", "Q4"]
    assert Compaction.objects.get().reason == "turns"


def test_a_window_in_tokens_moves_the_window(govern: Callable[..., None], ask: Ask) -> None:
    govern(strategy="sliding_window", window_tokens=1_000)
    for number in (1, 2, 3):
        ask(f"Q{number} {'word ' * 400}", f"A{number}")

    found = list_sent_messages(ask("Q4"))

    assert found[0][1].startswith("Q3")
    assert Compaction.objects.order_by("-to_seq")[0].reason == "tokens"


def test_bytes_are_limited_beside_tokens(govern: Callable[..., None], ask: Ask) -> None:
    govern(strategy="sliding_window", max_bytes=3_000)
    for number in (1, 2, 3):
        ask(f"Q{number} {'中' * 300}", f"A{number}")

    found = list_sent_messages(ask("Q4"))

    assert sum(len(content.encode()) for _, content in found) <= 3_000
    assert len(found) < 7


def test_the_room_of_pins_is_limited(
    chat: Chat, govern: Callable[..., None], ask: Ask, now: datetime
) -> None:
    govern(strategy="dynamic_summary", pins_tokens=100)
    for number in (1, 2, 3):
        ask(f"Pin {number} {'word ' * 30}", f"A{number}")
    Message.objects.filter(seq__in=[1, 3]).update(pinned_at=now)
    put_in_force(chat, now, kind="summary", to_seq=4, text="- Of old.", exceptions=[1, 3])

    ask("Q4")

    receipt = Receipt.objects.order_by("-last_seq")[0]
    assert [segment[2] for segment in receipt.segments if segment[0] == "pin"] == [3]
    assert [1, 1, "budget"] in receipt.left_out


def test_the_date_goes_along_only_if_the_policy_says_so(
    govern: Callable[..., None], ask: Ask
) -> None:
    govern(strategy="sliding_window")
    assert not any("Date:" in content for _, content in list_sent_messages(ask("Q1")))

    govern(strategy="sliding_window", show_date=True)
    assert list_sent_messages(ask("Q2"))[-2:] == [("user", "Date: 2026-11-20"), ("user", "Q2")]


def put_in_force(chat: Chat, now: datetime, **fields: Any) -> Compaction:
    """Activate a compaction that was created under another policy."""
    policy, _ = EffectivePolicy.objects.get_or_create(
        digest="d" * 64, defaults={"values": {}, "sources": {}}
    )
    branch = get_branch(chat)
    row = Compaction.objects.create(
        branch=branch,
        status="published",
        from_seq=1,
        trigger="auto",
        effective_policy=policy,
        created_at=now,
        **fields,
    )
    branch.active_compaction = row
    branch.save()
    return row


@pytest.mark.requirement("S0.3")
@pytest.mark.parametrize("kind", ["summary", "window"])
def test_simple_sends_the_newest_messages_whatever_another_policy_left_in_force(
    kind: str, chat: Chat, govern: Callable[..., None], ask: Ask, now: datetime
) -> None:
    govern(strategy="sliding_window")
    for number in (1, 2, 3):
        ask(f"Q{number}", f"A{number}")
    row = put_in_force(chat, now, kind=kind, to_seq=4, text="- Of old." * (kind == "summary"))
    govern(strategy="simple", window_size=4)

    request = ask("Q4")

    assert [content for _, content in list_sent_messages(request)] == ["Q2", "A2", "Q3", "A3", "Q4"]
    receipt = Receipt.objects.order_by("-last_seq")[0]
    assert receipt.compaction is None
    assert receipt.left_out == [[1, 2, "window"]]
    assert get_branch(chat).active_compaction == row


@pytest.mark.requirement("S0.3")
def test_a_summary_governs_again_under_a_policy_that_knows_it(
    chat: Chat, govern: Callable[..., None], ask: Ask, now: datetime
) -> None:
    govern(strategy="simple")
    ask("Q1", "A1")
    put_in_force(chat, now, kind="summary", to_seq=2, text="- Of old.")
    assert [content for _, content in list_sent_messages(ask("Q2", "A2"))] == ["Q1", "A1", "Q2"]

    govern(strategy="dynamic_summary")

    found = [content for _, content in list_sent_messages(ask("Q3"))]
    assert "- Of old." in found[0]
    assert found[1:] == ["Q2", "A2", "Q3"]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool with long results."""

    monkeypatch.setattr(tools, "list_offered_tools", lambda **_: (TOOL,))
    monkeypatch.setattr(
        tools, "run_tool_call", lambda _call, **_: tools.ToolAnswer("result " * 200)
    )


@pytest.fixture
def use_tool(alice: User, chat: Chat, now: datetime, work: Work) -> Callable[[str], Any]:
    """Ask a question for which the model uses the tool."""

    def using(text: str) -> Any:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        call = ToolCallDelta(index=0, call_id=f"c-{text}", name="look_up", arguments="{}")
        return work(turn, [call, Finished("tool_calls")], [TextDelta("Done."), Finished("stop")])

    return using


@pytest.mark.usefixtures("tool")
def test_rules_cut_and_leave_out_tool_results(
    govern: Callable[..., None], use_tool: Callable[[str], Any], ask: Ask
) -> None:
    rules = {"look_up": {"limit": 200, "keep_newest": 0}}
    govern(strategy="sliding_window", tool_output_rules=rules)

    own = use_tool("Q1").scripted.requests[1]
    later = ask("Q2")

    assert [len(m.content) <= 200 for m in own.messages if m.role == "tool"] == [True]
    (result,) = [m.content for m in later.messages if m.role == "tool"]
    assert result == "[The result of look_up, 1,400 characters, is left out here.]"


@pytest.mark.usefixtures("tool")
@pytest.mark.parametrize("layout", ["A", "B", "C"])
def test_in_a_text_layout_tool_parts_stay_out_of_the_history(
    layout: str, govern: Callable[..., None], use_tool: Callable[[str], Any], ask: Ask
) -> None:
    govern(strategy="sliding_window", layout=layout)

    own = use_tool("Q1").scripted.requests[1]
    later = ask("Q2")

    assert [m.role for m in own.messages] == ["user", "assistant", "tool"]
    assert all(m.role == "user" for m in later.messages)
    receipt = Receipt.objects.order_by("-last_seq")[0]
    assert [2, 2, "tool_parts"] in receipt.left_out


def test_what_is_read_of_a_tool_message_follows_its_rule() -> None:
    result = engine.ToolResultPart("c", "look_up", "x" * 6_000)
    message = engine.Message(
        id="m", seq=1, role="assistant", parts=(result,), tokens=2_000, turn="t"
    )
    ruled = PolicyValues(tool_output_rules={"look_up": {"limit": 100}})

    assert estimate_sendable_tokens(message, values=PolicyValues()) == 2_000
    assert estimate_sendable_tokens(message, values=ruled) == 316
    assert estimate_sendable_tokens(message, values=PolicyValues(layout="A")) == 16


def test_a_factor_below_one_fills_the_prompt_all_the_same(
    govern: Callable[..., None], ask: Ask
) -> None:
    """If the estimate exceeds the provider's count, more estimated tokens fit and are loaded."""
    govern(strategy="sliding_window", token_budget=3_000, reserve_tokens=1_000, compact_at=1.0)
    for number in range(12):
        ask(f"Q{number} {'word ' * 250}", f"A{number}")
    ModelSpec.objects.update(calibration=0.5)
    Branch.objects.update(active_compaction=None)

    found = list_sent_messages(ask("Now?"))

    assert len(found) == 25


class OwnWords:
    """A strategy of a package: the user's newest messages, limited by its config."""

    name = "own_words"

    def choose(self, view: HistoryView) -> WindowChoice:
        """Choose user messages only."""
        places = range(len(view.messages))
        asked = [place for place in places if view.messages[place].role == "user"]
        kept = asked[-int(str(view.values.strategy_config["count"])) :]
        return WindowChoice(tuple(kept), tuple((p, "not_asked") for p in places if p not in kept))


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is installed."""
    point = EntryPoint("own_words", f"{__name__}:OwnWords", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    plugins.load_strategy_plugins.cache_clear()
    yield
    plugins.load_strategy_plugins.cache_clear()


@pytest.mark.requirement("S2.6")
@pytest.mark.usefixtures("package")
def test_a_packages_strategy_and_its_config_govern_a_turn(
    govern: Callable[..., None], ask: Ask
) -> None:
    govern(strategy="own_words", strategy_config={"count": 1})
    for number in (1, 2):
        ask(f"Q{number}", f"A{number}")

    assert [content for _, content in list_sent_messages(ask("Q3"))] == ["Q2", "Q3"]
    receipt = Receipt.objects.order_by("-last_seq")[0]
    assert receipt.left_out == [[1, 2, "not_asked"], [4, 4, "not_asked"]]


@pytest.mark.requirement("S2.6")
def test_a_strategy_that_is_gone_falls_back_and_the_receipt_says_so(
    govern: Callable[..., None], ask: Ask
) -> None:
    govern(strategy="own_words", strategy_config={"count": 1})
    ask("Q1", "A1")

    assert [content for _, content in list_sent_messages(ask("Q2"))] == ["Q1", "A1", "Q2"]
    assert Receipt.objects.order_by("-last_seq")[0].notes == ["strategy", "strategy:missing"]


@pytest.mark.usefixtures("tool")
@pytest.mark.parametrize("names_ids", [True, False], ids=["now", "older"])
@pytest.mark.parametrize(
    "values",
    [
        {"strategy": "simple", "window_size": 20, "window_turns": 3},
        {"strategy": "entity_state", "state_schema": SCHEMA, "keep_last_messages": 5},
    ],
    ids=["window", "state"],
)
def test_results_that_a_window_left_out_are_known_from_the_receipt(
    values: dict[str, Any],
    names_ids: bool,
    govern: Callable[..., None],
    alice: User,
    chat: Chat,
    now: datetime,
    work: Work,
) -> None:
    """The rule counts the results of messages that the prompt does not contain."""
    govern(**values, tool_output_rules={"look_up": {"keep_newest": 1}})
    extracted = [[TextDelta("{}"), Finished("stop")]] if "state_schema" in values else []
    for number in range(7):
        turn = start_turn(user=alice, chat=chat, text=f"Q{number}", now=now).turn
        call = ToolCallDelta(index=0, call_id=f"c-{number}", name="look_up", arguments="{}")
        work(turn, *extracted, [call, Finished("tool_calls")], [TextDelta("A."), Finished("stop")])
    rows = Receipt.objects.exclude(notes=[])
    assert rows
    if not names_ids:
        for row in rows:
            row.notes = [":".join(note.split(":")[:2]) for note in row.notes]
            row.save()

    assert not_rebuilt() == []
    row = rows.order_by("last_seq")[0]
    sources = load_receipt_sources([row]).with_notes(row.notes)
    texts = [
        recreate_sent_text(
            segment, sources=sources, values=load_policy_values(row.effective_policy)
        ).text
        for segment in row.segments
    ]
    assert [text for text in texts if "is left out here" in text] != []


@pytest.mark.usefixtures("tool")
def test_one_of_several_results_of_a_message_is_left_out(
    govern: Callable[..., None], alice: User, chat: Chat, now: datetime, work: Work, ask: Ask
) -> None:
    govern(strategy="sliding_window", tool_output_rules={"look_up": {"keep_newest": 1}})
    turn = start_turn(user=alice, chat=chat, text="Q", now=now).turn
    calls = [
        ToolCallDelta(index=place, call_id=f"c{place}", name="look_up", arguments="{}")
        for place in range(3)
    ]
    work(turn, [*calls, Finished("tool_calls")], [TextDelta("Done."), Finished("stop")])

    later = ask("Q2")

    results = [m.content for m in later.messages if m.role == "tool"]
    assert ["is left out here" in content for content in results] == [True, True, False]
    assert Receipt.objects.order_by("-last_seq")[0].notes == ['2:results_left_out:["c0", "c1"]']
    assert not_rebuilt() == []
