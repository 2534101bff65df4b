"""The message box and the context meter."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.translation import gettext

from chats.actions import lifecycle, marks, retention_rules
from chats.actions.lifecycle import OfferedModel
from chats.actions.marks import PinRoom
from chats.compaction import pauses
from chats.compaction.report import skip_reasons
from chats.ground.refusals import Refusal
from chats.models import Chat, Compaction
from chats.prompt import model_choice
from chats.prompt.composition import PromptRefused
from chats.prompt.meter import Draft
from chats.prompt.meter import build_meter as meter_of
from chats.prompt.model_choice import ChosenModel
from chats.teams import play
from chats.teams.ahead import list_active_agents
from chats.teams.play import Seat
from chats.turns.roster import Roster
from chats.web.state.page import StateView, build_state_view
from chats.web.thread.ahead import AheadWords, build_next_message_preview
from chats.web.thread.attachments import Attachment, load_attachments
from chats.web.thread.facts import load_newest_turns
from chats.web.thread.message_forms import MessageForm
from chats.web.thread.rows import load_active_branch
from chats.web.thread.thread import ThreadPage
from chats.web.words import abbreviate_number, format_number
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.ladder import Breaker
from contextpolicy.engine.team.team_view import EVERYBODY
from contextpolicy.models import ModelSpec

# Gap between the bar's parts, in percent of its width.
GAP = 0.35


# An `@` mention: name, description, and team ID if several teams can be chosen.
Mention = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Composer:
    """The message box of an existing chat, or of a new chat that its first message creates."""

    chat: Chat | None
    models: Sequence[OfferedModel]
    limit: int
    is_replying: bool
    # Idempotency key sent with the message.
    key: str
    text: str = ""
    refusal: Refusal | None = None
    # The team that replies in the chat.
    roster: Roster | None = None
    # Mentions of the teams that can be chosen for a new chat.
    team_names: Sequence[Mention] = ()
    # The files of a refused message.
    attachments: Sequence[Attachment] = ()
    # The role of the refused message; None: no message was refused.
    sent_role: str | None = None
    # The refused message sends its unread files by name only.
    unread: bool = False

    @property
    def file_bytes(self) -> int:
        """Maximum size of a file in bytes."""
        return int(settings.FILE_BYTES)

    @property
    def takes_files(self) -> bool:
        """True if the user can attach files."""
        return bool(settings.FILE_UPLOADS)

    @property
    def has_unread(self) -> bool:
        """True if the message was refused because a file is not read yet, or could not be read.

        Stays true for the next attempts of a message that accepts unread files.
        """
        if self.unread:
            return True
        return self.refusal is not None and self.refusal.code in {"file_not_ready", "file_not_read"}

    @property
    def model(self) -> OfferedModel | None:
        return next((choice for choice in self.models if choice.current), None)

    @property
    def seats(self) -> Sequence[Seat]:
        """The human roles of the team, in whose names the chat's owner can answer."""
        if self.chat is None or self.roster is None:
            return ()
        return play.list_seats(self.chat, roster=self.roster)

    @property
    def seat(self) -> str:
        """The selected role: of the refused message, else the one that a round waits for."""
        if self.sent_role is not None:
            return self.sent_role
        return next((seat.role_id for seat in self.seats if seat.is_waited_for), "")

    @property
    def mentions(self) -> Sequence[Mention]:
        """Names that can follow `@` in a message, with descriptions.

        In a new chat, these are the names of every available team, each with its team ID.
        """
        if self.roster is None:
            return self.team_names
        names = [agent.name for agent in list_active_agents(self.roster)]
        everybody = (EVERYBODY, gettext("every agent"), "")
        return [*((name, "", "") for name in names), everybody] if names else ()

    @property
    def idle_from(self) -> int | None:
        """Unix time in ms after which typing starts a cache warm-up. None: no warm-up."""
        if self.chat is None or self.model is None or not self.model.warms_up:
            return None
        rest = timedelta(seconds=settings.WARM_UP_REST_SECONDS)
        return int((self.chat.updated_at + rest).timestamp() * 1000)

    @property
    def length(self) -> str:
        return format_number(len(self.text))

    @property
    def limit_words(self) -> str:
        return format_number(self.limit)


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of the bar: position and width in percent."""

    key: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class MeterRow:
    """A line of the context breakdown: label, tokens and an explanation."""

    key: str
    label: str
    tokens: str
    why: str


@dataclass(frozen=True, slots=True)
class MeterView:
    """The context meter, or the reason why the next prompt is unknown."""

    chat: Chat
    problem: str = ""
    problem_code: str = ""
    # True if the problem is the message that is being written.
    is_too_large: bool = False
    text: str = ""
    of_all: str = ""
    next_compaction: str = ""
    policy_label: str = ""
    bar: Sequence[BarPart] = ()
    reserve: BarPart | None = None
    rows: Sequence[MeterRow] = ()
    approximate: bool = False
    system_hidden: bool = False
    state: StateView | None = None
    limit: int = 0
    writes_summaries: bool = False
    # Messages older than this many days are erased. None: never.
    erased_after: int | None = None
    # State of compaction on the branch; see `load_compaction_status`.
    is_paused: bool = False
    paused_at: datetime | None = None
    is_asked: bool = False
    rest: Breaker | None = None
    outcome: str = ""
    pins: str = ""
    # Cost preview in a chat with a team.
    ahead: AheadWords | None = None
    # See `chats.prompt.meter.Meter`.
    missed_search: str = ""


def build_composer(
    *,
    user: User,
    chat: Chat | None,
    limit: int,
    is_replying: bool = False,
    sent: MessageForm | None = None,
    choice: ChosenModel | None = None,
    models: Sequence[ModelSpec] | None = None,
    team_names: Sequence[Mention] = (),
) -> Composer:
    """Return the message box with a new idempotency key, and with the refused message `sent`.

    `choice` and `models` are described in `list_offered_models`.
    """
    values = sent.read_values() if sent else {}
    wanted = values.get("model", "")
    return Composer(
        chat=chat,
        models=list_offered_models(
            user=user, chat=chat, choice=choice, models=models, wanted=wanted
        ),
        limit=limit,
        is_replying=is_replying,
        key=uuid.uuid4().hex,
        text=values.get("text", ""),
        refusal=sent.refusal if sent else None,
        roster=play.find_roster(chat) if chat else None,
        team_names=team_names,
        attachments=load_attachments(user, values["files"]) if sent else (),
        sent_role=values.get("as"),
        unread=values.get("unread", False),
    )


def list_offered_models(
    *,
    user: User,
    chat: Chat | None,
    choice: ChosenModel | None = None,
    models: Sequence[ModelSpec] | None = None,
    wanted: str = "",
) -> Sequence[OfferedModel]:
    """Return the entries of the model picker; empty if the policy works with no model."""
    try:
        return lifecycle.build_model_choices(
            chat=chat, user=user, choice=choice, models=models, wanted=wanted
        )
    except model_choice.PolicyRefused:
        return ()


def build_meter_view(
    *, chat: Chat, thread: ThreadPage | None = None, draft: Draft | None = None
) -> MeterView:
    """Return the meter of a chat. A refusal becomes its `problem` text, so the page still renders.

    `thread`: passed if already loaded, to save queries. `draft`: the message that is being written.
    """
    ground = thread.ground if thread else None
    try:
        meter = meter_of(
            chat=chat,
            now=timezone.now(),
            outlook=ground.outlook if ground else None,
            branch=ground.branch if ground else None,
            making=ground.facts.making if ground else None,
            draft=draft,
        )
    except Refusal as refusal:
        return MeterView(
            chat=chat,
            problem=refusal.localized,
            problem_code=refusal.code,
            is_too_large=isinstance(refusal, PromptRefused) and refusal.is_question_too_large,
            limit=PolicyValues().input_length_limit,
        )
    about = "≈ " if meter.approximate else ""
    size = gettext("{used} of {limit} tokens")
    resting = load_compaction_status(chat, thread=thread) if meter.writes_summaries else {}
    return MeterView(
        chat=chat,
        text=size.format(
            used=f"{about}{abbreviate_number(meter.used)}",
            limit=abbreviate_number(meter.prompt_limit),
        ),
        of_all=size.format(
            used=f"{about}{format_number(meter.used)}", limit=format_number(meter.token_budget)
        ),
        next_compaction=meter.next_compaction,
        policy_label=meter.policy_label,
        bar=build_bar_parts(
            [(p.key, p.tokens) for p in meter.parts if p.key not in {"free", "reserve"}],
            whole=meter.token_budget,
        ),
        reserve=reserve_part(meter.reserve, whole=meter.token_budget),
        rows=[MeterRow(p.key, p.label, format_number(p.tokens), p.why) for p in meter.parts],
        approximate=meter.approximate,
        system_hidden=meter.system_hidden,
        state=build_state_view(meter.kept) if meter.kept else None,
        limit=meter.limit,
        writes_summaries=meter.writes_summaries,
        erased_after=retention_rules.find_retention_days(chat) if meter.limits_age else None,
        pins=describe_pin_usage(chat, room=thread.locks.pins if thread else None),
        ahead=build_next_message_preview(chat, outlook=meter.outlook) if chat.team_id else None,
        missed_search=meter.missed_search,
        **resting,
    )


def load_compaction_status(chat: Chat, *, thread: ThreadPage | None) -> dict[str, Any]:
    """Return pauses, a pending request and the last outcome of compaction on the chat's branch."""
    if thread is not None:
        branch, newest = thread.ground.branch, thread.ground.facts.attempt
        last = thread.last_finished
    else:
        branch = load_active_branch(chat)
        newest = pauses.list_counted_attempts(branch).values_list("status", flat=True).first()
        last = next((turn for turn in load_newest_turns(branch) if turn.finished_at), None)
    rest = None
    if newest in {Compaction.Status.REJECTED, Compaction.Status.FAILED}:
        choice = model_choice.choose_chat_model(chat=chat)
        rest = pauses.load_branch_breaker(branch, choice=choice, now=timezone.now())
    return {
        "is_paused": branch.compaction_paused,
        "paused_at": branch.paused_at,
        "is_asked": branch.asked_at is not None,
        "rest": rest,
        "outcome": skip_reasons.explain_skipped_compaction(last).sentence
        if last and last.compaction_outcome
        else "",
    }


def describe_pin_usage(chat: Chat, *, room: PinRoom | None) -> str:
    """Return a sentence about the size of the pinned messages; empty if nothing is pinned."""
    room = room or marks.load_pin_room(chat=chat)
    if not room.used:
        return ""
    words = gettext("Pins use {used} of {limit} tokens.")
    return words.format(used=format_number(room.used), limit=format_number(room.limit))


def build_bar_parts(sizes: Sequence[tuple[str, int]], *, whole: int) -> list[BarPart]:
    """Return adjacent parts of the bar, in percent of the whole."""
    parts: list[BarPart] = []
    x = 0.0
    for key, tokens in sizes:
        width = 100 * tokens / max(whole, 1)
        if tokens:
            parts.append(BarPart(key, f"{x:.2f}%", f"{max(width, 0.4):.2f}%"))
            x += max(width, 0.4) + GAP
    return parts


def reserve_part(tokens: int, *, whole: int) -> BarPart | None:
    width = 100 * tokens / max(whole, 1)
    return BarPart("reserve", f"{100 - width:.2f}%", f"{width:.2f}%") if tokens else None
