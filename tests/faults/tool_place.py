"""A chat whose model calls tools of a server, and the checks after each kill.

Django must be set up first; `borders` does that.
"""

import atexit
import json
import random
import subprocess
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import lifecycle
from chats.models import Chat, Message, ToolCall, ToolStep, Turn
from chats.models.turns import UNFINISHED
from chats.prompt.tokenizer import O200kCounter
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.tool_servers.results import format_failure
from chats.tool_servers.servers import read_definitions, request_reading, save_tool_server
from chats.turns.consents import decide_tool_call, expire_consents
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy.models import AuditEvent, ModelSpec, ToolDefinition, ToolServer
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.tool_servers import approve_definition
from tests.faults import town
from tests.faults.borders import Deed, in_child
from tests.faults.laws import Violation
from tests.faults.programs import python
from tests.support.repository import ROOT
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

SLUG = "kills"
# A few more boundaries than a message, a turn with three calls and a decision have.
MESSAGE_BORDERS, BORDERS, DECISION_BORDERS = 24, 110, 15
# A turn with calls takes about this time.
SECONDS = 1.2
KILLS_OF_A_TURN = 2
DECISIONS = ("once", "chat", "deny", "expire", "stop")
Outcome, Consent = ToolCall.Outcome, ToolCall.Consent


