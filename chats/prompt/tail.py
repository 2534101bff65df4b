"""The parts of a prompt's tail that a turn builds before its first call, or why one is missing."""

from dataclasses import dataclass

from chats.models import Message, Turn
from chats.prompt import person
from chats.prompt.model_choice import ChosenModel
from contextpolicy.engine.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.budget import in_our_count
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState


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
    room: excerpts never take the place of history. A program's request that ends with the result
    of a tool has no question.
    """
    question = turn.trigger
    if question is None or question.role != Message.Role.USER:
        return None
    has_begun = any(message.role != "user" for message in given.steps)
    if "references" in (turn.tail or {}) or has_begun:
        return None
    room = excerpt_room(given, context)
    if room is None:
        return None
    return TailDue(choice, state=False, references=True, room=room.tokens, sent=room.sent)


@dataclass(frozen=True, slots=True)
class ExcerptRoom:
    """The tokens that a prompt has left for excerpts, in our count, and the seqs it contains."""

    tokens: int
    sent: frozenset[int]


def excerpt_room(given: ComposeInput, context: AssembledContext) -> ExcerptRoom | None:
    """Return the room for excerpts of the chat itself; None if the prompt needs or fits none."""
    values = given.values
    if not (values.references and values.reference_share):
        return None
    sent = frozenset(segment.seq for segment in context.segments if segment.seq)
    if len(sent) >= given.last_seq:
        return None
    share = int(values.reference_share * context.budget.prompt_limit)
    room = in_our_count(share, calibration=given.calibration)
    room = min(room, context.budget.limit - context.prompt_tokens) - HEADING
    return ExcerptRoom(room, sent) if room >= SMALLEST_ROOM else None


def notes(turn: Turn, *, choice: ChosenModel) -> list[str]:
    """Return the reasons why parts of the tail are not what they should be."""
    known = turn.tail or {}
    found = [known["note"]] if known.get("note") else []
    found += [f"vectors:{known['vectors']}"] if known.get("vectors") else []
    if known.get("references"):
        return [*found, f"references:{known['references']}"]
    withheld = references_withheld(turn, choice=choice)
    return [*found, withheld] if withheld else found
