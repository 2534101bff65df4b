"""Checks one prompt or two consecutive ones for faults, independently of the engine."""

from collections.abc import Iterator, Sequence

from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.compose.partition import LeftOut
from contextpolicy.engine.messages.messages import WireMessage, extract_message_text
from contextpolicy.engine.messages.tokens import TokenCounter, count_wire_tokens
from contextpolicy.engine.messages.transcript import SECTION_JOINT

FAULTS = (
    "over budget",
    "group split",
    "question lost",
    "unaccounted",
    "partition",
    "prefix",
    "exception",
)
Prompt = tuple[ComposeInput, AssembledContext]


def find_prompt_faults(
    facts: ComposeInput, made: AssembledContext, *, counter: TokenCounter
) -> Iterator[tuple[str, str]]:
    """Yield the faults of one prompt: (fault, detail)."""
    question = facts.question[0]
    limit = facts.values.token_budget - facts.values.reserve_tokens
    tokens = sum(count_wire_tokens(wire, counter) for wire in made.messages)
    if tokens > limit or tokens != made.prompt_tokens:
        yield "over budget", f"{tokens} of {limit} (reported: {made.prompt_tokens})"
    if not is_paired(made.messages):
        yield "group split", f"the prompt for message {question.seq}"
    asked = made.messages[find_question_index(made.messages)].content
    if not asked.endswith(extract_message_text(question)):
        yield "question lost", f"message {question.seq}"
    named = [segment.seq for segment in made.segments if segment.seq]
    for out in made.left_out:
        named += range(out.from_seq, out.to_seq + 1)
    if sorted(named) != list(range(1, facts.last_seq + 1)):
        yield "unaccounted", f"the prompt for message {question.seq}"


def is_paired(wires: Sequence[WireMessage]) -> bool:
    """Return True if each call is followed by its result and each result belongs to a call."""
    waiting: list[str] = []
    for wire in wires:
        if wire.role == "tool" and wire.tool_call_id in waiting:
            waiting.remove(wire.tool_call_id)
        elif waiting or wire.role == "tool":
            return False
        else:
            waiting = [call.call_id for call in wire.tool_calls]
    return not waiting


def find_question_index(wires: Sequence[WireMessage]) -> int:
    """Return the index of the question, which is the last user message."""
    return max(place for place, wire in enumerate(wires) if wire.role == "user")


def has_required_prefix(old: Prompt, new: Prompt) -> bool:
    """Return True if the second prompt begins with the required part of the first.

    While window and summary are unchanged, the required part is everything up to the end of
    history. Within a turn, it is everything up to the last step, as long as no older step
    is dropped. Data that was dropped to meet the limit must not reappear within the turn.
    """
    if compute_prefix_anchor(old) != compute_prefix_anchor(new):
        return True
    is_same_turn = old[0].question == new[0].question
    data, later_data = collect_data_names(old), collect_data_names(new)
    if is_same_turn and not later_data <= data:
        return False
    if list_dropped_data(old) != list_dropped_data(new) or (is_same_turn and later_data < data):
        return True
    (wires, text), (later_wires, later_text) = extract_settled_part(old), extract_settled_part(new)
    if later_wires[: len(wires)] != wires or not later_text.startswith(text):
        return False
    if (
        not is_same_turn
        or list_sent_steps(old) != list_sent_steps(new)[: len(list_sent_steps(old))]
    ):
        return True
    return new[1].messages[: len(old[1].messages)] == old[1].messages


def compute_prefix_anchor(prompt: Prompt) -> tuple[object, ...]:
    """Return values that differ whenever the prefix may change: the window and the summary.

    With `simple` and `entity_state` the window moves by one message, so the start of
    history is included. With `entity_state` the question is included too, because the state
    is new in each turn.
    """
    facts, made = prompt
    oldest = next((s.seq for s in made.segments if s.origin == "history"), 0)
    moving = {"simple": (oldest,), "entity_state": (oldest, facts.question[0].seq)}
    return facts.window_to, facts.summary, moving.get(facts.values.strategy)


def collect_data_names(prompt: Prompt) -> set[str]:
    """Return the names of sent data other than messages: summary, pins and tail."""
    segments = prompt[1].segments
    return {s.text_ref or s.message_id for s in segments if s.origin in ("summary", "pin", "tail")}


def list_dropped_data(prompt: Prompt) -> list[LeftOut]:
    """Return the ranges of messages that were omitted with the reason `budget`.

    The summary and pins are omitted with this reason in a turn that fills the prompt.
    """
    return [out for out in prompt[1].left_out if out.reason == "budget"]


def list_sent_steps(prompt: Prompt) -> list[tuple[int, int | None]]:
    """Return the sent steps, each with the limit that cut its results, or None."""
    return [(s.seq, s.result_limit) for s in prompt[1].segments if s.origin == "step"]


def extract_settled_part(prompt: Prompt) -> tuple[tuple[WireMessage, ...], str]:
    """Return the part before the question: messages, and in a text layout the text up to it."""
    facts, made = prompt
    place = find_question_index(made.messages)
    before, asked = made.messages[:place], made.messages[place].content
    layout = facts.values.layout
    if layout == "multi_turn":
        return before, ""
    if layout == "B":
        return (before[:-1], before[-1].content) if before[-1].role == "user" else (before, "")
    question = extract_message_text(facts.question[0])
    lead = f"{SECTION_JOINT}{facts.values.question_prefix}{question}"
    return before, asked.removesuffix(lead) if asked.endswith(lead) else ""
