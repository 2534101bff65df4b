"""Loads the rows of a thread page in a bounded number of queries."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils import timezone

from chats.actions.permissions import Locks, build_action_locks, lock_all_actions
from chats.compaction.report.request_status import RequestStatus, get_request_status
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import composition, model_choice, prompt_facts
from chats.prompt.next_prompt import Outlook, compose_next_prompt
from chats.prompt.tokenizer import get_page_counter
from chats.record.history import list_path_segments, select_path_messages
from chats.web.thread.facts import (
    BranchFacts,
    load_branch_facts,
    load_newest_turns,
    select_inactive_compactions,
)
from chats.web.thread.round_state import RoundState, round_state
from chats.web.thread.versions import MessageVersions, load_message_versions
from contextpolicy.engine.compose.partition import PartitionError
from contextpolicy.models import ModelSpec

# Each message takes some milliseconds, which is most of the time to open a chat.
PAGE = 30
# Omission reasons shown by a message or its compaction marker, not in the prompt's notice.
SHOWN_ELSEWHERE = {"covered", "excluded", "incomplete"}
LeftOut = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of the path that the active compaction covers.

    `unused`: the published summary and window that the current policy does not use.
    """

    active: Compaction | None
    summary: Compaction | None
    to_seq: int
    window_to: int
    unused: Sequence[Compaction] = ()


@dataclass(frozen=True, slots=True)
class BranchUnderPolicy:
    """A branch under the current policy: coverage, and locks on actions."""

    branch: Branch
    cover: Coverage
    locks: Locks
    policy_label: str
    # The next prompt as it would be composed now; None if the policy allows no prompt.
    outlook: Outlook | None
    facts: BranchFacts
    turns: Sequence[Turn]

    @property
    def choice(self) -> model_choice.ChosenModel | None:
        """The chosen model and policy; None if the policy allows no prompt."""
        return self.outlook.choice if self.outlook else None


@dataclass(slots=True)
class ThreadRows:
    """The rows of one page, and how the next prompt would send them."""

    chat_id: uuid.UUID
    messages: list[Message]
    waiting: list[Message]
    turns: list[Turn]
    last_turn: Turn | None
    last_finished: Turn | None
    inactive: list[Compaction]
    outlook: Outlook | None
    has_earlier: bool
    covered_tokens: int | None
    versions: dict[uuid.UUID, MessageVersions]
    is_paused: bool
    answer: RequestStatus | None
    # Digests of compaction markers and of omissions, and the path, separated by dots: see
    # `compute_thread_state`.
    state: str

    @property
    def running(self) -> list[Turn]:
        """The running turn, or else the next turn.

        If replies of a round run in parallel, all of its unfinished turns.
        """
        unfinished = [turn for turn in self.turns if not turn.is_over]
        running = [turn for turn in unfinished if turn.status == Turn.Status.RUNNING]
        first = next(iter(running or unfinished), None)
        if first is None or not first.lane:
            return [first] if first else []
        return [turn for turn in unfinished if turn.lane and turn.round_id == first.round_id]


def load_active_branch(chat: Chat) -> Branch:
    if chat.active_branch_id is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    rows = Branch.objects.select_related("parent", "active_compaction__base")
    branch = rows.get(pk=chat.active_branch_id)
    branch.chat = chat
    return branch


def select_chat_compactions(chat: Chat) -> QuerySet[Compaction]:
    """Return every compaction of a chat, on any branch."""
    return Compaction.objects.filter(branch__chat=chat)


def load_branch_under_policy(
    *, chat: Chat, user: User, branch: Branch | None = None, default: ModelSpec | None = None
) -> BranchUnderPolicy:
    """Return the chat's active branch under its policy.

    If the policy is unusable, the stored coverage is returned and all actions are locked.

    Turns are read before messages, because each query sees its own snapshot. A turn that ends
    between the two queries appears as running next to its reply, and the page soon receives an
    update. In the other order the turn would appear as finished without a reply, and no update
    would follow. `branch`: the chat's branch, just read. `default`: the model of chats without a
    chosen one.
    """
    branch = branch or load_active_branch(chat)
    turns = load_newest_turns(branch)
    facts = load_branch_facts(branch)
    branch.last_seq = facts.last_seq
    try:
        choice = model_choice.choose_chat_model(chat=chat, default=default)
        locks = build_action_locks(branch, user=user, choice=choice, pinned=facts.pinned_tokens)
    except Refusal as refusal:
        cover, locks = build_coverage(branch.active_compaction), lock_all_actions(refusal.localized)
        return BranchUnderPolicy(branch, cover, locks, "", None, facts, turns)
    cover, outlook = (
        build_policy_coverage(branch, choice=choice),
        find_branch_outlook(
            branch, choice=choice, publishes=facts.making == Compaction.Status.PREPARED
        ),
    )
    return BranchUnderPolicy(branch, cover, locks, choice.effective.label, outlook, facts, turns)


