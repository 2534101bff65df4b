"""`python -m tests.faults.round_kills`: processes killed while agents reply one after another.

Each step is a deed in a child of this program: a person's message, the work on a turn, a stop, or
a sweep. Some are killed (SIGKILL) at a random border: before a statement, or on either side of a
commit. The dead are swept and the work goes on. What was to become of it is told by a model of the
script (`Play`), which asks the pure engine who follows; every step is compared with it.

    --rounds N     so many rounds at least
    --kills N      so many kills; the rest is done without
    --naive NAME   break the product first, to see that this program notices

Ends with a code other than 0 at the first violation. Data lies where that of `crashes` does.
"""

import argparse
import random
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.faults.crashes import in_child  # Sets up Django, so it comes first.

# isort: split

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from chats.actions import lifecycle
from chats.models import Agent, Chat, Message, Receipt, Round, Team, TeamVersion, Turn
from chats.models.turns import UNFINISHED
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.record import locking
from chats.turns import recover
from chats.turns.start import start
from chats.turns.stop import stop, stop_all
from contextpolicy import ledger
from contextpolicy.engine import rounds as engine
from contextpolicy.models import AuditEvent
from tests.chats.compaction.test_random_walks import check_receipts
from tests.chats.conftest import InlineWorker, ScriptedProvider
from tests.faults import town
from tests.faults.laws import Violation, assert_committed, assert_complete, branch_of, originals
from tests.faults.round_ways import WAYS

NAMES = ("Alpha", "Beta", "Gamma", "Delta", "Omega")
MEMBERS = tuple(engine.Member(name.lower(), name) for name in NAMES)
FOREVER = 10**7
# The rules of the teams; the names are those of their scripts.
RULES: dict[str, dict[str, Any]] = {
    "all": {"routing": "all", "hop_limit": 8},
    "robin": {"routing": "round_robin", "hop_limit": 6},
    "person": {"routing": "person", "hop_limit": 7},
    "apart": {"routing": "all", "independent": True, "hop_limit": 8},
    "strict": {"routing": "all", "goes_on_after_failure": False, "hop_limit": 8},
}
# More than the work on a turn has.
BORDERS = 100
FAILS = "provider_rejected"
INPUT, OUTPUT = 10, 5
OVER = {"turn.completed", "turn.failed", "turn.stopped"}


@dataclass(frozen=True)
class Line:
    """What an agent says: its words, whom it calls, or that it fails or only passes."""

    words: str
    called: tuple[str, ...] = ()
    fails: bool = False
    passes: bool = False

    @property
    def text(self) -> str:
        """The text of the reply."""
        return " ".join([self.words, f"[NEXT:{', '.join(self.called)}]" if self.called else ""])


def line(kind: str, number: int, hop: int) -> Line:
    """What the reply at a hop of a chat's round says; the scripts take turns."""
    words, way = f"Reply {number}.{hop} of {kind}.", number % 5
    if way == 1 and hop == 2:
        return Line(words, fails=True)
    if way == 2 and hop == 1:
        return Line("[NEXT:]", passes=True)
    if way == 3 and hop == 1:
        return Line(words, ("Delta", "Alpha"))
    if way == 3 and hop == 4:
        return Line(words, ("Beta", "Ghost"))
    if way == 4 and hop == 3:
        return Line(words, ("all",) if kind != "robin" else ("user",))
    if kind == "person" and hop == 1:
        return Line(words, ("Gamma", "Beta"))
    return Line(words)


@dataclass
class Expected:
    """A round as the script has it."""

    number: int
    opening: str
    queue: list[str]
    status: str = "running"
    spoke: list[str] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    hops: int = 0
    passes: int = 0
    tokens: int = 0


@dataclass
class Part:
    """A turn as the script has it."""

    made: Expected
    role: str = ""
    hop: int = 0
    status: str = "queued"


