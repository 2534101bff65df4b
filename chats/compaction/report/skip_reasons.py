"""Explains why no compaction followed a turn, and which pauses are active."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext, gettext_lazy, gettext_noop

from chats.compaction import pauses
from chats.compaction.coverage import load_locked_active_branch
from chats.compaction.plan import find_branch_summariser
from chats.models import Chat, Turn
from chats.models.compactions import EXTRACTIVE
from chats.prompt import model_choice
from contextpolicy.engine.summaries.ladder import Breaker

# Sentences for the engine's reasons during composition, and for the check after the turn. Shown
# in the language of the reader.
SENTENCES = {
    "strategy": gettext_noop("The policy writes no summaries."),
    "below_threshold": gettext_noop(
        "The prompt was smaller than the size at which a summary is prepared."
    ),
    "prepare_mark": gettext_noop("The prompt reached the size at which a summary is prepared."),
    "compact_mark": gettext_noop("The prompt reached the size at which a summary is published."),
    "turns": gettext_noop("The chat had more unsummarised turns than its policy allows."),
    "window": gettext_noop("The window left messages out of the prompt, so a summary was due."),
    "started": gettext_noop("A summary was started."),
    "in_the_making": gettext_noop("A summary was already running or ready."),
    "put_off": gettext_noop("Other summaries for this user were running, so this one was queued."),
    "waits_for_approval": gettext_noop("A summary was waiting for approval."),
    "breaker_open": gettext_noop(
        "Compaction was paused for a while, because several attempts in a row had failed."
    ),
    "paused": gettext_noop(
        "Automatic compaction was paused after an undo, or because an API client shortens the "
        "history itself."
    ),
    "not_grown": gettext_noop("The prompt had grown too little since the last compaction."),
    "nothing_to_fold": gettext_noop("No messages could be summarised."),
    "keep_last": gettext_noop(
        "All messages were among the newest ones, which are never summarised."
    ),
    "no_gain": gettext_noop("A summary would have saved too few tokens."),
    "too_early": gettext_noop("Too few messages could be summarised. The next turn checks again."),
    "no_model": gettext_noop("No model was configured on this server."),
    "model_not_allowed": gettext_noop("The policy did not allow the chat’s model."),
    "unknown_summariser": gettext_noop(
        "The requested model could no longer write summaries in this chat."
    ),
    "policy_impossible": gettext_noop(
        "The policies of this chat contradicted each other or did not fit its model."
    ),
    "no_call": gettext_noop("No model was called."),
}
# Sentences for an attempt's reason, by its trigger.
TRIGGERS = {
    "prepare": gettext_lazy("The prompt reached the size at which a summary is prepared"),
    "turns": gettext_lazy("The chat had more unsummarised turns than its policy allows"),
    "overflow": gettext_lazy("The provider refused the prompt as too long"),
    "window": gettext_lazy("The window left messages out"),
    "manual": gettext_lazy("A user requested it"),
    "rerun": gettext_lazy("A user requested a new version"),
    "revision": gettext_lazy("A user edited the summary"),
    "import": gettext_lazy("Imported with the chat"),
}


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    """The result of the compaction check after a turn: whether a summary was started, and why.

    `code` is stable. `tokens`: the prompt size as the provider counts it. `mark`: the threshold in
    tokens that the prompt exceeded; 0 if it exceeded none.
    """

    code: str
    sentence: str
    was_started: bool
    tokens: int
    mark: int


def explain_skipped_compaction(turn: Turn) -> CompactionOutcome:
    """Return the result of the compaction check after a turn, in the reader's language.

    If there were several checks, the newest one counts.
    """
    rows = turn.receipts.order_by("-created_at", "-attempt", "-step", "-call")
    need = rows.values_list("compaction_need", flat=True).first() or {}
    code = turn.compaction_outcome or need.get("reason", "no_call")
    return CompactionOutcome(
        code=code,
        sentence=gettext(SENTENCES[code]) if code in SENTENCES else code,
        was_started=code == "started",
        tokens=need.get("tokens", 0),
        mark=need.get("mark", 0),
    )


@dataclass(frozen=True, slots=True)
class CompactionPauses:
    """The pauses that currently stop automatic compaction of a chat.

    `paused_at`: time of the undo that paused it, or None. `breaker`: all attempts pause after
    consecutive failures. `model_breaker`: only the summarising model pauses.
    """

    paused_at: datetime | None
    breaker: Breaker
    model_breaker: Breaker


def get_active_pauses(*, chat: Chat, now: datetime) -> CompactionPauses:
    """Return the active pauses of a chat's active branch, and when they end.

    `pauses.resume_compaction` and `pauses.reset_breaker` end them earlier. Raises the
    errors of `model_choice.choose_chat_model`.
    """
    choice = model_choice.choose_chat_model(chat=chat)
    branch = load_locked_active_branch(chat)
    summariser = find_branch_summariser(branch, values=choice.values)
    name = summariser.name if summariser else EXTRACTIVE
    return CompactionPauses(
        paused_at=branch.paused_at if branch.compaction_paused else None,
        breaker=pauses.load_branch_breaker(branch, choice=choice, now=now),
        model_breaker=pauses.load_model_breaker(branch, model_name=name, now=now),
    )
