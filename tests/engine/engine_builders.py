"""Builders for engine tests: messages, chats, and a player that runs turns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    compose_context,
)
from contextpolicy.engine.messages.messages import (
    Message,
    Part,
    Role,
    Summary,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from contextpolicy.engine.messages.tokens import ApproximateCounter, count_uncut_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan
from contextpolicy.engine.summaries.extractive import build_extractive_summary

COUNTER = ApproximateCounter()


def message(
    seq: int,
    text: str = "",
    *,
    role: Role | None = None,
    parts: tuple[Part, ...] | None = None,
    turn: str = "",
    pinned: bool = False,
    excluded: bool = False,
    incomplete: bool = False,
) -> Message:
    """A message with its stored count; odd seqs are the user's unless `role` is given."""
    role = role or ("user" if seq % 2 else "assistant")
    parts = (TextPart(text or f"message {seq}"),) if parts is None else parts
    return Message(
        id=f"m{seq}",
        seq=seq,
        role=role,
        parts=parts,
        tokens=count_uncut_tokens(parts, role, COUNTER),
        turn=turn,
        pinned=pinned,
        excluded=excluded,
        incomplete=incomplete,
    )


def step(seq: int, result: str = "fine", *, text: str = "", calls: int = 1) -> Message:
    """An assistant's step: optional text, `calls` tool calls, and their results."""
    parts: list[Part] = [TextPart(text)] if text else []
    parts += [ToolCallPart(f"c{seq}-{n}", "look_up", '{"a": 1}') for n in range(calls)]
    parts += [ToolResultPart(f"c{seq}-{n}", "look_up", result) for n in range(calls)]
    return message(seq, role="assistant", parts=tuple(parts))


def chat(count: int, text: Callable[[int], str] = "message {}".format) -> tuple[Message, ...]:
    """`count` messages, alternately of user and assistant."""
    return tuple(message(seq, text(seq)) for seq in range(1, count + 1))


def given(
    history: Sequence[Message] = (),
    *,
    values: PolicyValues | None = None,
    question: Sequence[Message] | None = None,
    **facts: object,
) -> ComposeInput:
    """The input for a question after `history`; `facts` are further fields of ComposeInput."""
    if question is None:
        question = (message(history[-1].seq + 1 if history else 1, "and now?", role="user"),)
    steps = facts.get("steps", ())
    behind = [*history, *question, *(steps if isinstance(steps, tuple) else ())]
    defaults: dict[str, object] = {
        "values": values or PolicyValues(strategy="sliding_window"),
        "model_window": None,
        "counter": COUNTER,
        "system": (("policy", "Be brief."),),
        "history": tuple(history),
        "question": tuple(question),
        "last_seq": max((item.seq for item in behind), default=0),
    }
    return ComposeInput(**{**defaults, **facts})  # type: ignore[arg-type]  # facts of a test


def composed(facts: ComposeInput) -> AssembledContext:
    """Compose as a caller does: move the window as often as requested, then return the context."""
    for _ in range(len(facts.history) + 2):
        made = compose_context(facts)
        if isinstance(made, AssembledContext):
            return made
        assert made.to_seq > facts.window_to, "a move must make progress"
        facts = replace(facts, window_to=made.to_seq)
    raise AssertionError("the window kept moving")


def left(context: AssembledContext) -> list[tuple[int, int, str]]:
    """The omitted messages as plain tuples."""
    return [(item.from_seq, item.to_seq, item.reason) for item in context.left_out]


def accounted(context: AssembledContext) -> list[int]:
    """Every seq that the context accounts for, ascending, with repetitions; slow but certain."""
    sent = [segment.seq for segment in context.segments if segment.seq]
    out = [seq for item in context.left_out for seq in range(item.from_seq, item.to_seq + 1)]
    return sorted(sent + out)