class Play:
    """The rounds of a chat as they must be after the events of its ledger."""

    def __init__(self, kind: str, said: dict[str, str]) -> None:
        self.kind, self.said = kind, said
        rules = {name: value for name, value in RULES[kind].items() if name != "independent"}
        self.rules = engine.Rules(token_limit=FOREVER, seconds_limit=FOREVER, **rules)
        self.rounds: list[Expected] = []
        self.parts: dict[str, Part] = {}
        # What a person wrote last that a turn is to take up.
        self.words: dict[str, str] = {}
        # The following turn, of which the ledger has not told yet.
        self.next: Part | None = None

    def message(self, turn: str, text: str) -> None:
        """A person's message, and the turn that was named for it."""
        named = self.said[text]
        names = [named] if named else []
        known = self.parts.get(turn)
        self.words[turn] = text
        if known is not None:
            if names:
                self.open(turn, names)
            elif known.role:
                known.made.speakers, known.made.passes = [], 0
            return
        busy = any(part.status == "queued" for part in self.parts.values())
        running = next((made for made in self.rounds if made.status == "running"), None)
        if busy and running is not None and not names:
            self.parts[turn] = Part(running)
        else:
            self.open(turn, names)

    def open(self, turn: str, names: Sequence[str]) -> None:
        """A new round, begun by this turn."""
        for made in self.rounds:
            made.status = "replaced" if made.status == "running" else made.status
        spoken = [made for made in self.rounds if made.hops]
        last = spoken[-1].spoke[-1] if spoken else ""
        roles = engine.opening_queue(MEMBERS, self.rules, addressees=names, last=last)
        made = Expected(len(self.rounds) + 1, self.words[turn], list(roles[1:]))
        self.rounds.append(made)
        self.parts[turn] = Part(made, roles[0], 1)

    def follows(self, turn: str) -> None:
        """A turn that the round made itself."""
        if self.next is None:
            raise Violation("a turn came from nowhere")
        self.parts[turn], self.next = self.next, None

    def over(self, turn: str, status: str) -> None:
        """The end of a turn, and who follows."""
        part = self.parts[turn]
        if part.status != "queued" or self.next is not None:
            raise Violation("a turn ended twice, or the one before it left nobody behind")
        part.status = status
        made = part.made
        says = line(self.kind, made.number, part.hop)
        completed = status == "completed"
        if part.role:
            made.hops += 1
            made.spoke.append(part.role)
            made.speakers.append(part.role)
            made.passes = made.passes + 1 if completed and says.passes else 0
            made.tokens += INPUT + OUTPUT if completed else 0
        behind = next(
            (pk for pk, p in self.parts.items() if not p.role and p.status == "queued"), ""
        )
        if made.status == "running":
            self.go_on(part, says=says, behind=behind)
        if behind and not self.parts[behind].role:
            self.open(behind, [])

    def go_on(self, part: Part, *, says: Line, behind: str) -> None:
        """What the engine says."""
        made = part.made
        if part.status == "stopped":
            made.status = "stopped"
            return
        standing = engine.Standing(
            queue=tuple(made.queue),
            speakers=tuple(made.speakers),
            hops=made.hops,
            tokens=made.tokens,
            seconds=0,
            passes=made.passes,
        )
        found = engine.after_reply(
            standing,
            MEMBERS,
            self.rules,
            speaker=part.role,
            called=says.called if part.status == "completed" else (),
            failed=part.status == "failed",
        )
        made.queue = list(found.queue)
        if found.ending:
            made.status = "limit" if found.ending == "hops" else found.ending
            return
        following = Part(made, found.role_id, made.hops + 1)
        if behind:
            made.speakers, made.passes = [], 0
            self.parts[behind] = following
        else:
            self.next = following