def build_policy_coverage(branch: Branch, *, choice: model_choice.ChosenModel) -> Coverage:
    """Return the summary and window of a branch, and whether its policy uses them."""
    active = branch.active_compaction
    return build_coverage(
        prompt_facts.usable_compaction(active, values=choice.values), branch_active=active
    )


def find_branch_outlook(
    branch: Branch, *, choice: model_choice.ChosenModel, publishes: bool
) -> Outlook | None:
    """Compose the next prompt of a branch; None if it would be refused.

    Also None if a flag changed between the queries. The next poll then shows the change.
    `publishes`: whether the branch has a summary that the prompt may publish.
    """
    try:
        return compose_next_prompt(
            branch,
            choice=choice,
            now=timezone.now(),
            counter=get_page_counter(),
            publishes=publishes,
        )
    except (composition.PromptRefused, model_choice.ModelNotAllowed, PartitionError):
        return None


def build_coverage(
    active: Compaction | None, *, branch_active: Compaction | None = None
) -> Coverage:
    """Return the coverage of `active`, the compaction that the policy uses.

    `branch_active`: the branch's active compaction. If the policy does not use it, it is listed
    as unused.
    """
    if active is None and branch_active is not None:
        rows = {row.pk: row for row in (branch_active.base, branch_active) if row}
        return Coverage(None, None, to_seq=0, window_to=0, unused=list(rows.values()))
    is_window = active is not None and active.kind == Compaction.Kind.WINDOW
    summary = active.base if active and is_window else active
    return Coverage(
        active=active,
        summary=summary,
        to_seq=summary.to_seq if summary else 0,
        window_to=active.to_seq if active and is_window else 0,
    )


def load_thread_rows(
    ground: BranchUnderPolicy, *, after: int, before: int | None, most: int = PAGE
) -> ThreadRows:
    """Load the newest `most` messages with `after` < seq < `before` and their related rows.

    A waiting message that joins the path during loading may appear twice, but is never missing.
    """
    branch, cover, newest = ground.branch, ground.cover, before is None
    turns = Turn.objects.exclude(status=Turn.Status.ABSORBED).select_related("continues")
    own, waiting = ground.turns, []
    unfinished = [turn for turn in own if turn.status in UNFINISHED] if newest else []
    if newest and ground.facts.has_waiting:
        waiting = list(branch.messages.filter(seq=None).order_by("accepted"))
        branch.refresh_from_db(fields=["last_seq"])
    end = branch.last_seq + 1 if before is None else before
    path = (
        select_path_messages(branch, after=after, before=end)
        .select_related("turn")
        .order_by("-seq")
    )
    page = list(path[: most + 1])
    has_earlier = len(page) > most
    messages = page[:most][::-1]
    if cover.summary is not None and after == cover.to_seq and not has_earlier:
        messages = load_sent_covered_messages(ground) + messages
    taken_up = {message.pk for message in messages}
    waiting = [message for message in waiting if message.pk not in taken_up]
    ids = [message.pk for message in (*messages, *waiting)]
    # The same message may also have a reply on another branch.
    on_this_path = turns.filter(branch__in=[part.branch_id for part in list_path_segments(branch)])
    of_page = Q(trigger__in=ids) | Q(continues__reply__in=ids)
    if branch.chat.team_id is not None and messages:
        # The message that started a round may be on an earlier page than a failed reply.
        of_page |= Q(agent__isnull=False, seen_to__gte=messages[0].seq, seen_to__lt=end)
    caused = on_this_path.filter(of_page)
    inactive = load_newest_inactive(branch) if ground.facts.has_inactive else []
    answer = get_request_status(branch, now=timezone.now())
    state = compute_thread_state(branch, cover=cover, inactive=inactive, answer=answer)
    return ThreadRows(
        chat_id=branch.chat_id,
        messages=messages,
        waiting=waiting,
        turns=deduplicate_turns([*unfinished, *caused]),
        last_turn=own[0] if own else None,
        last_finished=next((turn for turn in own if turn.finished_at), None),
        inactive=inactive,
        outlook=ground.outlook,
        has_earlier=has_earlier,
        covered_tokens=ground.facts.covered_tokens if cover.summary else None,
        versions=load_message_versions(branch, messages) if ground.facts.branches > 1 else {},
        is_paused=branch.compaction_paused,
        answer=answer,
        state=f"{state}.{hash_facts(*list_omitted_ranges(ground.outlook))}.{get_path_id(branch)}",
    )


