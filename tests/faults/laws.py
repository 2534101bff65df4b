"""Invariants of every chat, at any moment, whatever is killed or runs concurrently."""

import hashlib
import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.utils import timezone

from chats.compaction.coverage import get_active_summary
from chats.compaction.people import undo
from chats.ground.commitments import is_commitment_valid
from chats.models import Branch, Chat, Compaction, Message, Receipt, Turn
from chats.prompt import built_prompt, composition
from chats.record import commitment_check, history
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent
from replay.pipeline import is_valid_summary
from tests.support.chat_invariants import check_compactions, check_receipts

COUNTER = ApproximateCounter()
ENDS = ("turn.completed", "turn.failed", "turn.stopped", "turn.absorbed")
# The ledger's events of a summary, each at most once. The last three end an attempt.
FATES = ("prepared", "published", "overtaken", "rejected", "failed")
# The events that a row in this state must have, and those that it must not have.
MUST = {
    "prepared": {"prepared"},
    "published": {"prepared", "published"},
    "replaced": {"prepared", "published"},
    "undone": {"prepared", "published"},
    "overtaken": {"overtaken"},
    "rejected": {"rejected"},
    "failed": {"failed"},
}
MUST_NOT = {
    "preparing": set(FATES),
    "prepared": {"published", "overtaken", "rejected", "failed"},
    "published": {"overtaken", "rejected", "failed"},
    "replaced": {"overtaken", "rejected", "failed"},
    "undone": {"overtaken", "rejected", "failed"},
    "overtaken": {"rejected", "failed"},
    "rejected": {"prepared", "published", "overtaken", "failed"},
    "failed": {"prepared", "published", "overtaken", "rejected"},
}


class Violation(BaseException):
    """A broken invariant.

    A separate type, so that no handler of the product treats it as a failure.
    """


def branch_of(chat: Chat) -> Branch:
    """The chat's current active branch."""
    chat.refresh_from_db(fields=["active_branch"])
    rows = Branch.objects.select_related("active_compaction__base", "chat")
    return rows.get(pk=str(chat.active_branch_id))


def originals(chat: Chat) -> dict[str, str]:
    """The hash of each message that has a position in the chat, by id."""
    rows = Message.objects.filter(branch__chat=chat, seq__isnull=False)
    return {
        str(row.pk): hashlib.sha256(
            json.dumps([row.seq, row.role, row.parts, row.finish]).encode()
        ).hexdigest()
        for row in rows
    }


def in_force(chat: Chat) -> tuple[Any, int]:
    """The active summary and the revision."""
    branch = branch_of(chat)
    return branch.active_compaction_id, branch.context_revision


def prompt_of(chat: Chat) -> str | None:
    """The hash of the prompt that the last ended turn would get now, or None."""
    turns = Turn.objects.select_related("branch__chat", "model", "trigger", "continues")
    over = turns.filter(branch=branch_of(chat), finished_at__isnull=False)
    turn = over.filter(trigger__seq__isnull=False).order_by("-accepted").first()
    made = composition.compose_prompt(turn=turn, counter=COUNTER) if turn else None
    return (
        str(made.receipt_fields["prompt_sha256"]) if isinstance(made, built_prompt.Prompt) else None
    )


def assert_laws(chat: Chat, *, known: set[Any]) -> None:
    """Check every invariant of a chat that is locked or unused by other processes.

    `known` are the receipts that were checked before.
    """
    try:
        check_compactions(chat)
        check_receipts(chat, known=known)
    except (AssertionError, ValueError) as error:
        raise Violation(f"no sound context: {error}") from error
    assert_complete(chat)
    assert_answered_once(chat)
    assert_summaries_whole(chat)
    assert_committed(chat)


def assert_committed(chat: Chat) -> None:
    """Check that each finished call and summary has a commitment that matches the ledger."""
    for found in commitment_check.verify_commitments(scope=f"chat:{chat.pk}", tally=Counter()):
        raise Violation(f"the ledger and its rows differ: row {found.seq}: {found.reason}")


def assert_complete(chat: Chat) -> None:
    """Check that each branch shows every message once after compactions (laws 1, 57)."""
    for branch in Branch.objects.filter(chat=chat):
        rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
        places = list(rows.order_by("seq").values_list("seq", flat=True))
        if places != list(range(1, branch.last_seq + 1)):
            raise Violation(f"a message was lost or doubled: {places} of {branch.last_seq}")