class Scene:
    """A chat of a team, and what is known of it."""

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
        # What a person wrote and whom it names, and what perhaps was not heard.
        self.said: dict[str, str] = {}
        self.perhaps: dict[str, str] = {}
        self.before: dict[str, str] = {}
        self.receipts: set[Any] = set()

    def unfinished(self) -> list[Turn]:
        """The turns that are not over, the oldest first."""
        turns = Turn.objects.filter(branch__chat=self.chat, status__in=UNFINISHED)
        return list(turns.select_related("round", "agent", "branch__chat").order_by("accepted"))

    def say(self, text: str, named: str) -> Callable[[], Any]:
        """A person's message, as a deed."""
        self.perhaps[text] = named
        chat = Chat.objects.get(pk=self.chat.pk)
        return lambda: start(user=chat.owner, chat=chat, text=text, now=timezone.now())

    def work(self, *, meanwhile: Callable[[], Any] | None = None) -> None:
        """What a worker does with the chat's next turn, while a person may write."""
        turn = next(turn for turn in self.unfinished() if turn.agent)
        number = numbers(self.chat)[turn.round_id]
        says = line(self.kind, number, turn.hop or 0)
        script: list[Any] = [TextDelta(says.text[:4])]
        if says.fails:
            script = [ProviderError("provider_rejected", status=400)]

        async def interrupts(worker: InlineWorker) -> None:
            if meanwhile is not None:
                await worker.db(meanwhile)

        script.insert(0, interrupts)
        if not says.fails:
            usage = UsageReport(INPUT, OUTPUT, 0, 0)
            script += [TextDelta(says.text[4:]), usage, Finished("stop")]
        async_to_sync(InlineWorker(ScriptedProvider([script])).turn)(turn.pk)

    def stop(self) -> None:
        """What a person does who wants no more replies."""
        with transaction.atomic():
            locking.locked_chat(self.chat.pk)
            stop_all(chat=self.chat, actor="user:1", now=timezone.now())

    def heal(self) -> None:
        """The dead are swept, in one way or the other."""
        recover.take_over(now=timezone.now(), worker="test")
        town.declare_dead(self.chat)

    def look(self, *, certain: bool) -> None:
        """Every law; `certain` when nobody was killed, so that what was written was heard."""
        heard = Counter(
            row.text for row in Message.objects.filter(branch__chat=self.chat, role="user")
        )
        for text, named in self.perhaps.items():
            if text in heard or certain:
                self.said[text] = named
        self.perhaps = {}
        if heard != Counter(list(self.said)):
            raise Violation("a message of the person was lost, doubled or changed")
        now = originals(self.chat)
        if not self.before.items() <= now.items():
            raise Violation("the originals changed")
        self.before = now
        assert_same_prompts(self.chat)
        play = self.replayed()
        self.assert_rounds(play)
        self.assert_replies(play)
        self.assert_one_waits()
        assert_complete(self.chat)
        assert_committed(self.chat)
        try:
            check_receipts(self.chat, known=self.receipts)
        except (AssertionError, ValueError) as error:
            raise Violation(f"no sound context: {error}") from error
        if breaks := list(ledger.verify(scope=f"chat:{self.chat.pk}")):
            raise Violation(f"the ledger is broken: {breaks}")

    def replayed(self) -> Play:
        """What must have come of the events, by the script."""
        play = Play(self.kind, self.said)
        texts = {str(m.pk): m.text for m in Message.objects.filter(branch__chat=self.chat)}
        events = AuditEvent.objects.filter(chat_id=self.chat.pk, type__startswith="turn.")
        for event in events.order_by("seq"):
            turn = str(event.turn_id)
            if event.type == "turn.started" and "message" in event.data:
                play.message(turn, texts[event.data["message"]])
            elif event.type == "turn.started":
                play.follows(turn)
            elif event.type == "turn.absorbed":
                raise Violation("a turn of a round was absorbed by another one")
            elif event.type in OVER:
                play.over(turn, event.type.removeprefix("turn."))
        if play.next is not None:
            raise Violation("the round was forgotten: nobody follows an ended reply")
        return play

    def assert_rounds(self, play: Play) -> None:
        """The rounds and turns are the script's; at most one runs, and none over its limit."""
        number = numbers(self.chat)
        rows = list(Round.objects.filter(branch__chat=self.chat).order_by("started_at"))
        found = [
            (
                r.opening and r.opening.text,
                r.status,
                r.queue,
                r.speakers,
                r.hops,
                r.passes,
                r.tokens,
            )
            for r in rows
        ]
        wanted = [
            (m.opening, m.status, m.queue, m.speakers, m.hops, m.passes, m.tokens)
            for m in play.rounds
        ]
        if found != wanted:
            raise Violation(f"the rounds are {found}, by the script {wanted}")
        if any(row.hops > RULES[self.kind]["hop_limit"] for row in rows):
            raise Violation("a round went over its limit")
        turns = list(Turn.objects.filter(branch__chat=self.chat).select_related("agent"))
        spoken = {
            str(turn.pk): (
                number.get(turn.round_id),
                turn.agent.role_id if turn.agent else "",
                turn.hop or 0,
                "queued" if turn.status == "running" else turn.status,
            )
            for turn in turns
        }
        script = {
            pk: (part.made.number, part.role, part.hop, part.status)
            for pk, part in play.parts.items()
        }
        if spoken != script:
            raise Violation(f"the turns are {spoken}, by the script {script}")
        hops = Counter((turn.round_id, turn.hop) for turn in turns if turn.agent_id)
        if any(n > 1 for n in hops.values()):
            raise Violation("a hop has two turns")
        for turn in turns:
            if turn.status == "failed" and turn.error_code != recover.LOST_CODE:
                part = play.parts[str(turn.pk)]
                if (
                    turn.error_code != FAILS
                    or not line(self.kind, part.made.number, part.hop).fails
                ):
                    raise Violation(f"a turn failed: {turn.error_code}")

    def assert_replies(self, play: Play) -> None:
        """The replies stand in the order of their ends, each once, with its words and names."""
        rows = Message.objects.filter(branch__chat=self.chat, role="assistant").order_by("seq")
        found = [
            (str(r.turn_id), r.text, (r.speaker or {}).get("roleName"), r.addressees) for r in rows
        ]
        ended = AuditEvent.objects.filter(chat_id=self.chat.pk, type="turn.completed")
        wanted = []
        for event in ended.order_by("seq"):
            part = play.parts[str(event.turn_id)]
            says = line(self.kind, part.made.number, part.hop)
            roles, _ = engine.found(says.called, members=MEMBERS, speaker=part.role)
            names = [role.capitalize() for role in roles]
            wanted.append((str(event.turn_id), says.text, part.role.capitalize(), names))
        if [(a, b.strip(), c, d) for a, b, c, d in found] != [
            (a, b.strip(), c, d) for a, b, c, d in wanted
        ]:
            raise Violation(f"the replies are {found}, by the script {wanted}")
        hops = [(play.parts[pk].made.number, play.parts[pk].hop) for pk, *_ in found]
        if hops != sorted(hops):
            raise Violation(f"the replies do not stand in the order of hops: {hops}")

    def assert_one_waits(self) -> None:
        """At most one turn of the branch is not begun, and nothing waits for nobody."""
        turns = self.unfinished()
        if sum(turn.status == "queued" and not turn.attempt for turn in turns) > 1:
            raise Violation("two turns of a branch wait that nobody has begun")
        running = Round.objects.filter(branch=branch_of(self.chat), status="running")
        if running.count() > 1:
            raise Violation("two rounds run")
        if running and not any(turn.round_id == running[0].pk for turn in turns):
            raise Violation("a round runs without a turn")
        # Who stops the turn of a message leaves it to the next one.
        ended = Turn.objects.filter(branch__chat=self.chat).exclude(status__in=UNFINISHED)
        answered = set(ended.exclude(status="stopped").values_list("pk", flat=True))
        told = AuditEvent.objects.filter(chat_id=self.chat.pk, type="turn.started")
        turn_of = {event.data.get("message"): event.turn_id for event in told}
        for message in Message.objects.filter(branch__chat=self.chat, seq=None):
            if turn_of[str(message.pk)] in answered:
                raise Violation("a message waits and the turn that was to take it up is over")


