"""The parts of a prompt's tail that a turn builds before its first call, or why one is missing."""

from dataclasses import dataclass

from chats.models import Message, Turn
from chats.prompt import person
from chats.prompt.model_choice import ChosenModel
from contextpolicy.engine.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.budget import compact_mark, in_our_count
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState

# The strategies whose history is bounded by the marks.
WITH_MARKS = frozenset({"dynamic_summary", "sliding_window"})


@dataclass(frozen=True, slots=True)
class TailDue:
    """Parts of the turn's tail have to be built before its first prompt.

    The `state` by `turns.state_extraction`, the `references` by `turns.references`. For excerpts of
    the chat itself `room` is the number of tokens that are free for them, in our count, and `sent`
    has the seqs that the prompt contains; None: the policy's own limits apply.
    """

    choice: ChosenModel
    state: bool
    references: bool
    room: int | None = None
    sent: frozenset[int] = frozenset()


# Fewer tokens are not worth a search: the heading and the day of an excerpt take some, too.
SMALLEST_ROOM = 120
# Of the free room, for the heading.
HEADING = 40


def recalls(turn: Turn, *, values: PolicyValues) -> bool:
    """Tell whether references are looked up for a turn; a reply that goes on has no question."""
    return values.references and turn.trigger is not None


def references_withheld(turn: Turn, *, choice: ChosenModel) -> str:
    """Return why a turn that recalls gets no references, as a note of its receipt; or nothing."""
    if not recalls(turn, values=choice.values) or "references" in (turn.tail or {}):
        return ""
    if choice.values.reference_share:
        # Excerpts of the chat itself bring nothing from elsewhere.
        return ""
    reason = person.withheld_others(turn.branch.chat, choice=choice)
    return reason and f"references:{reason}"


def due(turn: Turn, *, choice: ChosenModel) -> TailDue | None:
    """Return the parts of the tail that are still to be built; None if it is whole.

    A temporary chat, one without memory, and a provider that may not have it get nothing of other
    chats; a reply that is continued has no question.
    """
    values = choice.values
    known = turn.tail or {}
    state = values.strategy == EntityState.name and "state" not in known
    missing = recalls(turn, values=values) and "references" not in known
    missing = missing and not values.reference_share
    missing = missing and not references_withheld(turn, choice=choice)
    return TailDue(choice, state=state, references=missing) if state or missing else None


def excerpts_due(
    turn: Turn, *, choice: ChosenModel, given: ComposeInput, context: AssembledContext
) -> TailDue | None:
    """Return the order to look up excerpts of the chat itself, or None if none are needed.

    Looked up once a turn, before its first call, and only if the prompt leaves messages out and has
    room below the mark at which history is compacted. A program's request that ends with the result
    of a tool has no question.
    """
    values = choice.values
    question = turn.trigger
    if not (values.reference_share and values.references and question is not None):
        return None
    has_begun = any(message.role != "user" for message in given.steps)
    if "references" in (turn.tail or {}) or has_begun or question.role != Message.Role.USER:
        return None
    sent = frozenset(segment.seq for segment in context.segments if segment.seq)
    if len(sent) >= given.last_seq:
        return None
    limit = context.budget.prompt_limit
    high = compact_mark(values, prompt_limit=limit)
    if values.strategy not in WITH_MARKS:
        high = limit
    wanted = min(int(values.reference_share * limit), high)
    room = in_our_count(wanted, calibration=given.calibration)
    free = in_our_count(high, calibration=given.calibration) - context.prompt_tokens
    room = min(room, free) - HEADING
    if room < SMALLEST_ROOM:
        return None
    return TailDue(choice, state=False, references=True, room=room, sent=sent)


def notes(turn: Turn, *, choice: ChosenModel) -> list[str]:
    """Return the reasons why parts of the tail are not what they should be."""
    known = turn.tail or {}
    found = [known["note"]] if known.get("note") else []
    found += [f"vectors:{known['vectors']}"] if known.get("vectors") else []
    if known.get("references"):
        return [*found, f"references:{known['references']}"]
    withheld = references_withheld(turn, choice=choice)
    return [*found, withheld] if withheld else found
