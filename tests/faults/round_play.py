"""The expected state of a team's rounds, from a script and the events of a chat's ledger.

It reads no rows. The pure engine decides who replies next; all other rules are implemented here a
second time. `round_kills` compares the result with the stored state.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from contextpolicy.engine.team import rounds as engine
from contextpolicy.models import AuditEvent
from tests.faults.laws import Violation

NAMES = ("Alpha", "Beta", "Gamma", "Delta", "Omega")
MEMBERS = tuple(engine.Member(name.lower(), name) for name in NAMES)
FOREVER = 10**7
# The rules of the teams, by the names of their scripts.
RULES: dict[str, dict[str, Any]] = {
    "all": {"routing": "all", "hop_limit": 8},
    "robin": {"routing": "round_robin", "hop_limit": 6},
    "person": {"routing": "person", "hop_limit": 7},
    "apart": {"routing": "all", "independent": True, "hop_limit": 8},
    "strict": {"routing": "all", "goes_on_after_failure": False, "hop_limit": 8},
    # Fewer begin together than the team has.
    "narrow": {"routing": "all", "independent": True, "hop_limit": 3},
}
INPUT, OUTPUT = 10, 5
ENDED_EARLY = {"limit", "pair", "stopped", "failed"}
OVER = {"turn.completed", "turn.failed", "turn.stopped"}


@dataclass(frozen=True)
class Line:
    """An agent's scripted reply: its text and mentions, a failure, or a pass."""

    words: str
    called: tuple[str, ...] = ()
    fails: bool = False
    passes: bool = False

    @property
    def text(self) -> str:
        """The text of the reply."""
        return " ".join([self.words, f"[NEXT:{', '.join(self.called)}]" if self.called else ""])


def line(kind: str, number: int, hop: int, *, tries: int = 1) -> Line:
    """The reply at a hop of a chat's round; the scripts alternate."""
    words, way = f"Reply {number}.{hop} of {kind}.", number % 5
    if way == 1 and hop == 2 and tries == 1:
        return Line(words, fails=True)
    if way == 0 and hop == 1 and tries == 1:
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


@dataclass(eq=False)
class Expected:
    """An expected round. `only`: it ends with its first reply."""

    number: int
    branch: str
    opening: str
    queue: list[str]
    status: str = "running"
    spoke: list[str] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    hops: int = 0
    passes: int = 0
    tokens: int = 0
    only: bool = False
    pk: str = ""


@dataclass(eq=False)
class Part:
    """An expected turn. `lane`: its position among the turns that began together."""

    made: Expected
    role: str = ""
    hop: int = 0
    status: str = "queued"
    lane: int = 0
    tries: int = 1


@dataclass(frozen=True, kw_only=True)
class Known:
    """Facts that the ledger lacks: names mentioned by people, and their requests.

    `asked`: for each branch, the turn whose reply was regenerated, and whether later agents reply
    again. `retried`: the failed turns that were retried. `stopped`: whether several replies were
    stopped at once.
    """

    said: Mapping[str, str]
    branch_of: Mapping[str, str]
    asked: Mapping[str, tuple[str, bool]]
    retried: Collection[str]


def without_last(roles: Sequence[str], role: str) -> list[str]:
    """The roles without the last one of a name; others may have ended after it."""
    behind = list(reversed(roles))
    if role in behind:
        behind.remove(role)
    return behind[::-1]