def numbers(chat: Chat) -> dict[uuid.UUID | None, int]:
    """The number of each round of a chat, in the order of their beginnings."""
    rows = Round.objects.filter(branch__chat=chat).order_by("started_at")
    return {pk: number for number, pk in enumerate(rows.values_list("pk", flat=True), start=1)}


def assert_same_prompts(chat: Chat) -> None:
    """Each attempt at a reply sent the same prompt, byte for byte."""
    receipts = Receipt.objects.filter(turn__branch__chat=chat, turn__agent__isnull=False)
    prompts: dict[Any, set[str]] = {}
    for turn, step, digest in receipts.values_list("turn", "step", "prompt_sha256"):
        prompts.setdefault((turn, step), set()).add(digest)
    if any(len(found) > 1 for found in prompts.values()):
        raise Violation("a later attempt sent another prompt than the first one")


def kill_rounds(
    owner: User, *, rounds_wanted: int, kills: int, dice: random.Random
) -> Counter[tuple[str, str]]:
    """Kill deeds of rounds at random borders; how many of each were killed or ended before."""
    kinds = sorted(RULES)
    scenes = [Scene(owner, kinds[n % 5]) for n in range(max(5, rounds_wanted // 5))]
    seen: Counter[tuple[str, str]] = Counter()
    killed = number = 0
    while killed < kills or Round.objects.count() < rounds_wanted:
        number += 1
        scene = dice.choice(scenes)
        name, deed = pick(scene, number=number, dice=dice)
        at = dice.randrange(1, BORDERS) if killed < kills and dice.random() < 0.6 else 0
        died = in_child(deed, at=at)
        killed += died
        seen[name, "killed" if died else "ended"] += 1
        scene.look(certain=not died)
        if died:
            again = killed < kills and dice.random() < 0.3
            if in_child(scene.heal, at=dice.randrange(1, BORDERS // 4) if again else 0):
                killed += 1
                seen["heal", "killed"] += 1
                scene.look(certain=True)
                scene.heal()
            scene.look(certain=True)
    for scene in scenes:
        settle(scene, seen=seen)
    return seen


def pick(scene: Scene, *, number: int, dice: random.Random) -> tuple[str, Callable[[], Any]]:
    """A deed that the chat has a place for."""
    turns = scene.unfinished()
    named = dice.choice(NAMES) if dice.random() < 0.3 else ""
    text = f"{f'@{named} ' if named else ''}Message {number}: what do you think?"
    if not turns:
        return "ask", scene.say(text, named)
    found = dice.random()
    if found < 0.06:
        return "write", scene.say(text, named)
    if found < 0.08:
        turn = dice.choice(turns)
        return "stop", partial(stop, user=scene.chat.owner, turn=turn, now=timezone.now())
    if found < 0.1:
        return "stop all", scene.stop
    if found < 0.2:
        meanwhile = scene.say(text, named)
        return "work, write", partial(scene.work, meanwhile=meanwhile)
    return "work", scene.work


def settle(scene: Scene, *, seen: Counter[tuple[str, str]]) -> None:
    """Work goes on until nothing is queued; then all was said."""
    while scene.unfinished():
        if in_child(scene.work):
            raise Violation("a process was killed by somebody else")
        seen["work", "ended"] += 1
        scene.look(certain=True)
    if Round.objects.filter(branch__chat=scene.chat, status="running").exists():
        raise Violation("a round runs and nobody is left to speak")


def main() -> None:
    """Do what is asked for and print a table."""
    given = argparse.ArgumentParser()
    given.add_argument("--rounds", type=int, default=50)
    given.add_argument("--kills", type=int, default=100)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--naive", choices=sorted(WAYS))
    asked = given.parse_args()
    dice = random.Random(asked.seed)  # noqa: S311  # a test's dice
    owner = town.prepare(dice)
    if asked.naive:
        WAYS[asked.naive]()
    table = kill_rounds(owner, rounds_wanted=asked.rounds, kills=asked.kills, dice=dice)
    lines = [f"database: {connection.vendor}, seed {asked.seed}"]
    lines.append(f"{'deed':<16}{'killed':>8}{'ended':>8}")
    for name in sorted({name for name, _ in table}):
        lines.append(f"{name:<16}{table[name, 'killed']:>8}{table[name, 'ended']:>8}")
    ends = Counter(Round.objects.values_list("status", flat=True))
    turns = Counter(Turn.objects.values_list("status", flat=True))
    again = Turn.objects.filter(attempt__gt=1).count()
    lines += [
        "rounds: " + ", ".join(f"{n} {what}" for what, n in sorted(ends.items())),
        "turns: " + ", ".join(f"{n} {what}" for what, n in sorted(turns.items())),
        f"{again} turns were begun again",
        f"{sum(ends.values())} rounds,"
        f" {sum(n for (_, end), n in table.items() if end == 'killed')} kills",
        "0 hops lost, 0 doubled, every speaker the script's, every prompt the same again",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
