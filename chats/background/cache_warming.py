"""Cache warm-ups: the model server processes a changed prompt ahead of the next message.

A warm-up sends the prefix of the next prompt without a question, for one output token,
which is discarded. It runs once after each change, and once when a person starts typing
in an idle chat. It runs only where it costs nothing, and never while the server writes
a reply. Failed calls are neither retried nor reported. A running call is cancelled when
any turn of its server is accepted.
"""

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F, Max, Q

from chats.background import model_call
from chats.compaction import window
from chats.compaction.coverage import IN_THE_MAKING
from chats.compaction.publish import publish_prepared
from chats.ground import leases, queue
from chats.ground.background_lock import alone
from chats.ground.jobs import Job, JobLease, PacedRenewal
from chats.ground.leases import LeaseLost
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, Message, ProviderAccount, Receipt, Turn, WarmUp
from chats.models.turns import UNFINISHED
from chats.prompt import built_prompt, composition, follow_ups, model_choice
from chats.providers.base import ProviderRequest
from chats.providers.registry import ProviderAccountValue as Account
from chats.record import history, locking
from chats.turns import statements
from chats.turns.call_receipts import WORKER, close_call, store_receipt
from chats.turns.step_results import StepResult
from contextpolicy import ledger
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter

logger = logging.getLogger(__name__)

# `swap`: the prompt changed. `typing`: a person is typing. `ahead`: the next turn may change it.
Cause = Literal["swap", "typing", "ahead"]
# Seconds between retries while the server is busy, and the most retries.
AGAIN_AFTER = 2.0
MOST_TRIES = 15
# The maximum number of summary publications or window moves before the prompt is composed again.
ROUNDS = 3
WARM_UPS = Job(WarmUp, task=queue.WARM_UP, argument="branch_id")
RELEASED: dict[str, Any] = {"receipt": None, "worker": ""}


class ServerBusy(Exception):
    """The model's server is writing a reply or running another warm-up."""


@dataclass(frozen=True, slots=True)
class WarmCall:
    """A recorded warm-up call: its receipt, its lease, and the branch it was composed from."""

    branch: Branch
    receipt_id: uuid.UUID
    lease: JobLease[WarmUp]
    request: ProviderRequest
    account: Account


def request_warm_up(*, chat: Chat, now: datetime) -> bool:
    """Request a warm-up because a person starts typing. Returns True if one was requested.

    There is at most one per idle period of the chat, across all tabs, and none shortly
    after another warm-up.
    """
    idle_since = now - timedelta(seconds=settings.WARM_UP_REST_SECONDS)
    branch_id = chat.active_branch_id
    if branch_id is None or chat.updated_at > idle_since or is_answering(branch_id):
        return False
    if not can_warm_up_chat(chat):
        return False
    with transaction.atomic():
        WarmUp.objects.get_or_create(branch_id=branch_id)
        rows = WarmUp.objects.filter(Q(rest=None) | Q(rest__lt=chat.updated_at), pk=branch_id)
        rows = rows.filter(Q(warmed_at=None) | Q(warmed_at__lte=idle_since))
        if not rows.update(rest=chat.updated_at):
            return False
        queue.enqueue(queue.WARM_UP, branch_id=branch_id, cause="typing")
    return True


def can_warm_up_chat(chat: Chat) -> bool:
    """Return True if the chat's prompts may be warmed up now.

    A team's chat is never warmed up: its next agent and prompt depend on the next message.
    """
    if chat.team_id is not None:
        return False
    try:
        choice = model_choice.choose_chat_model(chat=chat)
        account = model_choice.get_model_account(choice.model)
    except Refusal:
        return False
    return follow_ups.can_warm_up_cache(choice, account=account)


