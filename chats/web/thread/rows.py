"""The rows behind one page of a thread, in a bounded number of queries."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils import timezone

from chats.actions.locks import Locks, all_locked, locks_on
from chats.compaction.report.request_status import RequestStatus, status_on
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import composition, model_choice
from chats.prompt.outlook import Outlook, outlook_on
from chats.record.history import on_path, segments
from chats.web.thread.facts import BranchFacts, facts_on, newest_turns, told_rows
from chats.web.thread.round_state import RoundState, round_state
from chats.web.thread.versions import MessageVersions, versions_of
from contextpolicy.engine.partition import PartitionError
from contextpolicy.models import ModelSpec

# Messages are most of the cost of opening a chat, some milliseconds each.
PAGE = 30
# Reasons that a message's own row or its compaction marker says; every other is one of the prompt.
TOLD_ELSEWHERE = {"covered", "excluded", "incomplete"}
LeftOut = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of the path that the compaction in force stands for.

    `unused`: the summary and the window in force that the present policy makes no use of.
    """

    active: Compaction | None
    summary: Compaction | None
    to_seq: int
    window_to: int
    unused: Sequence[Compaction] = ()


@dataclass(frozen=True, slots=True)
class BranchUnderPolicy:
    """A branch under the policy that applies now: what covers it, and what a person may do."""

    branch: Branch
    cover: Coverage
    locks: Locks
    policy_label: str
    # The prompt of the next message; None where the policy lets nothing be sent.
    outlook: Outlook | None
    facts: BranchFacts
    turns: Sequence[Turn]

    @property
    def choice(self) -> model_choice.ChosenModel | None:
        """The model and the policy, as far as they let something be sent."""
        return self.outlook.choice if self.outlook else None


@dataclass(slots=True)
class ThreadRows:
    """The rows of one page, and what the next message would send of them."""

    chat_id: uuid.UUID
    messages: list[Message]
    waiting: list[Message]
    turns: list[Turn]
    last_turn: Turn | None
    last_finished: Turn | None
    told: list[Compaction]
    outlook: Outlook | None
    has_earlier: bool
    folded_tokens: int | None
    versions: dict[uuid.UUID, MessageVersions]
    is_paused: bool
    answer: RequestStatus | None
    # A digest of the compaction markers, one of what is left out, and the path, with points
    # between: see `state_of`.
    state: str

    @property
    def running(self) -> list[Turn]:
        """The turns that are being worked on, else the one that is next; several in lanes."""
        unfinished = [turn for turn in self.turns if not turn.is_over]
        running = [turn for turn in unfinished if turn.status == Turn.Status.RUNNING]
        first = next(iter(running or unfinished), None)
        if first is None or not first.lane:
            return [first] if first else []
        return [turn for turn in unfinished if turn.lane and turn.round_id == first.round_id]


def branch_of(chat: Chat) -> Branch:
    """Return the chat's active branch with the compaction in force."""
    if chat.active_branch_id is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    rows = Branch.objects.select_related("parent", "active_compaction__base")
    branch = rows.get(pk=chat.active_branch_id)
    branch.chat = chat
    return branch


def compactions_of(chat: Chat) -> QuerySet[Compaction]:
    """Return every compaction of a chat, on whatever branch it was made."""
    return Compaction.objects.filter(branch__chat=chat)


def ground_of(
    *, chat: Chat, user: User, branch: Branch | None = None, default: ModelSpec | None = None
) -> BranchUnderPolicy:
    """Return the chat's active branch under its policy; one that cannot be used changes no cover.

    Turns are read before messages, because each query sees its own moment. A turn that ends
    meanwhile is shown as running beside its reply, and the page hears at once that it is over; the
    other way round it would be over without a reply, and nobody would tell the page. `branch`: that
    of the chat, read just now; `default`: the model of chats that chose none.
    """
    branch = branch or branch_of(chat)
    turns = newest_turns(branch)
    facts = facts_on(branch)
    branch.last_seq = facts.last_seq
    try:
        choice = model_choice.choose(chat=chat, default=default)
        locks = locks_on(branch, user=user, choice=choice, pinned=facts.pinned_tokens)
    except Refusal as refusal:
        cover, locks = covered_by(branch.active_compaction), all_locked(str(refusal))
        return BranchUnderPolicy(branch, cover, locks, "", None, facts, turns)
    cover, outlook = cover_of(branch, choice=choice), seen_from(branch, choice=choice)
    return BranchUnderPolicy(branch, cover, locks, choice.effective.label, outlook, facts, turns)


