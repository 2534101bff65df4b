"""The parts of a prompt's tail that a turn builds before its first call, or why one is missing."""

from dataclasses import dataclass

from chats.models import Turn
from chats.prompt import person
from chats.prompt.model_choice import ChosenModel
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState


@dataclass(frozen=True, slots=True)
class TailDue:
    """Parts of the turn's tail have to be built before its first prompt.

    The `state` by `turns.state_extraction`, the `references` by `turns.references`.
    """

    choice: ChosenModel
    state: bool
    references: bool


def recalls(turn: Turn, *, values: PolicyValues) -> bool:
    """Tell whether references are looked up for a turn; a reply that goes on has no question."""
    return values.references and turn.trigger is not None


def references_withheld(turn: Turn, *, choice: ChosenModel) -> str:
    """Return why a turn that recalls gets no references, as a note of its receipt; or nothing."""
    if not recalls(turn, values=choice.values) or "references" in (turn.tail or {}):
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
    missing = missing and not references_withheld(turn, choice=choice)
    return TailDue(choice, state=state, references=missing) if state or missing else None


def notes(turn: Turn, *, choice: ChosenModel) -> list[str]:
    """Return the reasons why parts of the tail are not what they should be."""
    known = turn.tail or {}
    found = [known["note"]] if known.get("note") else []
    found += [f"vectors:{known['vectors']}"] if known.get("vectors") else []
    if known.get("references"):
        return [*found, f"references:{known['references']}"]
    withheld = references_withheld(turn, choice=choice)
    return [*found, withheld] if withheld else found