class ToolLog:
    """The tool server's process and its list of calls."""

    def __init__(self) -> None:
        self.path = Path(settings.DATA_DIR) / "calls.jsonl"
        self.path.touch()
        self.process = subprocess.Popen(  # our own module
            python("-m", "tests.faults.tool_log", str(self.path)),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # It reports each connection of a killed caller.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self.close)
        if self.process.stdout is None:
            raise RuntimeError("the tool server has no pipe")
        self.port = int(self.process.stdout.readline())

    def count(self) -> Counter[tuple[str, str]]:
        """The number of calls of each tool with each text."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return Counter((tool, text) for tool, text in map(json.loads, lines))

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def prepare() -> ToolLog:
    """Start the tool server, approve its tools, and create a model and a policy that use them."""
    now, log = timezone.now(), ToolLog()
    host = f"127.0.0.1:{log.port}"
    settings.ALLOWED_PRIVATE_PROVIDERS = [*settings.ALLOWED_PRIVATE_PROVIDERS, host]
    values = {"slug": SLUG, "name": "Kills", "transport": "http", "url": f"http://{host}/mcp"}
    server = save_tool_server(server=ToolServer(), values=values, actor="system", now=now)
    request_reading(server, now=now)
    # This imports the package of tool servers, which no child then has to.
    read_definitions(server_id=server.pk, counter=O200kCounter(), now=now)
    for tool in ToolDefinition.objects.all():
        approve_definition(tool, digest=tool.digest, actor="system", now=now)
    ToolDefinition.objects.filter(name="send").update(asks=True)
    ModelSpec.objects.create(
        slug=SLUG, provider="demo", name=SLUG, context_window=128_000, supports_tools=True
    )
    create_policy(slug=SLUG, name=SLUG, values={"tools": [f"{SLUG}/*"]}, actor="system", now=now)
    return log


class ToolPlace:
    """A chat in which each question leads to calls of tools, one question at a time."""

    def __init__(self, owner: User, number: int, *, log: ToolLog, dice: random.Random) -> None:
        now = timezone.now()
        self.owner, self.name, self.log, self.dice = owner, f"tools {number}", log, dice
        model = ModelSpec.objects.get(slug=SLUG)
        self.chat = lifecycle.create_chat(owner=owner, now=now, model=model, title=self.name)
        policy = create_policy(
            slug=f"{SLUG}-{number}",
            name=self.name,
            values={"tools": [f"{SLUG}/*"]},
            actor="system",
            now=now,
        )
        assign_policy(policy=policy, level="chat", chat_id=self.chat.pk, actor="system", now=now)
        self.number = self.unknown = 0
        # The tools and texts of the calls of a question, and the decision about each call.
        self.asked: dict[str, list[tuple[str, str]]] = {}
        self.decided: dict[int, str] = {}

    def step(self, seen: Counter[tuple[str, str]]) -> int:
        """Ask, or continue the current question, with kills. Return their number."""
        turn = self.find_turn()
        if turn is not None and turn.awaits_consent:
            return self.decide(turn, seen)
        killed = 0
        if turn is None:
            key = self.ask()
            died = in_child(self.asking(key), at=self.dice.randrange(1, MESSAGE_BORDERS))
            killed += self.note("message", died, seen)
            self.asking(key)()
            turn = self.find_turn()
            if turn is None:
                raise Violation("an accepted message has no turn")
        return killed + self.work(turn, seen)

    def note(self, name: str, died: bool, seen: Counter[tuple[str, str]]) -> bool:
        """Count an operation and check the calls so far."""
        seen[name, "killed" if died else "ended"] += 1
        self.look()
        return died

    def find_turn(self) -> Turn | None:
        """The turn that has not ended."""
        turns = Turn.objects.filter(branch__chat=self.chat, status__in=UNFINISHED)
        return turns.select_related("branch__chat", "trigger").first()

    def ask(self) -> str:
        """Choose the calls of the next question; return its text."""
        self.number += 1
        text = f"{self.name}, question {self.number}"
        names = self.dice.sample(["write", "look", "send", "write"], self.dice.choice([1, 2, 3]))
        self.asked[text] = [(name, f"{text}, {place}") for place, name in enumerate(names)]
        return text

    def list_asked(self, turn: Turn) -> list[tuple[str, str]]:
        """The tools and texts of the calls of a turn's question."""
        if turn.trigger is None:
            raise Violation("a turn has no question")
        return self.asked[turn.trigger.text]

    def asking(self, text: str) -> Deed:
        """The message as an operation. It may be repeated."""
        chat = Chat.objects.get(pk=self.chat.pk)
        given: dict[str, Any] = {"user": self.owner, "chat": chat, "idempotency_key": text}
        return lambda: start_turn(text=text, now=timezone.now(), **given)

    def work(self, turn: Turn, seen: Counter[tuple[str, str]]) -> int:
        """Let workers process a turn until it ends or waits; some are killed."""
        killed = 0
        while killed < KILLS_OF_A_TURN:
            place = self.choose_place()
            died = in_child(partial(self.answer, turn), **place)
            self.note("tools", died, seen)
            if not died:
                break
            killed += 1
            town.declare_dead(self.chat)
            if self.find_turn() is None:
                break
        turn.refresh_from_db()
        if turn.status in UNFINISHED and not turn.awaits_consent:
            self.answer(turn)
        turn.refresh_from_db()
        if turn.status in UNFINISHED and not turn.awaits_consent:
            raise Violation(f"a turn with tools stays {turn.status}")
        self.look()
        return killed

    def choose_place(self) -> dict[str, Any]:
        """Where a worker is killed: during a call, at a boundary, or after some time."""
        found = self.dice.random()
        if found < 0.4:
            size = self.log.path.stat().st_size
            return {"when": lambda: self.log.path.stat().st_size > size}
        if found < 0.7:
            return {"at": self.dice.randrange(1, BORDERS)}
        return {"seconds": self.dice.random() * SECONDS}

    def answer(self, turn: Turn) -> None:
        """Work on a turn: the model calls the tools, then replies to their results."""
        calls = [
            ToolCallDelta(place, f"call-{place}", f"{SLUG}__{name}", json.dumps({"text": text}))
            for place, (name, text) in enumerate(self.list_asked(turn))
        ]
        script: list[Any] = []

        def has_called() -> bool:
            steps = Message.objects.filter(turn=turn, finish=Message.Finish.TOOL_CALLS)
            return steps.exists()

        async def speak(worker: InlineWorker) -> None:
            if await worker.db(has_called):
                script.extend([TextDelta("Done."), Finished("stop")])
            else:
                script.extend([TextDelta("Let me see."), *calls, Finished("tool_calls")])

        script.append(speak)
        worker = InlineWorker(ScriptedProvider([script]))
        async_to_sync(worker.turn)(turn.pk)

    def decide(self, turn: Turn, seen: Counter[tuple[str, str]]) -> int:
        """Decide about a waiting call, killed at a boundary, and again until it is decided."""
        row = ToolCall.objects.filter(turn=turn, consent=Consent.WAITING).first()
        if row is None:
            raise Violation("a turn waits for consent to no call")
        decision = self.decided[row.pk] = self.dice.choice(DECISIONS)
        action = partial(self.store_decision, turn, row, decision)
        died = in_child(action, at=self.dice.randrange(1, DECISION_BORDERS))
        self.note("consent", died, seen)
        row.refresh_from_db()
        if row.consent == Consent.WAITING:
            action()
        row.refresh_from_db()
        if row.consent == Consent.WAITING:
            raise Violation("a decided call still waits")
        turn.refresh_from_db()
        if turn.status in UNFINISHED and not turn.awaits_consent:
            return died + self.work(turn, seen)
        return died

    def store_decision(self, turn: Turn, row: ToolCall, decision: str) -> None:
        """Decide about a call, let its time pass, or stop its turn."""
        now = timezone.now()
        if decision == "expire":
            expire_consents(now=now + timedelta(hours=settings.TOOL_CONSENT_HOURS + 1))
        elif decision == "stop":
            stop_turn(user=self.owner, turn=turn, now=now)
        else:
            given: Any = {"user": self.owner, "turn": turn, "call_id": row.pk, "decision": decision}
            decide_tool_call(now=now, **given)

    def look(self) -> None:
        """Check every call against the server's list of calls."""
        made = self.log.count()
        for turn in Turn.objects.filter(branch__chat=self.chat).select_related("trigger"):
            rows = list(ToolCall.objects.filter(turn=turn).order_by("place"))
            asked = self.list_asked(turn)
            for row in rows:
                name, text = asked[row.place]
                if row.tool != name:
                    raise Violation("a call is stored with another tool")
                self.check_call(turn, row, made=made[name, text])
            if turn.status not in UNFINISHED:
                self.check_turn(turn, rows)

    def check_call(self, turn: Turn, row: ToolCall, *, made: int) -> None:
        """Check that a call was made as often as its row says."""
        what = f"{row.tool}, {row.outcome} ({row.code}), consent {row.consent or 'none'}"
        if row.tool != "look" and made > 1:
            raise Violation(f"a call ran {made} times: {what}")
        if row.tool == "look" and made > turn.attempt:
            raise Violation(f"a call ran {made} times in {turn.attempt} attempts: {what}")
        if row.outcome == Outcome.OK and not made:
            raise Violation(f"a call has a result and did not run: {what}")
        if row.outcome in {Outcome.REFUSED, Outcome.FAILED} and made:
            raise Violation(f"a call ran and is stored as not made: {what}")
        if row.consent in {Consent.WAITING, Consent.DENIED, Consent.EXPIRED} and made:
            raise Violation(f"a call ran without consent: {what}")
        if row.outcome == Outcome.UNKNOWN and row.tool == "look" and turn.status == "completed":
            raise Violation("a call that can be repeated was not")

    def check_turn(self, turn: Turn, rows: list[ToolCall]) -> None:
        """Check that an ended turn has one outcome, result and event for each call."""
        if turn.status not in {"completed", "stopped"} and turn.error_code not in town.MAY_FAIL:
            raise Violation(f"a turn with tools is {turn.status} ({turn.error_code})")
        if open_calls := [row.tool for row in rows if row.outcome == Outcome.OPEN]:
            raise Violation(f"a turn is {turn.status} and calls are in progress: {open_calls}")
        if ToolStep.objects.filter(turn=turn).exists() or any(row.content for row in rows):
            raise Violation("the texts of a step stay after the end of its turn")
        made = AuditEvent.objects.filter(
            turn_id=turn.pk, chat_id=self.chat.pk, type="tool.called"
        ).count()
        if made != len(rows):
            raise Violation(f"{len(rows)} calls have {made} events")
        if turn.status == "completed":
            self.check_results(turn, rows)

    def check_results(self, turn: Turn, rows: list[ToolCall]) -> None:
        """Check that the reply of a completed turn has the result of each call."""
        if len(rows) != len(self.list_asked(turn)):
            raise Violation("a call of the model has no row")
        parts = [part for row in Message.objects.filter(turn=turn) for part in row.parts]
        results = [part["content"] for part in parts if part["type"] == "tool_result"]
        if len(results) != len(rows):
            raise Violation(f"{len(rows)} calls have {len(results)} results")
        for row, result in zip(rows, results, strict=True):
            is_told = result == format_failure(row.code, is_unknown=True)
            if (row.outcome == Outcome.UNKNOWN) != is_told:
                raise Violation(f"the result of a call that is {row.outcome}: {result}")

    def settle(self) -> None:
        """End the current question, and count the calls whose outcome is unknown."""
        while (turn := self.find_turn()) is not None:
            if turn.awaits_consent:
                stop_turn(user=self.owner, turn=turn, now=timezone.now())
            town.declare_dead(self.chat)
            self.answer(turn)
        self.look()
        rows = ToolCall.objects.filter(turn__branch__chat=self.chat)
        self.unknown = rows.filter(outcome=Outcome.UNKNOWN).count()