def deduplicate_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Return each turn once, as first loaded, in order of acceptance."""
    found: dict[uuid.UUID, Turn] = {}
    for turn in turns:
        found.setdefault(turn.pk, turn)
    return sorted(found.values(), key=lambda turn: turn.accepted)


def load_sent_covered_messages(ground: BranchUnderPolicy) -> list[Message]:
    """Return the covered messages that are still sent individually; they stay visible."""
    if ground.outlook is None:
        return []
    seqs = [seq for seq in ground.outlook.segments if seq <= ground.cover.to_seq]
    if not seqs:
        return []
    rows = select_path_messages(ground.branch, after=0, before=ground.cover.to_seq + 1).filter(
        seq__in=seqs
    )
    return list(rows.select_related("turn").order_by("seq"))


def load_newest_inactive(branch: Branch) -> list[Compaction]:
    """Return the newest inactive compaction if it is newer than the active one."""
    return list(select_inactive_compactions(branch).order_by("-created_at")[:1])


def list_omitted_ranges(outlook: Outlook | None) -> list[LeftOut]:
    """Return the ranges that the next prompt omits for reasons not shown elsewhere."""
    if outlook is None:
        return []
    return [
        (out.from_seq, out.to_seq, out.reason)
        for out in outlook.sent.left_out
        if out.reason not in SHOWN_ELSEWHERE
    ]


def compute_thread_state(
    branch: Branch, *, cover: Coverage, inactive: Sequence[Compaction], answer: RequestStatus | None
) -> str:
    """Return a digest of the branch, its messages' marks, and everything that affects its markers.

    A page with another digest is out of date.
    """
    return hash_facts(
        [
            str(branch.pk),
            str(branch.active_compaction_id),
            bool(cover.unused),
            branch.context_revision,
            branch.marks_revision,
        ],
        [answer.state, answer.reason, answer.is_late] if answer else [],
        [[str(row.pk), row.status] for row in inactive],
        [branch.compaction_paused, str(branch.asked_at), str(branch.breaker_reset_at)],
    )


def get_path_id(branch: Branch) -> str:
    """Return an identifier of a path through a chat, to whose end messages are only added."""
    return branch.pk.hex[:8]


def hash_facts(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Now:
    """The current state of a thread, with which a page checks whether it is out of date.

    `turn` as in `format_turn_state`.
    """

    state: str
    turn: str


def load_current_state(branch: Branch) -> Now:
    """Return the current state of the thread and of its newest turn, without loading messages."""
    answer, inactive = get_request_status(branch, now=timezone.now()), load_newest_inactive(branch)
    turns = Turn.objects.filter(branch=branch).exclude(status=Turn.Status.ABSORBED)
    turn = turns.only("status").order_by("-accepted").first()
    return Now(
        state=compute_thread_state(
            branch, cover=present_cover(branch), inactive=inactive, answer=answer
        ),
        turn=format_turn_state(turn, round_state(branch.chat)),
    )


def format_turn_state(turn: Turn | None, team_round: RoundState | None) -> str:
    """Return the last turn, its status and its team's round as one string.

    The string is empty if there is no turn.
    """
    if turn is None:
        return ""
    hops = [f"{team_round.status}{team_round.hops}"] if team_round else []
    return ".".join([str(turn.pk), turn.status, *hops])


def present_cover(branch: Branch) -> Coverage:
    """Return the summary and window of a branch.

    The policy is resolved only if the branch has a summary or a window.
    """
    active = branch.active_compaction
    if active is not None:
        with suppress(Refusal):
            return build_policy_coverage(
                branch, choice=model_choice.choose_chat_model(chat=branch.chat)
            )
    return build_coverage(active)