@dataclass
class Player:
    """Plays turns of one chat: stores messages, window rows and summaries, as the product does."""

    values: PolicyValues
    system: str = "Be brief."
    messages: list[Message] = field(default_factory=list)
    summary: Summary | None = None
    window_to: int = 0
    summaries: list[Summary] = field(default_factory=list)
    moves: list[WindowNeeded] = field(default_factory=list)

    def facts(self, question: Message) -> ComposeInput:
        covered = self.summary.to_seq if self.summary else 0
        exceptions = self.summary.exceptions if self.summary else ()
        return given(
            [m for m in self.messages if m.seq > covered or m.seq in exceptions],
            values=self.values,
            question=(question,),
            system=(("policy", self.system),),
            summary=self.summary,
            window_to=self.window_to,
            pins=tuple(m for m in self.messages if m.pinned and m.seq <= covered),
        )

    def turn(
        self, text: str, reply: str = "all right", *, pinned: bool = False
    ) -> AssembledContext:
        """Compose for a question, then store the question and its reply."""
        asked = message(len(self.messages) + 1, text, role="user", pinned=pinned)
        facts = self.facts(asked)
        made = compose_context(facts)
        while isinstance(made, WindowNeeded):
            self.moves.append(made)
            self.window_to = made.to_seq
            made = compose_context(self.facts(asked))
        answered = message(len(self.messages) + 2, reply, role="assistant")
        self.messages += [asked, answered]
        return made

    def fold(self, **facts: object) -> CompactionPlan | None:
        """Plan and publish a summary if one is due."""
        covered = self.summary.to_seq if self.summary else 0
        exceptions = self.summary.exceptions if self.summary else ()
        waiting = [m for m in self.messages if m.seq > covered or m.seq in exceptions]
        made = plan_compaction(
            [m for m in waiting if m.seq > covered or not m.pinned],
            previous=self.summary,
            values=self.values,
            prompt_limit=self.values.token_budget - self.values.reserve_tokens,
            fixed_tokens=0,
            **facts,  # type: ignore[arg-type]  # facts of a test
        )
        if not isinstance(made, CompactionPlan):
            return None
        text = build_extractive_summary(
            made.sources, self.summary, max_tokens=self.values.summary_max_tokens, counter=COUNTER
        )
        name = f"s{len(self.summaries) + 1}"
        self.summary = made.summary(id=name, text=text, tokens=COUNTER.count(text))
        self.summaries.append(self.summary)
        if self.window_to <= self.summary.to_seq:
            self.window_to = 0
        return made


def texts() -> st.SearchStrategy[str]:
    """Short and long texts, also with combining characters, emoji, CJK and code."""
    bricks = [
        "word ",
        "42 ",
        "日本語",
        "e\u0301",
        "👩‍👩‍👧",
        "🇩🇪",
        "한",
        "\n",
        "```\ncode\n```\n",
        "x" * 50,
    ]
    return st.lists(st.sampled_from(bricks), min_size=1, max_size=40).map("".join)


@st.composite
def chats(draw: st.DrawFn, most: int = 30) -> tuple[Message, ...]:
    """A branch of finished turns: questions, steps with tools, replies, some flagged."""
    made: list[Message] = []
    for _ in range(draw(st.integers(0, most // 3))):
        made += _turn(draw, len(made) + 1)
    return tuple(made)


def _turn(draw: st.DrawFn, seq: int) -> Iterable[Message]:
    flags = st.sampled_from(["", "", "", "", "pinned", "excluded", "incomplete", "empty"])
    turn = f"t{seq}"
    yield _flagged(message(seq, draw(texts()), role="user"), draw(flags), turn)
    for number in range(draw(st.integers(0, 2))):
        seq += 1
        yield _flagged(step(seq, draw(texts()), calls=1 + number), "", turn)
    yield _flagged(message(seq + 1, draw(texts()), role="assistant"), draw(flags), turn)


def _flagged(made: Message, flag: str, turn: str) -> Message:
    if flag == "empty":
        return replace(made, parts=(TextPart(""),), tokens=0, turn=turn)
    return replace(
        made,
        turn=turn,
        pinned=flag == "pinned",
        excluded=flag == "excluded",
        incomplete=flag == "incomplete",
    )