def cover_of(branch: Branch, *, choice: model_choice.ChosenModel) -> Coverage:
    """Return the summary and the window on a branch, as far as its policy makes use of them."""
    active = branch.active_compaction
    return covered_by(composition.governing(active, values=choice.values), in_force=active)


def seen_from(branch: Branch, *, choice: model_choice.ChosenModel) -> Outlook | None:
    """Return what the next message would send on a branch; None where it would be refused.

    None too where a mark was set between two of its queries: the next poll of the page sees it.
    """
    try:
        return outlook_on(branch, choice=choice, now=timezone.now())
    except (composition.PromptRefused, PartitionError):
        return None


def covered_by(active: Compaction | None, *, in_force: Compaction | None = None) -> Coverage:
    """Return what a compaction stands for; another one that is `in_force` is not used."""
    if active is None and in_force is not None:
        rows = {row.pk: row for row in (in_force.base, in_force) if row}
        return Coverage(None, None, to_seq=0, window_to=0, unused=list(rows.values()))
    is_window = active is not None and active.kind == Compaction.Kind.WINDOW
    summary = active.base if active and is_window else active
    return Coverage(
        active=active,
        summary=summary,
        to_seq=summary.to_seq if summary else 0,
        window_to=active.to_seq if active and is_window else 0,
    )


def load(
    ground: BranchUnderPolicy, *, after: int, before: int | None, most: int = PAGE
) -> ThreadRows:
    """Load the newest `most` messages with `after` < seq < `before`, and what belongs to them.

    A message that is taken up meanwhile may be found twice, but is never missing.
    """
    branch, cover, newest = ground.branch, ground.cover, before is None
    turns = Turn.objects.exclude(status=Turn.Status.ABSORBED).select_related("continues")
    own, waiting = ground.turns, []
    unfinished = [turn for turn in own if turn.status in UNFINISHED] if newest else []
    if newest and ground.facts.has_waiting:
        waiting = list(branch.messages.filter(seq=None).order_by("accepted"))
        branch.refresh_from_db(fields=["last_seq"])
    end = branch.last_seq + 1 if before is None else before
    path = on_path(branch, after=after, before=end).select_related("turn").order_by("-seq")
    page = list(path[: most + 1])
    has_earlier = len(page) > most
    messages = page[:most][::-1]
    if cover.summary is not None and after == cover.to_seq and not has_earlier:
        messages = sent_under(ground) + messages
    taken_up = {message.pk for message in messages}
    waiting = [message for message in waiting if message.pk not in taken_up]
    ids = [message.pk for message in (*messages, *waiting)]
    # The same message may have a reply on another branch too.
    on_this_path = turns.filter(branch__in=[part.branch_id for part in segments(branch)])
    of_page = Q(trigger__in=ids) | Q(continues__reply__in=ids)
    if branch.chat.team_id is not None and messages:
        # The message that began a round may stand on an earlier page than a failed reply.
        of_page |= Q(agent__isnull=False, seen_to__gte=messages[0].seq, seen_to__lt=end)
    caused = on_this_path.filter(of_page)
    told = told_compactions(branch) if ground.facts.has_told else []
    answer = status_on(branch, now=timezone.now())
    state = state_of(branch, cover=cover, told=told, answer=answer)
    return ThreadRows(
        chat_id=branch.chat_id,
        messages=messages,
        waiting=waiting,
        turns=first_read([*unfinished, *caused]),
        last_turn=own[0] if own else None,
        last_finished=next((turn for turn in own if turn.finished_at), None),
        told=told,
        outlook=ground.outlook,
        has_earlier=has_earlier,
        folded_tokens=ground.facts.folded_tokens if cover.summary else None,
        versions=versions_of(branch, messages) if ground.facts.branches > 1 else {},
        is_paused=branch.compaction_paused,
        answer=answer,
        state=f"{state}.{digest(*left_out_of_prompt(ground.outlook))}.{path_of(branch)}",
    )


