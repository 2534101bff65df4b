"""A team's chat, the actions of people and workers in it, and the checks of its invariants.

Django must be set up first; `round_kills` does that.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from chats.actions import lifecycle
from chats.actions.branching import regenerate_reply
from chats.background import due_jobs
from chats.models import Agent, Branch, Chat, Message, Round, Team, TeamVersion, Turn
from chats.models.turns import UNFINISHED
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.record import locking
from chats.teams import play
from chats.turns import attempt, tool_steps
from chats.turns.follow_up_turns import retry_turn
from chats.turns.start import start_turn
from chats.turns.stop import stop_all
from contextpolicy import ledger
from contextpolicy.engine.team import rounds as engine
from contextpolicy.models import AuditEvent
from tests.faults import town
from tests.faults.laws import Violation, assert_committed, assert_complete, originals
from tests.faults.naive import put
from tests.faults.round_laws import (
    PLACE_EVERY,
    UNBEGUN_SECONDS,
    assert_lanes,
    assert_one_waits,
    assert_questions_seen,
    assert_same_prompts,
)
from tests.faults.round_play import (
    FOREVER,
    INPUT,
    MEMBERS,
    NAMES,
    OUTPUT,
    RULES,
    Known,
    Line,
    Play,
    line,
)
from tests.support.chat_invariants import check_receipts
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

FAILS = "provider_rejected"
# Enough characters of an id to recognise it.
ID_SHOWN = 6
Deed = Callable[[], Any]


def short(value: object) -> str:
    """A value of a row; ids are shortened."""
    return str(value)[:ID_SHOWN] if isinstance(value, uuid.UUID) else str(value)


class Scene:
    """A team's chat and the facts recorded about it."""

    def __init__(self, owner: User, kind: str) -> None:
        now = timezone.now()
        self.kind = kind
        self.chat = lifecycle.create_chat(owner=owner, now=now, model=None, title=kind)
        team = Team.objects.create(owner=owner, created_at=now)
        rules = {"token_limit": FOREVER, "seconds_limit": FOREVER, **RULES[kind]}
        version = TeamVersion.objects.create(
            team=team, number=1, name=kind, created_at=now, **rules
        )
        for place, name in enumerate(NAMES):
            Agent.objects.create(version=version, place=place, role_id=name.lower(), name=name)
        team.current = version
        team.save()
        self.chat.team = team
        self.chat.save()
        # Messages that a person wrote with the names they mention, and messages that may be lost.
        self.said: dict[str, str] = {}
        self.perhaps: dict[str, str] = {}
        # Regenerated replies by branch, the last request, and failed turns that were retried.
        self.asked: dict[str, tuple[str, bool]] = {}
        self.asking: tuple[str, bool] | None = None
        self.retried: set[str] = set()
        self.before: dict[str, str] = {}
        self.receipts: set[Any] = set()

    def unfinished(self) -> list[Turn]:
        """The turns that have not ended, oldest first."""
        turns = Turn.objects.filter(branch__chat=self.chat, status__in=UNFINISHED)
        return list(turns.select_related("round", "agent", "branch__chat").order_by("accepted"))

    def workable(self) -> list[Turn]:
        """The turns that workers could begin now: the first of each branch, and its lanes."""
        found: list[Turn] = []
        for turn in self.unfinished():
            mates = [other for other in found if other.branch_id == turn.branch_id]
            beside = turn.lane and all(o.lane and o.round_id == turn.round_id for o in mates)
            if turn.agent and (not mates or beside):
                found.append(turn)
        return found

    def say(self, text: str, named: str) -> Deed:
        """A person's message, as an operation."""
        self.perhaps[text] = named
        chat = Chat.objects.get(pk=self.chat.pk)
        return lambda: start_turn(user=chat.owner, chat=chat, text=text, now=timezone.now())

    def go_on(self) -> None:
        """Continue a round that ended early, as an operation."""
        chat = Chat.objects.get(pk=self.chat.pk)
        play.continue_round(user=chat.owner, chat=chat, now=timezone.now())

    def retry(self, turn: Turn) -> Deed:
        """A retry of a failed reply, as an operation."""
        self.retried.add(str(turn.pk))
        return lambda: retry_turn(user=self.chat.owner, turn=turn, now=timezone.now())

    def ask_again(self, message: Message, *, play_on: bool) -> Deed:
        """A regenerated reply, as an operation."""
        self.asking = (str(message.turn_id), play_on)
        return lambda: regenerate_reply(
            user=self.chat.owner, message=message, now=timezone.now(), play_on=play_on
        )

    def work(
        self, turn: Turn | None = None, *, worker: str = "test", meanwhile: Deed | None = None
    ) -> None:
        """Work on a turn, or on the chat's next one, while a person may write."""
        turn = turn or self.workable()[0]
        put(attempt, "PLACE_EVERY", PLACE_EVERY)
        put(attempt, "UNBEGUN_SECONDS", UNBEGUN_SECONDS)
        script: list[Any] = []

        async def speak(worker: InlineWorker) -> None:
            # Only now: a message that arrived before the turn began may have moved it to another
            # round.
            says = await worker.db(self.line_of, turn_id=turn.pk)
            if meanwhile is not None:
                await worker.db(meanwhile)
            if says.fails:
                script.append(ProviderError("provider_rejected", status=400))
                return
            usage = UsageReport(INPUT, OUTPUT, 0, 0)
            words = [TextDelta(says.text[:4]), TextDelta(says.text[4:])]
            script.extend([*words, usage, Finished("stop")])

        script.append(speak)
        working = InlineWorker(ScriptedProvider([script]))
        working.name = worker
        async_to_sync(working.turn)(turn.pk)

    def line_of(self, turn_id: uuid.UUID) -> Line:
        """The scripted reply of a turn."""
        turn = Turn.objects.get(pk=turn_id)
        same = Turn.objects.filter(round=turn.round_id, hop=turn.hop, accepted__lte=turn.accepted)
        number = self.numbers()[str(turn.round_id)]
        return line(self.kind, number, turn.hop or 0, tries=same.count())

    def numbers(self) -> dict[str, int]:
        """The number of each round of the chat, in the ledger's order."""
        told = AuditEvent.objects.filter(chat_id=self.chat.pk, type="round.started").order_by("seq")
        return {event.data["round"]: number for number, event in enumerate(told, start=1)}

    def stop(self) -> None:
        """Stop all replies, as an operation."""
        with transaction.atomic():
            locking.lock_chat(self.chat.pk)
            stop_all(chat=self.chat, actor="user:1", now=timezone.now())

    def heal(self) -> None:
        """Sweep dead workers, in one of two ways."""
        due_jobs.take_over(now=timezone.now(), worker="test")
        town.declare_dead(self.chat)

    def look(self, *, certain: bool) -> None:
        """Check every invariant. `certain`: no process was killed, so all messages were stored.

        A violation includes the rows of the chat.
        """
        try:
            self.hold_laws(certain=certain)
        except Violation as error:
            error.add_note(self.rows())
            raise

    def rows(self) -> str:
        """The turns, messages, rounds and events of the chat, one per line."""
        here = {"branch__chat": self.chat}
        turn = (
            "accepted",
            "branch",
            "round",
            "agent__name",
            "lane",
            "seen_to",
            "status",
            "trigger",
        )
        message = ("accepted", "branch", "seq", "role", "turn")
        made = ("branch", "status", "reason", "queue", "speakers", "opening")
        told = AuditEvent.objects.filter(chat_id=self.chat.pk).order_by("seq")
        groups: list[tuple[str, Iterable[tuple[object, ...]]]] = [
            ("turn", Turn.objects.filter(**here).order_by("accepted").values_list("pk", *turn)),
            ("message", Message.objects.filter(**here).values_list("pk", *message)),
            ("round", Round.objects.filter(**here).values_list("pk", *made)),
            ("event", told.values_list("seq", "at", "type", "turn_id", "data")),
        ]
        lines = [" ".join([name, *map(short, row)]) for name, rows in groups for row in rows]
        return "\n".join([f"team: {self.kind}", *lines])

    def hold_laws(self, *, certain: bool) -> None:
        """Raise `Violation` if an invariant is broken."""
        self.hear(certain=certain)
        now = originals(self.chat)
        if not self.before.items() <= now.items():
            raise Violation("the originals changed")
        self.before = now
        self.know_branches()
        assert_same_prompts(self.chat)
        assert_questions_seen(self.chat)
        told = self.replayed()
        self.assert_rounds(told)
        self.assert_turns(told)
        self.assert_replies(told)
        for made in Round.objects.filter(branch__chat=self.chat):
            assert_lanes(made)
        for branch in Branch.objects.filter(chat=self.chat):
            assert_one_waits(branch)
        self.assert_none_waits_for_nobody()
        assert_complete(self.chat)
        assert_committed(self.chat)
        try:
            check_receipts(self.chat, known=self.receipts)
        except (AssertionError, ValueError) as error:
            raise Violation(f"no sound context: {error}") from error
        if breaks := list(ledger.find_ledger_breaks(scope=f"chat:{self.chat.pk}")):
            raise Violation(f"the ledger is broken: {breaks}")

    def hear(self, *, certain: bool) -> None:
        """Check that each message of the person is stored once."""
        rows = Message.objects.filter(branch__chat=self.chat, role="user")
        heard = Counter(row.text for row in rows)
        for text, named in self.perhaps.items():
            if text in heard or certain:
                self.said[text] = named
        self.perhaps = {}
        if heard != Counter(list(self.said)):
            raise Violation("a message of the person was lost, doubled or changed")

    def know_branches(self) -> None:
        """Record a new branch as that of the regenerated reply."""
        made = AuditEvent.objects.filter(
            chat_id=self.chat.pk, type="branch.created", data__cause="regenerate"
        )
        for event in made:
            if event.data["branch"] not in self.asked:
                if self.asking is None:
                    raise Violation("a branch came from nowhere")
                self.asked[event.data["branch"]], self.asking = self.asking, None
        self.asking = None

    def replayed(self) -> Play:
        """The expected state after the events, according to the script."""
        here = {"branch__chat": self.chat}
        branch_of = {
            str(pk): str(branch)
            for rows in (Turn.objects.filter(**here), Round.objects.filter(**here))
            for pk, branch in rows.values_list("pk", "branch")
        }
        known = Known(said=self.said, branch_of=branch_of, asked=self.asked, retried=self.retried)
        told = Play(self.kind, known)
        texts = {str(m.pk): m.text for m in Message.objects.filter(**here)}
        events = AuditEvent.objects.filter(chat_id=self.chat.pk).order_by("seq")
        told.read(events, texts=texts)
        return told

    def assert_rounds(self, told: Play) -> None:
        """Check that the rounds match the script and are within their limits."""
        rows = {str(r.pk): r for r in Round.objects.filter(branch__chat=self.chat)}
        found = [
            (
                r.opening and r.opening.text,
                str(r.branch_id),
                r.status,
                r.queue,
                r.speakers,
                r.hops,
                r.passes,
                r.tokens,
            )
            for r in (rows[pk] for pk in self.numbers())
        ]
        wanted = [
            (m.opening, m.branch, m.status, m.queue, m.speakers, m.hops, m.passes, m.tokens)
            for m in told.rounds
        ]
        if found != wanted or len(rows) != len(wanted):
            raise Violation(f"the rounds are {found}, by the script {wanted}")
        limit = RULES[self.kind]["hop_limit"]
        over = Turn.objects.filter(branch__chat=self.chat, hop__gt=limit)
        if any(row.hops > limit for row in rows.values()) or over.exists():
            raise Violation("a round went over its limit")

    def assert_turns(self, told: Play) -> None:
        """Check that the turns match the script and fail only where it says so."""
        number = self.numbers()
        turns = list(Turn.objects.filter(branch__chat=self.chat).select_related("agent"))
        spoken = {
            str(turn.pk): (
                number.get(str(turn.round_id)),
                turn.agent.role_id if turn.agent else "",
                turn.hop or 0,
                turn.lane,
                "queued" if turn.status == "running" else turn.status,
            )
            for turn in turns
        }
        script = {
            pk: (part.made.number, part.role, part.hop, part.lane, part.status)
            for pk, part in told.parts.items()
        }
        if spoken != script:
            raise Violation(f"the turns are {spoken}, by the script {script}")
        for turn in turns:
            fails = told.line(told.parts[str(turn.pk)]).fails
            allowed = ("", tool_steps.LOST_CODE, *([FAILS] if fails else []))
            if turn.status == "failed" and turn.error_code not in allowed:
                raise Violation(f"a turn failed: {turn.error_code}")

    def assert_replies(self, told: Play) -> None:
        """Check that the replies are in the order of their ends, each once, with text and names."""
        ended = AuditEvent.objects.filter(chat_id=self.chat.pk, type="turn.completed")
        wanted: dict[str, list[Any]] = {}
        for event in ended.order_by("seq"):
            part = told.parts[str(event.turn_id)]
            says = told.line(part)
            roles, _ = engine.resolve_member_names(says.called, members=MEMBERS, speaker=part.role)
            names = [role.capitalize() for role in roles]
            reply = (str(event.turn_id), says.text.strip(), part.role.capitalize(), names)
            wanted.setdefault(part.made.branch, []).append(reply)
        for branch in Branch.objects.filter(chat=self.chat):
            rows = Message.objects.filter(branch=branch, role="assistant").order_by("seq")
            found = [
                (str(r.turn_id), r.text.strip(), (r.speaker or {}).get("roleName"), r.addressees)
                for r in rows
            ]
            if found != wanted.get(str(branch.pk), []):
                raise Violation(f"the replies are {found}, by the script {wanted}")
            parts = [told.parts[pk] for pk, *_ in found]
            # Lanes have a separate check.
            hops = [(p.made.number, p.hop if not p.lane else 0) for p in parts]
            if hops != sorted(hops):
                raise Violation(f"the replies do not stand in the order of hops: {hops}")

    def assert_none_waits_for_nobody(self) -> None:
        """Check that no message waits for a turn that has ended."""
        # Stopping the turn of a message leaves the message to the next turn.
        ended = Turn.objects.filter(branch__chat=self.chat).exclude(status__in=UNFINISHED)
        answered = set(
            ended.exclude(status__in=["stopped", "absorbed"]).values_list("pk", flat=True)
        )
        told = AuditEvent.objects.filter(chat_id=self.chat.pk, type="turn.started")
        turn_of = {event.data.get("message"): event.turn_id for event in told}
        for message in Message.objects.filter(branch__chat=self.chat, seq=None):
            if turn_of[str(message.pk)] in answered:
                raise Violation("a message waits and its turn has ended")
