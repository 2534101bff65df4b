"""Reasons why a turn was followed by no compaction, and what rests now."""

from dataclasses import dataclass
from datetime import datetime

from chats.compaction import pauses
from chats.compaction.coverage import active_branch
from chats.compaction.plan import find_summariser
from chats.models import Chat, Turn
from chats.models.compactions import EXTRACTIVE
from chats.prompt import model_choice
from contextpolicy.engine.ladder import Breaker

# The sentences of the engine's reasons at composing, and of the check after the turn.
SENTENCES = {
    "strategy": "The policy writes no summaries.",
    "below_threshold": "The prompt was below the size from which a summary is prepared.",
    "prepare_mark": "The prompt passed the size from which a summary is prepared.",
    "compact_mark": "The prompt passed the size from which a summary takes effect.",
    "turns": "The chat had more turns than its policy leaves unsummarised.",
    "window": "A window left messages out, so a summary was due.",
    "started": "A summary was begun.",
    "in_the_making": "A summary was being written or ready already.",
    "put_off": "Other summaries of this person were being written; this one comes after them.",
    "waits_for_approval": "A summary waited for somebody to approve it.",
    "breaker_open": "Attempts had failed one after the other; none is made for a while.",
    "paused": "Automatic compaction was paused after an undo.",
    "not_grown": "The prompt had hardly grown since the last compaction.",
    "nothing_to_fold": "There was nothing that could be summarised.",
    "keep_last": "All messages were among the newest, which stay.",
    "no_gain": "A summary would have freed too little.",
    "too_early": "Too little could be summarised yet; the next turn is waited for.",
    "no_model": "No model was set up.",
    "model_not_allowed": "The policy did not allow the chat's model.",
    "policy_impossible": "The policies that applied here could not work.",
    "no_call": "No model was called.",
}
# The sentences of the reasons for an attempt, by its trigger.
TRIGGERS = {
    "prepare": "The prompt had become large",
    "turns": "The chat had more turns than its policy leaves unsummarised",
    "overflow": "The prompt was too large",
    "window": "The prompt did not fit",
    "manual": "Somebody asked",
    "rerun": "Somebody asked for it again",
    "revision": "Somebody corrected it",
    "import": "It came with an imported chat",
}


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    """The outcome of the check after a turn: whether a summary was begun, why (not), the numbers.

    `code` is stable; `tokens` is the prompt in the provider's tokens, `mark` the mark that it had
    passed (0: none).
    """

    code: str
    sentence: str
    was_started: bool
    tokens: int
    mark: int


def why_not(turn: Turn) -> CompactionOutcome:
    """Return what was decided about compaction after a turn; the newest decision counts."""
    rows = turn.receipts.order_by("-created_at", "-attempt", "-step", "-call")
    need = rows.values_list("compaction_need", flat=True).first() or {}
    code = turn.compaction_outcome or need.get("reason", "no_call")
    return CompactionOutcome(
        code=code,
        sentence=SENTENCES.get(code, code),
        was_started=code == "started",
        tokens=need.get("tokens", 0),
        mark=need.get("mark", 0),
    )


@dataclass(frozen=True, slots=True)
class Rests:
    """The pauses that keep automatic compaction of a chat from working now.

    `paused_at`: since an undo, or None. `breaker`: all attempts rest after failures in a row;
    `model_breaker`: the summarising model alone does.
    """

    paused_at: datetime | None
    breaker: Breaker
    model_breaker: Breaker


def rests(*, chat: Chat, now: datetime) -> Rests:
    """Return what rests in a chat's active branch, and until when.

    `pauses.resume` and `pauses.reset_breaker` end it. Raises what `model_choice.choose` raises.
    """
    choice = model_choice.choose(chat=chat)
    branch = active_branch(chat)
    summariser = find_summariser(choice.values)
    name = summariser.name if summariser else EXTRACTIVE
    return Rests(
        paused_at=branch.paused_at if branch.compaction_paused else None,
        breaker=pauses.breaker_of(branch, choice=choice, now=now),
        model_breaker=pauses.model_breaker_of(branch, model_name=name, now=now),
    )