def first_read(turns: Sequence[Turn]) -> list[Turn]:
    """Return each turn once, as it was read first, in the order of acceptance."""
    found: dict[uuid.UUID, Turn] = {}
    for turn in turns:
        found.setdefault(turn.pk, turn)
    return sorted(found.values(), key=lambda turn: turn.accepted)


def sent_under(ground: BranchUnderPolicy) -> list[Message]:
    """Return the messages in the summary's range that are sent themselves: they stay in sight."""
    if ground.outlook is None:
        return []
    seqs = [seq for seq in ground.outlook.segments if seq <= ground.cover.to_seq]
    if not seqs:
        return []
    rows = on_path(ground.branch, after=0, before=ground.cover.to_seq + 1).filter(seq__in=seqs)
    return list(rows.select_related("turn").order_by("seq"))


def told_compactions(branch: Branch) -> list[Compaction]:
    """Return the newest compaction that is not in force, if it is newer than the one that is."""
    return list(told_rows(branch).order_by("-created_at")[:1])


def left_out_of_prompt(outlook: Outlook | None) -> list[LeftOut]:
    """Return the ranges that the next prompt leaves out for a reason of its own."""
    if outlook is None:
        return []
    return [
        (out.from_seq, out.to_seq, out.reason)
        for out in outlook.sent.left_out
        if out.reason not in TOLD_ELSEWHERE
    ]


def state_of(
    branch: Branch, *, cover: Coverage, told: Sequence[Compaction], answer: RequestStatus | None
) -> str:
    """Return a digest of the branch and of everything that decides its compaction markers.

    A page with another one is out of date.
    """
    return digest(
        [
            str(branch.pk),
            str(branch.active_compaction_id),
            bool(cover.unused),
            branch.context_revision,
        ],
        [answer.state, answer.reason, answer.is_late] if answer else [],
        [[str(row.pk), row.status] for row in told],
        [branch.compaction_paused, str(branch.asked_at), str(branch.breaker_reset_at)],
    )


def path_of(branch: Branch) -> str:
    """Return what names a path through a chat; messages are only ever added at its end."""
    return branch.pk.hex[:8]


def digest(*facts: object) -> str:
    """Return a short digest that differs when the facts do."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Now:
    """The present state, for a page that only asks whether it is out of date.

    `turn` as in `turn_state`.
    """

    state: str
    turn: str


def now_on(branch: Branch) -> Now:
    """Return the state of compaction markers at this moment, without any message."""
    answer, told = status_on(branch, now=timezone.now()), told_compactions(branch)
    turns = Turn.objects.filter(branch=branch).exclude(status=Turn.Status.ABSORBED)
    turn = turns.only("status").order_by("-accepted").first()
    return Now(
        state=state_of(branch, cover=present_cover(branch), told=told, answer=answer),
        turn=turn_state(turn, round_state(branch.chat)),
    )


def turn_state(turn: Turn | None, team_round: RoundState | None) -> str:
    """Return which turn is the last one, how it stands, and its team's round; empty without one."""
    if turn is None:
        return ""
    hops = [f"{team_round.status}{team_round.hops}"] if team_round else []
    return ".".join([str(turn.pk), turn.status, *hops])


def present_cover(branch: Branch) -> Coverage:
    """Return the summary and the window on a branch.

    The policy is asked for only if there are any.
    """
    active = branch.active_compaction
    if active is not None:
        with suppress(Refusal):
            return cover_of(branch, choice=model_choice.choose(chat=branch.chat))
    return covered_by(active)
