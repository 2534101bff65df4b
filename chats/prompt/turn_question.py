"""The message that a turn answers, and the refusals if that message may not be sent."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Branch, Message, Turn
from chats.prompt import statements
from chats.record import history
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.transcript import Background


class QuestionErased(Refusal):
    """The message that the reply answers or continues was erased. Send a new message instead."""

    code = "message_erased"
    status = 409
    sentence = gettext_noop(
        "The message that this reply answers or continues was erased, so the reply cannot be "
        "written again. Send a new message instead."
    )


class QuestionExcluded(Refusal):
    """The message that the reply answers or continues is excluded from prompts. Include it again
    first.
    """

    code = "message_excluded"
    status = 409
    sentence = gettext_noop(
        "The message that this reply answers or continues is excluded from prompts. Include it "
        "again first, or send a new message."
    )


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a prompt and its context.

    A continued reply has `continues` (the reply's id) instead of `question`. An agent that speaks
    again has neither. History ends before the `seq` `before`, and the branch ends at `last_seq`.
    """

    question: tuple[engine.Message, ...]
    before: int
    last_seq: int
    steps: tuple[engine.Message, ...] = ()
    continues: str = ""
    background: Background = field(default_factory=Background)
    # The reasons why background was withheld, for the receipt.
    notes: tuple[str, ...] = ()
    # The time zone for message dates. Empty: no dates.
    zone: str = ""


def find_turn_question(turn: Turn) -> Message | None:
    """Return the newest user message of a turn that prompts may contain.

    None if the turn continues a reply, or if it answers other agents of its round. Raises
    `QuestionErased` and `QuestionExcluded`.
    """
    if not answers_person(turn):
        return None
    own = Message.objects.filter(turn=turn.pk, role=Message.Role.USER, seq__isnull=False)
    asked = [turn.trigger] if turn.trigger else []
    # A continuation may also answer messages that were sent before it began.
    asked += [row for row in own.order_by("seq") if row.pk != turn.trigger_id]
    if asked:
        return choose_question(asked)
    if turn.continues is not None and turn.continues.reply is not None:
        choose_question([turn.continues.reply])
    return None


def answers_person(turn: Turn) -> bool:
    """Return False if the turn is that of a later agent, which answers other agents.

    Agents of an independent team all answer the person, each in a lane.
    """
    return bool(turn.lane) or (turn.hop or 1) <= 1


def choose_question(rows: Iterable[Message]) -> Message:
    """Return the last of the messages that prompts may contain; at least one is given.

    Raises `QuestionErased` and `QuestionExcluded`.
    """
    known = [row for row in rows if row.erased_at is None]
    if not known:
        raise QuestionErased
    sendable = [row for row in known if not row.excluded]
    if not sendable:
        raise QuestionExcluded
    return sendable[-1]


def load_turn_messages(turn: Turn, *, branch: Branch) -> tuple[list[Message], list[Message]]:
    """Return the question of a turn, and the messages that follow it, its steps among them.

    The question is the turn's last sendable user message that precedes the first step, or else its
    trigger. Earlier ones are history. A continuation has no question, only an instruction. Raises
    `QuestionErased` and `QuestionExcluded`.
    """
    # Filtered by turn only and sorted here. With a branch filter, SQLite would scan the whole
    # branch.
    own = sorted(statements.OWN_MESSAGES.rows(turn=turn.pk), key=lambda row: row.seq or 0)
    first_step = next((row.seq for row in own if row.role == Message.Role.ASSISTANT), None)
    asked = [
        row
        for row in own
        if row.role == Message.Role.USER and (first_step is None or (row.seq or 0) < first_step)
    ]
    if not asked and turn.trigger is not None:
        asked = [turn.trigger]
    if not asked:
        return [], own
    question = choose_question(asked)
    if question.seq == branch.last_seq:
        return [question], []
    rows = history.select_path_messages(branch, after=question.seq or 0, before=branch.last_seq + 1)
    return [question], list(rows.order_by("seq"))


def get_question_time(turn: Turn) -> datetime:
    """Return the time at which the turn's question was asked. Requeueing does not change it."""
    return turn.trigger.created_at if turn.trigger else turn.queued_at