class Play:
    """The expected rounds of a chat after the events of its ledger."""

    def __init__(self, kind: str, known: Known) -> None:
        self.kind, self.known = kind, known
        self.is_independent = bool(RULES[kind].get("independent"))
        rules = {name: value for name, value in RULES[kind].items() if name != "independent"}
        self.rules = engine.Rules(token_limit=FOREVER, seconds_limit=FOREVER, **rules)
        self.rounds: list[Expected] = []
        self.parts: dict[str, Part] = {}
        # The message that a turn was made for.
        self.words: dict[str, str] = {}
        # The following turns that have no ledger event yet.
        self.pending: list[Part] = []

    def read(self, events: Iterable[AuditEvent], *, texts: Mapping[str, str]) -> None:
        """Replay a chat's ledger. Events of one transaction have the same time.

        A message's event comes after the events it caused, so it is handled first.
        """
        for _, group in groupby(events, key=lambda event: event.at):
            for event in sorted(group, key=lambda event: "message" not in event.data):
                self.heed(event, texts=texts)
        if self.pending:
            raise Violation("the round was forgotten: no reply follows an ended one")

    def heed(self, event: AuditEvent, *, texts: Mapping[str, str]) -> None:
        """Handle one event."""
        turn = str(event.turn_id)
        if event.type == "turn.started" and "message" in event.data:
            self.message(turn, texts[event.data["message"]])
        elif event.type == "turn.started":
            self.follows(turn, event.data)
        elif event.type == "turn.absorbed":
            self.absorbed(turn)
        elif event.type == "round.started":
            self.began(event.data)
        elif event.type == "round.ended" and event.data["status"] == "stopped":
            self.stopped(event.data["round"])
        elif event.type in OVER:
            self.over(turn, event.type.removeprefix("turn."))

    def message(self, turn: str, text: str) -> None:
        """Handle a person's message and the turn created for it."""
        named = self.known.said[text]
        names = [named] if named else []
        known = self.parts.get(turn)
        branch = self.known.branch_of[turn]
        self.words.setdefault(turn, text)
        if known is not None:
            if names:
                self.open(turn, names, opening=text)
            elif known.role:
                known.made.speakers, known.made.passes = [], 0
            return
        busy = any(
            part.status == "queued" and part.made.branch == branch for part in self.parts.values()
        )
        running = next(
            (m for m in self.rounds if m.status == "running" and m.branch == branch), None
        )
        if busy and running is not None and not names:
            self.parts[turn] = Part(running)
        else:
            self.open(turn, names, opening=text)

    def open(self, turn: str, names: Sequence[str], *, opening: str) -> None:
        """Open a round that this turn begins."""
        branch = self.known.branch_of[turn]
        here = [made for made in self.rounds if made.branch == branch]
        for made in here:
            made.status = "replaced" if made.status == "running" else made.status
        roles = engine.build_opening_queue(
            MEMBERS, self.rules, addressees=names, last=self.last_speaker(branch)
        )
        made = Expected(len(self.rounds) + 1, branch, opening, list(roles[1:]))
        self.rounds.append(made)
        self.parts[turn] = self.with_others(Part(made, roles[0], 1))

    def last_speaker(self, branch: str) -> str:
        """The last agent that replied on a branch."""
        spoken = [made for made in self.rounds if made.branch == branch and made.hops]
        return spoken[-1].spoke[-1] if spoken and spoken[-1].spoke else ""

    def with_others(self, first: Part) -> Part:
        """The first turn of a round. In an independent team the other turns begin with it."""
        made = first.made
        beside = made.queue[: self.rules.hop_limit - 1] if self.is_independent else []
        if beside:
            first.lane = 1
            made.queue = made.queue[len(beside) :]
        self.pending += [
            Part(made, role, lane, lane=lane) for lane, role in enumerate(beside, start=2)
        ]
        return first

    def began(self, data: Mapping[str, Any]) -> None:
        """Handle a round that the ledger reports: begun by a message or by a person's request."""
        if data.get("goes_on"):
            self.goes_on(data["round"])
        elif data.get("again"):
            return
        elif self.rounds and not self.rounds[-1].pk:
            self.rounds[-1].pk = data["round"]
        else:
            raise Violation("a round came from nowhere")

    def goes_on(self, pk: str) -> None:
        """Continue the last round of a branch with its limits reset."""
        branch = self.known.branch_of[pk]
        last = [made for made in self.rounds if made.branch == branch][-1]
        busy = any(p.status == "queued" and p.made.branch == branch for p in self.parts.values())
        if last.status not in ENDED_EARLY or busy:
            raise Violation(f"a round went on that is {last.status}, or beside another")
        roles = last.queue or engine.build_opening_queue(
            MEMBERS, self.rules, addressees=[], last=self.last_speaker(branch)
        )
        made = Expected(len(self.rounds) + 1, branch, last.opening, list(roles[1:]), pk=pk)
        self.rounds.append(made)
        first = Part(made, roles[0], 1)
        self.pending.append(first)
        self.with_others(first)

    def again(self, branch: str, pk: str) -> Part:
        """Regenerate a reply on a new branch."""
        turn, plays_on = self.known.asked[branch]
        source = self.parts[turn]
        later = [p for p in self.parts.values() if p.made is source.made and p.hop > source.hop]
        roles = dict.fromkeys(p.role for p in sorted(later, key=lambda p: p.hop) if p.role)
        made = Expected(
            len(self.rounds) + 1,
            branch,
            source.made.opening,
            list(roles) if plays_on else [],
            hops=source.hop - 1,
            only=not plays_on,
            pk=pk,
        )
        self.rounds.append(made)
        return Part(made, source.role, source.hop)

    def follows(self, turn: str, data: Mapping[str, Any]) -> None:
        """Handle a turn that the round created, or that a person requested without a message."""
        if self.pending:
            self.parts[turn] = self.pending.pop(0)
            return
        branch, pk = self.known.branch_of[turn], data["round"]
        if branch in self.known.asked and all(made.pk != pk for made in self.rounds):
            self.parts[turn] = self.again(branch, pk)
            return
        here = [key for key, part in self.parts.items() if part.made.branch == branch]
        last = self.parts[here[-1]] if here else None
        if last is None or here[-1] not in self.known.retried or last.status != "failed":
            raise Violation("a turn came from nowhere")
        made = last.made
        made.status, made.hops = "running", made.hops - 1
        made.speakers = without_last(made.speakers, last.role)
        made.spoke = without_last(made.spoke, last.role)
        self.parts[turn] = Part(made, last.role, last.hop, tries=last.tries + 1)

    def absorbed(self, turn: str) -> None:
        """Handle a turn that another made unnecessary: a lane that has not begun, or the next turn.

        If the first lane was stopped before any lane began, the first lane that begins includes
        later messages. Their turn then has nothing left to do.
        """
        part = self.parts[turn]
        is_late = bool(part.lane) and part.made.status == "replaced"
        is_next = not part.role and bool(self.beside(part.made))
        if part.status != "queued" or not (is_late or is_next):
            raise Violation("a turn of a round was absorbed by another one")
        part.status = "absorbed"

    def stopped(self, pk: str) -> None:
        """A person stopped all parallel replies."""
        made = next(made for made in self.rounds if made.pk == pk)
        if made.status == "running" and not self.beside(made):
            raise Violation("a round was stopped before its reply")
        made.status = "stopped"

    def beside(self, made: Expected, *, but: Part | None = None) -> list[Part]:
        """The lanes of a round that have not ended."""
        found = (p for p in self.parts.values() if p.made is made and p.lane and p is not but)
        return [part for part in found if part.status == "queued"]

    def over(self, turn: str, status: str) -> None:
        """Handle the end of a turn and decide who replies next."""
        part = self.parts[turn]
        if part.status != "queued" or self.pending:
            raise Violation("a turn ended twice, or its predecessor left no successor")
        part.status = status
        made = part.made
        if part.role:
            self.count(part)
        others = self.beside(made, but=part)
        unnamed = (
            pk
            for pk, p in self.parts.items()
            if not p.role and p.status == "queued" and p.made.branch == made.branch
        )
        behind = next(unnamed, "")
        if made.status == "running":
            if others:
                self.note_calls(part, others=others)
            else:
                self.go_on(part, behind=behind)
        if part.lane and status == "stopped" and made.status == "stopped":
            made.queue = list(dict.fromkeys([*made.queue, part.role]))
        if behind and not self.parts[behind].role and not others:
            self.open(behind, [], opening=self.words[behind])

    def count(self, part: Part) -> None:
        """Count a reply that has ended."""
        made, says = part.made, self.line(part)
        completed = part.status == "completed"
        made.hops += 1
        made.spoke.append(part.role)
        made.speakers.append(part.role)
        made.passes = made.passes + 1 if completed and says.passes else 0
        made.tokens += INPUT + OUTPUT if completed else 0

    def line(self, part: Part) -> Line:
        """The scripted reply of a turn."""
        return line(self.kind, part.made.number, part.hop, tries=part.tries)

    def note_calls(self, part: Part, *, others: Sequence[Part]) -> None:
        """An agent mentioned while others still reply gets a turn after all of them."""
        if part.status != "completed":
            return
        roles, _ = engine.resolve_member_names(
            self.line(part).called, members=MEMBERS, speaker=part.role
        )
        busy = {other.role for other in others}
        queue = [*part.made.queue, *(role for role in roles if role not in busy)]
        part.made.queue = list(dict.fromkeys(queue))

    def go_on(self, part: Part, *, behind: str) -> None:
        """Apply the engine's decision."""
        made = part.made
        lanes = [p for p in self.parts.values() if p.made is made and p.lane and part.lane]
        if part.status == "stopped" and not any(p.status == "completed" for p in lanes):
            made.status = "stopped"
            return
        if made.only:
            made.status = "settled"
            return
        standing = engine.Standing(
            queue=tuple(made.queue),
            speakers=tuple(made.speakers),
            hops=made.hops,
            tokens=made.tokens,
            seconds=0,
            passes=made.passes,
        )
        found = engine.decide_next_speaker(
            standing,
            MEMBERS,
            self.rules,
            speaker=part.role,
            called=self.line(part).called if part.status == "completed" else (),
            failed=part.status == "failed" or any(p.status == "failed" for p in lanes),
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
            self.pending.append(following)