def assert_answered_once(chat: Chat) -> None:
    """Check that a completed turn has a reply, and no turn more than requested (law 49)."""
    rows = Message.objects.filter(branch__chat=chat, turn__isnull=False)
    replies = Counter(
        rows.filter(role=Message.Role.ASSISTANT)
        .exclude(finish=Message.Finish.TOOL_CALLS)
        .values_list("turn", flat=True)
    )
    # The turn's own message, and those that arrived while it was answered.
    asked = Counter(rows.filter(role=Message.Role.USER).values_list("turn", flat=True))
    for turn in Turn.objects.filter(branch__chat=chat):
        if replies[turn.pk] > asked[turn.pk]:
            raise Violation(f"a turn has {replies[turn.pk]} replies to {asked[turn.pk]} messages")
        if turn.status == Turn.Status.COMPLETED and not turn.reply_id:
            raise Violation("a turn is complete without a reply")
    ended = AuditEvent.objects.filter(chat_id=chat.pk, type__in=ENDS)
    if any(n > 1 for n in Counter(ended.values_list("turn_id", flat=True)).values()):
        raise Violation("a turn ended twice")
    receipts = Receipt.objects.filter(turn__branch__chat=chat, error_code="context_overflow")
    calls = Counter(receipts.values_list("turn", "attempt", "step"))
    if any(n > 2 for n in calls.values()):
        raise Violation("an overflow led to more than one smaller call")


def assert_summaries_whole(chat: Chat) -> None:
    """Check that usable summaries are complete and that each attempt has one outcome.

    The ledger and the row must agree. These are laws 31, 39, 41, 42 and 69.
    """
    fates = defaultdict[str, Counter[str]](Counter)
    events = AuditEvent.objects.filter(chat_id=chat.pk, type__startswith="compaction.")
    for event, data in events.values_list("type", "data"):
        fates[data.get("compaction", "")][event.removeprefix("compaction.")] += 1
    for row in Compaction.objects.filter(branch__chat=chat, kind=Compaction.Kind.SUMMARY):
        met = {fate for fate in FATES if fates[str(row.pk)][fate]}
        twice = [fate for fate in FATES if fates[str(row.pk)][fate] > 1]
        if twice or met & MUST_NOT[row.status] or not met >= MUST.get(row.status, set()):
            raise Violation(f"half-published: a {row.status} summary has the events {met}, {twice}")
        usable = row.status in {"prepared", "published"}
        is_whole = row.sections and is_commitment_valid(
            row.text_commitment, row.text, salt=row.salt
        )
        if usable and not is_whole:
            raise Violation(f"half-published: a {row.status} summary is not whole")


def assert_sound(chat: Chat) -> None:
    """Check that each summary that was ever active passes acceptance again (laws 30, 31, 69)."""
    rows = Compaction.objects.select_related("branch__chat", "effective_policy", "previous")
    published = rows.filter(branch__chat=chat, kind="summary", published_at__isnull=False)
    for row in published.filter(erased_at=None):
        if not is_valid_summary(row, counter=COUNTER):
            raise Violation("a published summary does not pass the verdict")


def assert_nothing_in_the_making(chat: Chat) -> None:
    """Check that claims of dead workers are closed, so a new claim is possible (laws 38, 42)."""
    if Compaction.objects.filter(branch__chat=chat, status="preparing").exists():
        raise Violation("the claim of a dead process is not released")


def assert_undo_gives_back(chat: Chat, *, compact: Callable[[], Any]) -> None:
    """Law 55: publish, undo and redo of a summary switch the prompt back and forth.

    No other process may use the chat. A summary published by `compact` is undone.
    """
    before, active = prompt_of(chat), in_force(chat)
    compact()
    is_new = in_force(chat) != active
    row = get_active_summary(branch_of(chat).active_compaction)
    if row is None:
        return
    folded = prompt_of(chat)
    by: dict[str, Any] = {"user": chat.owner, "compaction": row, "now": timezone.now()}
    with suppress(undo.UndoDoesNotFit):
        undo.undo_summary(**by)
        if is_new and prompt_of(chat) != before:
            raise Violation("an undo does not bring the exact prompt back")
        for _ in range(2):
            undo.redo_summary(**by)
            if prompt_of(chat) != folded:
                raise Violation("a redo does not bring the exact prompt back")


class Seen:
    """Facts of a chat that one process saw and that must not change later."""

    def __init__(self) -> None:
        self.branches: dict[uuid.UUID, tuple[int, Any]] = {}
        self.said: dict[str, str] = {}
        self.receipts: set[Any] = set()

    def look(self, chat: Chat) -> None:
        """Check every invariant; originals must not change; a changed summary raises the revision.

        The last two are laws 15, 40 and 64.
        """
        assert_laws(chat, known=self.receipts)
        erased = Message.objects.filter(branch__chat=chat, erased_at__isnull=False)
        gone = {str(pk) for pk in erased.values_list("pk", flat=True)}
        for pk, digest in originals(chat).items():
            if self.said.setdefault(pk, digest) != digest and pk not in gone:
                raise Violation("an original changed")
        rows = Branch.objects.select_related("active_compaction__base").filter(chat=chat)
        for branch in rows:
            summary = get_active_summary(branch.active_compaction)
            now = (branch.context_revision, summary.pk if summary else None)
            revision, before = self.branches.get(branch.pk, now)
            if now[0] < revision or (now[0] == revision and now[1] != before):
                raise Violation("the summary changed without its revision, or that went back")
            self.branches[branch.pk] = now