def warm_up_branch(
    *,
    branch_id: uuid.UUID,
    cause: Cause,
    tries: int,
    counter: TokenCounter,
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> None:
    """Send the prefix of the branch's next prompt to the server, if that is still useful.

    Retries later while the server is busy. `is_closing` returns True while this process is shutting
    down.
    """
    try:
        with alone:
            call = prepare_warm_up(branch_id, cause=cause, counter=counter, now=clock())
    except ServerBusy:
        if tries < MOST_TRIES:
            queue.enqueue(
                queue.WARM_UP,
                countdown=AGAIN_AFTER,
                branch_id=branch_id,
                cause=cause,
                tries=tries + 1,
            )
        return
    if call is None:
        return
    try:
        _, ending = model_call.ask_background_model(
            call.request,
            account=call.account,
            seconds=settings.WARM_UP_SECONDS,
            is_wanted=StillWanted(call, is_closing).still,
            what=f"warm-up of {branch_id}",
        )
        close_warm_up(call, ending=ending, now=clock())
    except DatabaseError as error:
        logger.warning("warm-up of %s left to a due job: %s", branch_id, type(error).__name__)


def prepare_warm_up(
    branch_id: uuid.UUID, *, cause: Cause, counter: TokenCounter, now: datetime
) -> WarmCall | None:
    """Compose and record the call. None if it is unnecessary or not allowed.

    Runs the next turn's preparations first: publish a prepared summary, move the window. Raises
    `ServerBusy`.
    """
    has_changed = False
    for _ in range(ROUNDS):
        branch = find_idle_branch(branch_id)
        if branch is None or (cause == "swap" and is_warm(branch)):
            return None
        try:
            choice = model_choice.choose_chat_model(chat=branch.chat)
            account = model_choice.get_model_account(choice.model)
            of_team = branch.chat.team_id is not None
            if of_team or not follow_ups.can_warm_up_cache(choice, account=account):
                return None
            if is_server_busy(account.slug):
                raise ServerBusy
            # The need depends on the next question. Assume that it is as long as the last one.
            is_guess = cause == "ahead" and not has_changed
            prefix = composition.compose_prefix(
                branch=branch,
                choice=choice,
                counter=counter,
                expected=load_newest_question(branch, counter=counter) if is_guess else None,
            )
        except Refusal:
            # The author of the next message gets the refusal.
            return None
        if prepare_next_turn(branch, made=prefix, choice=choice, now=now):
            has_changed = True
            continue
        if not isinstance(prefix, built_prompt.Prompt) or (cause == "ahead" and not has_changed):
            return None
        return create_warm_up_call(branch, prompt=prefix, cause=cause, now=now)
    return None


def load_newest_question(branch: Branch, *, counter: TokenCounter) -> engine.Message | None:
    """Return the newest user message of the branch with its token count, or None."""
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
    messages = rows.filter(role=Message.Role.USER).order_by("-seq")[:1]
    return next(iter(history.load_all(messages, counter=counter)), None)


def find_idle_branch(branch_id: uuid.UUID) -> Branch | None:
    """Return the branch, or None if it cannot be warmed up.

    It must be the active branch of a chat that is not deleted, without an unfinished turn.
    """
    rows = Branch.objects.select_related("chat__model", "active_compaction__base", "parent")
    branch = rows.filter(pk=branch_id, chat__active_branch=F("pk"), chat__deleted_at=None).first()
    return None if branch is None or is_answering(branch_id) else branch


def prepare_next_turn(
    branch: Branch,
    *,
    made: built_prompt.Prompt | composition.WindowMoveRequired | None,
    choice: model_choice.ChosenModel,
    now: datetime,
) -> bool:
    """Do the work that the next turn would start with. Returns True if anything changed.

    Publishes a prepared summary, or moves the window. The window does not move while a summary is
    in progress or with the strategy `dynamic_summary`.
    """
    if isinstance(made, composition.WindowMoveRequired) or (
        made is not None and made.need.action == "swap"
    ):
        ready = branch.compactions.filter(status=Compaction.Status.PREPARED, needs_approval=False)
        if ready.exists() and publish_prepared(branch_id=branch.pk, now=now):
            return True
    if (
        not isinstance(made, composition.WindowMoveRequired)
        or choice.values.strategy == "dynamic_summary"
    ):
        return False
    if branch.compactions.filter(status__in=IN_THE_MAKING).exists():
        return False
    return window.move_window(branch_id=branch.pk, move=made, now=now) is not None


def build_swap_key(branch: Branch) -> str:
    """Return a key that changes with the branch's active compaction or context revision."""
    return f"{branch.active_compaction_id or ''}:{branch.context_revision}"


def is_warm(branch: Branch) -> bool:
    """Return True if the prefix of the branch's next prompt is already warmed up."""
    return WarmUp.objects.filter(pk=branch.pk, swap=build_swap_key(branch)).exists()


def is_answering(branch_id: uuid.UUID) -> bool:
    """Return True if the branch has an unfinished turn."""
    return Turn.objects.filter(branch=branch_id, status__in=UNFINISHED).exists()


def is_server_busy(provider: str) -> bool:
    """Return True if a server has an unfinished turn in any chat."""
    return bool(statements.BUSY_SERVER.tuples(provider=provider))


@transaction.atomic
def create_warm_up_call(
    branch: Branch, *, prompt: built_prompt.Prompt, cause: Cause, now: datetime
) -> WarmCall | None:
    """Write the receipt and the lease, with the ledger entry that commits to the call.

    The branch is checked again under the chat's lock. Without this check, an erasure that
    ran since the prompt was composed would miss the new receipt. None if the branch changed,
    is already warm, or its newest message has no turn. Raises `ServerBusy`.
    """
    try:
        locking.lock_chat(branch.chat_id)
    except Chat.DoesNotExist:
        return None
    current = find_idle_branch(branch.pk)
    if current is None or collect_branch_facts(current) != collect_branch_facts(branch):
        return None
    if cause == "swap" and is_warm(branch):
        return None
    turn = find_last_turn(branch)
    if turn is None:
        return None
    # Serialises the chats of a server.
    account = prompt.account
    list(ProviderAccount.objects.select_for_update(no_key=True).filter(slug=account.slug))
    running = WarmUp.objects.filter(leases.match_held_leases(), provider=account.slug)
    if is_server_busy(account.slug) or running.exists():
        raise ServerBusy
    receipt = store_receipt(
        prompt,
        turn=turn,
        step=Receipt.AFTERWARDS,
        call=number_warm_up_call(turn),
        model_name=prompt.request.model,
        now=now,
    )
    ledger.record_event(
        "context.warmed",
        actor=WORKER,
        now=now,
        chat_id=branch.chat_id,
        turn_id=turn.pk,
        data={
            "cause": cause,
            "model": prompt.request.model,
            "provider": account.slug,
            "prompt_tokens": prompt.prompt_tokens,
            "calls": [[str(receipt.pk), receipt.commitment]],
        },
    )
    WarmUp.objects.get_or_create(branch=branch)
    lease = WARM_UPS.claim(
        branch.pk,
        swap=build_swap_key(branch),
        receipt=receipt,
        provider=account.slug,
        worker=settings.WORKER_NAME,
    )
    if lease is None:
        raise ServerBusy
    return WarmCall(branch, receipt.pk, lease, prompt.request, account)


def collect_branch_facts(branch: Branch) -> tuple[uuid.UUID | None, int, int]:
    """Return the values that show whether the branch changed: compaction, revision, last seq."""
    return branch.active_compaction_id, branch.context_revision, branch.last_seq


def find_last_turn(branch: Branch) -> Turn | None:
    """Return the turn of the newest message on a branch, under which the call is recorded.

    None if the branch has no messages, or the newest one has no turn.
    """
    rows = history.select_path_messages(
        branch, after=branch.last_seq - 1, before=branch.last_seq + 1
    )
    newest: Message | None = rows.select_related("turn").first()
    return newest.turn if newest else None


def number_warm_up_call(turn: Turn) -> int:
    """Return the number of the turn's next warm-up call, starting at 1."""
    rows = Receipt.objects.filter(turn=turn, attempt=turn.attempt, step=Receipt.AFTERWARDS)
    rows = rows.filter(call__lt=Receipt.INFERRING)
    return cast(int, rows.aggregate(last=Max("call"))["last"] or 0) + 1


class StillWanted:
    """A check whether a running warm-up is still useful, which also renews its lease."""

    def __init__(self, call: WarmCall, is_closing: Callable[[], bool]) -> None:
        self.call = call
        self.is_closing = is_closing
        self.renew = PacedRenewal(call.lease)

    def still(self) -> bool:
        """Return True if the call is still useful.

        The call is useless if this process is shutting down, if a turn of this branch or server is
        unfinished, if the branch has changed, or if the lease was lost.
        """
        branch = self.call.branch
        if self.is_closing() or is_server_busy(self.call.account.slug) or is_answering(branch.pk):
            return False
        active, revision, last_seq = collect_branch_facts(branch)
        with suppress(LeaseLost):
            self.renew()
        return (
            self.call.lease.select_row()
            .filter(
                branch__active_compaction=active,
                branch__context_revision=revision,
                branch__last_seq=last_seq,
                branch__chat__deleted_at=None,
            )
            .exists()
        )


@transaction.atomic
def close_warm_up(call: WarmCall, *, ending: StepResult, now: datetime) -> None:
    """Complete the receipt and release the lease, unless `sweep_warm_ups` closed the call."""
    done = {"warmed_at": now} if ending.outcome == Receipt.Outcome.OK else {}
    if call.lease.release(**done, **RELEASED):
        close_call(receipt_id=call.receipt_id, ending=ending, now=now)


def sweep_warm_ups(*, now: datetime) -> int:
    """Close the warm-ups of dead workers, without repeating them. Returns the count."""
    dead = list(WarmUp.objects.filter(leases.match_expired_leases()))
    for row in dead:
        with transaction.atomic():
            mine = WARM_UPS.get_lease(row).select_row().filter(leases.match_expired_leases())
            if mine.update(**WARM_UPS.get_no_lease(), **RELEASED):
                model_call.close_lost_calls([row.receipt_id], now=now)
    return len(dead)
