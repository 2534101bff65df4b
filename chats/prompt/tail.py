"""The parts of a prompt's tail that a turn builds before its first call."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from chats.models import Branch, Message, Turn
from chats.prompt import person
from chats.prompt.agents import Seen
from chats.prompt.model_choice import ChosenModel
from chats.record.history import select_path_messages
from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.compose.partition import explain_unsendable_message
from contextpolicy.engine.messages.messages import Message as EngineMessage
from contextpolicy.engine.policy.budget import convert_provider_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState
from contextpolicy.ledger import count_chat_events


@dataclass(frozen=True, slots=True)
class PromptDraft:
    """The facts of a prompt, loaded before its excerpts are retrieved.

    `given` has neither excerpts nor the chat's search tool. `zone` is the time zone of its dates.
    `events`: number of the chat's ledger events before the facts were loaded.
    """

    choice: ChosenModel
    given: ComposeInput
    branch: Branch
    zone: str
    events: int

    def is_current(self, *, choice: ChosenModel) -> bool:
        """Return True if neither the chat nor the effective policy has changed since."""
        return (
            choice.effective == self.choice.effective
            and count_chat_events(self.branch.chat_id) == self.events
        )


@dataclass(frozen=True, slots=True)
class TailRequired:
    """Parts of the turn's tail must be built before its first prompt.

    `turns.state_extraction` builds the `state`, `turns.references` the `references`, and
    `turns.file_excerpts` those of documents (`files`). `sent` has the `seq`s that the prompt
    contains in full. For excerpts of the chat itself, `room` is the number of free local tokens,
    and `cut` has the `seq`s whose texts the prompt shortens. If `room` is None, the policy's own
    limits apply. `asked` is the `seq` of the message that an agent answers, or 0 for the turn's own
    question. `draft` has the prompt's facts, so that they are loaded only once.
    """

    choice: ChosenModel
    state: bool
    references: bool
    room: int | None = None
    sent: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    asked: int = 0
    draft: PromptDraft | None = field(default=None, compare=False)
    files: bool = False


# A smaller room is not worth a search: an excerpt's heading and date take tokens too.
SMALLEST_ROOM = 120
# Tokens of the free room reserved for the heading.
HEADING = 40


def should_retrieve_context(turn: Turn, *, values: PolicyValues) -> bool:
    """Return True if context is retrieved for a turn.

    False for a continued reply, because it has no question.
    """
    return values.references and turn.trigger is not None


def get_withheld_note(turn: Turn, *, choice: ChosenModel) -> str:
    """Return a receipt note with the reason that retrieved context is withheld from a turn.

    Empty if nothing is withheld.
    """
    if not should_retrieve_context(turn, values=choice.values):
        return ""
    if (turn.tail or {}).get("references"):
        # There is no context to withhold.
        return ""
    if choice.values.reference_share:
        # Excerpts of the chat itself contain nothing from other chats.
        return ""
    reason = person.find_withhold_reason(turn.branch.chat, choice=choice)
    return reason and f"references:{reason}"


def find_missing_tail(turn: Turn, *, choice: ChosenModel) -> TailRequired | None:
    """Return the parts of the tail that are still missing. None if it is complete.

    Excerpts of the chat itself and of documents are not among them: `request_excerpts` and
    `request_file_excerpts` request these later.
    Temporary chats, chats without memory, and providers that are not allowed get no content
    of other chats. Nothing is retrieved for a continued reply, because it has no question, nor for
    a client's request that ends with a tool result.
    """
    values = choice.values
    known = turn.tail or {}
    state = values.strategy == EntityState.name and "state" not in known
    missing = should_retrieve_context(turn, values=values) and "references" not in known
    missing = missing and not values.reference_share
    missing = missing and not get_withheld_note(turn, choice=choice)
    missing = missing and not has_client_steps(turn)
    if not (state or missing):
        return None
    return TailRequired(choice, state=state, references=missing)


def has_client_steps(turn: Turn) -> bool:
    """Return True if a client's request has replies or tool results after its latest question."""
    if turn.client is None or turn.trigger is None:
        return False
    after = select_path_messages(
        turn.branch, after=turn.trigger.seq or 0, before=turn.branch.last_seq + 1
    )
    return after.exclude(role=Message.Role.USER).exists()


def may_need_excerpts(turn: Turn, *, choice: ChosenModel) -> bool:
    """Return True if a prompt that leaves out messages gets excerpts of the chat or its files."""
    values, known = choice.values, turn.tail or {}
    has_share = values.references and values.reference_share > 0
    needs_files = turn.branch.chat.has_documents and "files" not in known
    return needs_files or (has_share and "references" not in known)


def request_file_excerpts(
    turn: Turn, *, choice: ChosenModel, given: ComposeInput, context: AssembledContext
) -> TailRequired | None:
    """Return a `TailRequired` that requests excerpts of the chat's documents, or None.

    Excerpts are requested at most once per turn, before its first call, and only if the prompt
    does not contain all documents in full. The requests of a client that follow a tool result are
    separate turns, so each of them gets excerpts.
    """
    chat = turn.branch.chat
    if not chat.has_documents or turn.trigger is None or "files" in (turn.tail or {}):
        return None
    if turn.client is None and includes_reply(given.steps):
        return None
    sent = find_whole_messages(context)
    if not chat.has_cut_files and len(sent) >= given.last_seq:
        return None
    return TailRequired(choice, state=False, references=False, files=True, sent=sent)


def includes_reply(steps: Iterable[EngineMessage]) -> bool:
    """Return True if the messages after a question contain a reply that may be sent."""
    return any(step.role == "assistant" and not explain_unsendable_message(step) for step in steps)


def find_whole_messages(context: AssembledContext) -> frozenset[int]:
    """Return the `seq`s of the messages that a prompt contains without shortened texts."""
    cut = {s.seq for s in context.segments if s.cut_to is not None}
    return frozenset(s.seq for s in context.segments if s.seq and s.seq not in cut)


def request_excerpts(
    turn: Turn, *, choice: ChosenModel, given: ComposeInput, context: AssembledContext
) -> TailRequired | None:
    """Return a `TailRequired` that requests excerpts of this chat, or None.

    Excerpts are requested at most once per turn, before its first call, and only if the prompt
    leaves out messages and has room: excerpts never displace history. None for a client's request
    that ends with a tool result, because it has no question.
    """
    question = turn.trigger
    if question is None or question.role != Message.Role.USER:
        return None
    has_begun = any(message.role != "user" for message in given.steps)
    if "references" in (turn.tail or {}) or has_begun:
        return None
    room = measure_excerpt_room(given, context)
    if room is None:
        return None
    return TailRequired(
        choice, state=False, references=True, room=room.tokens, sent=room.sent, cut=room.cut
    )


def request_agent_excerpts(
    turn: Turn,
    *,
    choice: ChosenModel,
    given: ComposeInput,
    context: AssembledContext,
    seen: Seen,
) -> TailRequired | None:
    """Return a `TailRequired` that requests excerpts for an agent's turn, or None.

    The conditions are those of `request_excerpts`. The question is the message that the agent
    answers, whether a person or an agent wrote it.
    """
    is_due = "references" not in (turn.tail or {}) and not includes_reply(seen.steps)
    if seen.question is None or not is_due:
        return None
    room = measure_excerpt_room(given, context)
    if room is None:
        return None
    return TailRequired(
        choice,
        state=False,
        references=True,
        room=room.tokens,
        sent=room.sent,
        cut=room.cut,
        asked=seen.question.seq,
    )


@dataclass(frozen=True, slots=True)
class ExcerptRoom:
    """The free local tokens for excerpts, and the `seq`s in the prompt.

    `cut`: those whose texts the prompt shortens. They are not in `sent`.
    """

    tokens: int
    sent: frozenset[int]
    cut: frozenset[int]


def measure_excerpt_room(given: ComposeInput, context: AssembledContext) -> ExcerptRoom | None:
    """Return the room for excerpts of the chat itself. None if none are needed or none fit."""
    values = given.values
    if not (values.references and values.reference_share):
        return None
    # A message can have several segments.
    cut = frozenset(s.seq for s in context.segments if s.seq and s.cut_to is not None)
    sent = find_whole_messages(context)
    if len(sent) >= given.last_seq:
        return None
    share = int(values.reference_share * context.budget.prompt_limit)
    room = convert_provider_tokens(share, calibration=given.calibration)
    room = min(room, context.budget.limit - context.prompt_tokens) - HEADING
    return ExcerptRoom(room, sent, cut) if room >= SMALLEST_ROOM else None


def list_tail_notes(turn: Turn, *, choice: ChosenModel) -> list[str]:
    """Return the receipt notes for missing or outdated parts of the tail."""
    known = turn.tail or {}
    found = [known["note"]] if known.get("note") else []
    found += [f"vectors:{known['vectors']}"] if known.get("vectors") else []
    if known.get("references"):
        return [*found, f"references:{known['references']}"]
    withheld = get_withheld_note(turn, choice=choice)
    return [*found, withheld] if withheld else found
