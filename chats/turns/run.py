"""The work on one turn, from its opening to its end, as a coroutine on the worker's loop.

Read it top down: `run` waits for the opening, `worker.heartbeats` keeps the lease alive;
`TurnAttempt.work` repeats steps; `TurnAttempt.answer` calls the model with patience; `turns.call`
reads one stream. Every write is in `turns.steps`.
"""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError

from chats.compaction import window
from chats.compaction.publish import publish_prepared
from chats.ground.leases import LeaseLost
from chats.ground.live import Frame
from chats.ground.refusals import Refusal
from chats.memory.meaning import Look
from chats.models import Message, Turn
from chats.prompt import composition, model_choice, tail
from chats.prompt.tools.history_search import query_in
from chats.providers.base import Provider, ProviderError
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns import lanes, overflow_learning, references, state_extraction, steps
from chats.turns import lease as leases
from chats.turns.call import ModelCall
from chats.turns.lease import Heartbeat, Partial
from chats.turns.opening import Opening
from chats.turns.steps import Ending
from contextpolicy.engine.calibration import Factors
from contextpolicy.engine.messages import ToolCallPart
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.resolution import values_of

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

STOP, LOST, SHUTDOWN = "stop", "lost", "shutdown"
# How often a finished reply asks for its place, and how long it waits for one that has no worker.
PLACE_EVERY, UNBEGUN_SECONDS = 0.2, 10
CUT_SENTENCE = "The reply broke off before its end. The text so far is kept; continue or try again."


class Worker(Protocol):
    """The process that works on a turn, as the turn sees it (`worker.runtime`, or a test)."""

    clock: Callable[[], datetime]

    @property
    def counter(self) -> TokenCounter:
        """The counter of the tokens that are stored and sent."""
        ...

    async def db(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function off the loop; broken connections are tried again."""
        ...

    async def aside(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function that no reply needs, where it takes no thread from others."""
        ...

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Send a frame on the live bus."""
        ...

    def provider(self, account: Account) -> Provider:
        """Return the adapter for a provider account."""
        ...


async def run(
    *,
    opened: Awaitable[Opening | None],
    asked_at: float,
    worker: Worker,
    runs: dict[uuid.UUID, "TurnAttempt"],
) -> None:
    """Work on the turn that is opened; one that cannot be claimed belongs to another worker.

    `asked_at` is when its opening was asked for, by the monotonic clock.
    """
    opening = await opened
    if opening is None:
        return
    turn_id = opening.turn.pk
    current = TurnAttempt(opening=opening, worker=worker)
    runs[turn_id] = current
    try:
        if time.monotonic() - asked_at > settings.HEARTBEAT_EVERY:
            # The lease has run since the claim, and the next heartbeat may be far off.
            current.obey((await worker.db(leases.renew, leases=[opening.lease]))[0])
        await current.to_the_end()
    finally:
        if runs.get(turn_id) is current:
            del runs[turn_id]


class EmptyReply(Refusal):
    """The model replied, but without a word."""

    code = "empty_reply"
    sentence = "The model answered twice without any text. Your message is saved; try again."


class Interrupted(Exception):
    """The attempt was told to end because this process shuts down."""


class TurnAttempt:
    """One attempt at one turn."""

    def __init__(self, *, opening: Opening, worker: Worker) -> None:
        self.lease = opening.lease
        self.worker = worker
        # As the open step read it.
        self.turn = opening.turn
        # Kept until its prompt and its call are used.
        self.opening: Opening | None = opening
        self.prompt: composition.Prompt | None = None
        self.reason = ""
        self.interrupted = asyncio.Event()
        self.call: ModelCall | None = None
        self.saved = 0

    def interrupt(self, reason: str) -> None:
        """End the attempt as soon as possible: `STOP`, `LOST` or `SHUTDOWN`; the first counts."""
        if not self.reason:
            self.reason = reason
            self.interrupted.set()

    async def to_the_end(self) -> None:
        """Work until the turn is over or no longer ours; `worker.heartbeats` keeps the lease."""
        try:
            await self.work()
        except LeaseLost:
            logger.info("turn %s is no longer ours", self.lease.turn_id)
        except Interrupted:
            await self.hand_back()
        except (OperationalError, InterfaceError) as error:
            # Nothing can be written, least of all a failure: the next attempt begins anew.
            logger.warning(
                "turn %s: left to the sweep: %s", self.lease.turn_id, type(error).__name__
            )
        except Exception:
            # Unforeseen: say so in the chat instead of an endless spinner, and in the log.
            logger.exception("turn %s failed unexpectedly", self.lease.turn_id)
            with suppress(LeaseLost):
                await self.fail(
                    "internal_error",
                    "Something went wrong on this server. Your message is saved; try again.",
                )

    async def work(self) -> None:
        """Work step after step, while tools ran or messages arrived."""
        if self.turn.attempt > 1:
            self.say("restarted")
        while True:
            # The text of the step before is stored; it is not part of this one.
            self.call = None
            self.saved = 0
            self.say("step")
            if self.turn.stop_requested_at:
                self.interrupt(STOP)
            try:
                goes_on = await self.step()
            except Refusal as refusal:
                await self.fail(refusal.code, refusal.sentence)
                return
            if not goes_on:
                return
            self.turn = await self.worker.db(
                steps.open_step,
                lease=self.lease,
                counter=self.worker.counter,
                now=self.worker.clock(),
            )

    async def step(self) -> bool:
        """Compose, call, store; return True when another step follows."""
        prompt = self.opening.prompt if self.opening else None
        call = await self.answer(prompt or await self.compose())
        if self.reason == STOP:
            await self.stopped(call)
            return False
        if call.error:
            await self.fail(call.error.code, call.error.sentence, call=call)
            return False
        return await self.finish(call)

    async def compose(self, *, smaller_than: int | None = None) -> composition.Prompt:
        """Compose the prompt of the running step; move the window first if needed."""
        turn = self.turn
        for _ in range(5):
            prompt = await self.worker.db(
                composition.compose,
                turn=turn,
                counter=self.worker.counter,
                window_limit=smaller_than,
            )
            if isinstance(prompt, tail.TailDue):
                await self.build_tail(prompt)
                continue
            if isinstance(prompt, composition.Prompt) and prompt.need.action != "swap":
                return prompt
            # A summary that is ready goes into force now; when none is, nobody waits for one.
            if await self.worker.db(
                publish_prepared, branch_id=turn.branch_id, now=self.worker.clock()
            ):
                continue
            if isinstance(prompt, composition.Prompt):
                return prompt
            await self.worker.db(
                window.move, branch_id=turn.branch_id, move=prompt, now=self.worker.clock()
            )
        raise RuntimeError("the window moved again and again and the prompt still does not fit")

    async def build_tail(self, due: tail.TailDue) -> None:
        """Build what is missing of the tail, once per turn; a stop is heeded before the reply."""
        if due.state:
            await self.read_state(due.choice)
        if due.references:
            found = await references.look_up(
                self.turn,
                values=due.choice.values,
                counter=self.worker.counter,
                aside=self.worker.aside,
                room=due.room,
                sent=due.sent,
            )
            self.turn.tail = await self.worker.db(
                references.keep, lease=self.lease, turn=self.turn, found=found
            )

    async def read_state(self, choice: model_choice.ChosenModel) -> None:
        """Bring the state up to the question."""
        tail = await self.worker.db(
            state_extraction.begin,
            lease=self.lease,
            turn=self.turn,
            choice=choice,
            counter=self.worker.counter,
            now=self.worker.clock(),
        )
        if isinstance(tail, state_extraction.Extraction):
            self.say("state", state_extraction.SENTENCE)
            call = await state_extraction.ask(
                tail,
                provider=self.worker.provider(tail.account),
                clock=self.worker.clock,
                interrupted=self.interrupted,
            )
            self.say("state")
            self.go_on_unless_gone()
            tail = await self.worker.db(
                state_extraction.finish,
                lease=self.lease,
                turn=self.turn,
                extraction=tail,
                call=call,
                stopped=self.reason == STOP,
                now=self.worker.clock(),
            )
        self.turn.tail = tail

    async def answer(self, prompt: composition.Prompt) -> ModelCall:
        """Call the model; before its first token retry a passing fault, and an overflow once.

        A reply without any text is tried again once, silently. Raises `EmptyReply`.
        """
        overflowed = emptied = False
        number = 0
        while True:
            number += 1
            call = await self.one_call(prompt, number)
            overflow = (
                None
                if overflowed or self.reason
                else overflow_learning.overflow_of(call, model=self.turn.model)
            )
            if overflow is not None and not (overflowed or self.reason):
                overflowed = True
                smaller = await self.shrink(prompt, overflow)
                if smaller is None:
                    return call
                prompt = smaller
                await self.drop(call, overflow)
                continue
            if self.reason or call.is_useful:
                return call
            plain = await self.without_tools(call, prompt)
            if plain is not None:
                prompt = plain
                continue
            if call.error is not None and not await self.wait_to_retry(call.error, number):
                call.error.sentence = told(call.error, provider=prompt.account.name, calls=number)
                return call
            await self.close_receipt(call)
            if call.error is None and emptied:
                raise EmptyReply
            emptied = call.error is None

    async def without_tools(
        self, call: ModelCall, prompt: composition.Prompt
    ) -> composition.Prompt | None:
        """Return a prompt without tools if the server refused the call for them; remember that."""
        refused = call.error is not None and call.error.code == "tools_unsupported"
        if not refused or not prompt.request.tools or self.turn.model is None:
            return None
        if self.turn.client is not None:
            # They are the program's: it is told, and decides.
            return None
        await self.close_receipt(call)
        self.turn.model = await self.worker.db(
            steps.note_no_tools, model=self.turn.model, now=self.worker.clock()
        )
        return await self.compose()

    async def shrink(
        self, prompt: composition.Prompt, overflow: ProviderError
    ) -> composition.Prompt | None:
        """Return a smaller prompt, and remember the model's limit; None if no part can leave."""
        if self.turn.model is not None:
            await self.worker.db(
                overflow_learning.learn,
                model_id=self.turn.model.pk,
                limit=overflow_learning.taught(prompt, overflow),
                now=self.worker.clock(),
            )
        try:
            return await self.compose(smaller_than=overflow_learning.shrunk(prompt, overflow))
        except composition.PromptRefused:
            # The parts that may not leave the prompt are already too much for this model.
            return None

    async def drop(self, call: ModelCall, overflow: ProviderError) -> None:
        """Book a call whose reply does not count, and take back what was shown of it."""
        was_shown = call.is_useful
        call.error = overflow
        await self.close_receipt(call)
        if was_shown:
            self.call = None
            self.turn.begun_anew += 1
            await self.worker.db(
                leases.write,
                lease=self.lease,
                begun_anew=self.turn.begun_anew,
                partial_text="",
                partial_reasoning="",
            )
            self.say("anew")

    async def one_call(self, prompt: composition.Prompt, number: int) -> ModelCall:
        """Book one call, then listen to it."""
        receipt_id = await self.booked(prompt, number)
        self.prompt = prompt
        call = ModelCall(
            receipt_id=receipt_id,
            say=self.say,
            clock=self.worker.clock,
            # A program gets the text as it came.
            folds_thoughts=self.turn.client is None,
        )
        self.call = call
        self.saved = 0
        if not self.reason:
            provider = self.worker.provider(prompt.account)
            await call.listen(provider, prompt.request, interrupted=self.interrupted)
        self.go_on_unless_gone()
        return call

    async def booked(self, prompt: composition.Prompt, number: int) -> uuid.UUID:
        """Return the receipt of a call that is about to be made; the first call has it already."""
        opening, self.opening = self.opening, None
        if opening is not None and opening.receipt_id is not None:
            return opening.receipt_id
        return await self.worker.db(
            steps.book_call,
            lease=self.lease,
            turn=self.turn,
            prompt=prompt,
            call=number,
            now=self.worker.clock(),
        )

    def go_on_unless_gone(self) -> None:
        """Raise `LeaseLost` or `Interrupted` when this attempt may write nothing more."""
        if self.reason == LOST:
            raise LeaseLost(self.lease.turn_id)
        if self.reason == SHUTDOWN:
            raise Interrupted

    async def close_receipt(self, call: ModelCall) -> None:
        """Book the end of a call that is followed by another."""
        await self.worker.db(
            steps.close_call,
            receipt_id=call.receipt_id,
            ending=self.ending(call),
            now=self.worker.clock(),
        )

    async def wait_to_retry(self, error: ProviderError, number: int) -> bool:
        """Wait before the next call, shown in the page; return False when there is none."""
        if not error.retryable or number >= settings.PROVIDER_CALLS:
            return False
        seconds = error.retry_after
        if seconds is None:
            # Full jitter: many turns that failed together do not come back together.
            ceiling = min(settings.PROVIDER_BACKOFF_MAX, 2.0 ** (number - 1) * 2)
            seconds = random.uniform(min(1.0, ceiling), ceiling)  # noqa: S311  # spreading load, no secret
        elif seconds > 60:
            error.sentence = (
                f"The model provider asks to wait {seconds:.0f} seconds."
                " Your message is saved; try again after that."
            )
            return False
        until = self.worker.clock() + timedelta(seconds=seconds)
        await self.worker.db(leases.write, lease=self.lease, waiting_until=until)
        self.say("state", f"Waiting for the provider until {until:%H:%M:%S} UTC.")
        with suppress(TimeoutError):
            await asyncio.wait_for(self.interrupted.wait(), seconds)
        self.go_on_unless_gone()
        await self.worker.db(leases.write, lease=self.lease, waiting_until=None)
        return not self.reason

    async def finish(self, call: ModelCall) -> bool:
        """Store the model's reply; return False when the turn has ended."""
        await self.use_tools(call)
        await self.await_place()
        if call.finish == Message.Finish.INCOMPLETE:
            await self.fail("reply_incomplete", CUT_SENTENCE, call=call)
            return False
        goes_on = await self.worker.db(
            steps.close_step,
            lease=self.lease,
            ending=self.ending(call),
            counter=self.worker.counter,
            now=self.worker.clock(),
        )
        if not goes_on:
            self.say("end")
        return goes_on

    async def use_tools(self, call: ModelCall) -> None:
        """Run the model's tool calls; at the step limit the reply ends there, and says so."""
        if call.finish not in {Message.Finish.TOOL_CALLS, Message.Finish.STOP}:
            return
        # Some servers say "stop" beside tool calls, others "tool_calls" without any.
        call.finish = Message.Finish.TOOL_CALLS if call.requests else Message.Finish.STOP
        if not call.requests or self.turn.client is not None:
            # A program runs its own tools, and comes back with their results.
            return
        offered = {spec.name for spec in self.prompt.request.tools} if self.prompt else set()
        for index, request in call.requests.items():
            look = await self.look_for(request) if request.name in offered else None
            result = await self.worker.db(
                steps.use_tool,
                lease=self.lease,
                turn=self.turn,
                call=request,
                offered=offered,
                counter=self.worker.counter,
                now=self.worker.clock(),
                sent=self.prompt.sent_seqs if self.prompt else (),
                look=look,
            )
            if result is not None:
                call.results[index] = result
        if self.turn.step >= settings.MAX_STEPS:
            call.finish = Message.Finish.LIMIT

    async def look_for(self, request: ToolCallPart) -> Look | None:
        """Return the comparison by meaning for a search, if an embedding model is configured."""
        if self.prompt is None:
            return None
        return await references.look_for(
            query_in,
            values=values_of(self.prompt.effective),
            aside=self.worker.aside,
            arguments=request.arguments,
            owner_id=self.turn.branch.chat.owner_id,
        )

    async def stopped(self, call: ModelCall) -> None:
        """End a reply that a person stopped: its text so far is the reply."""
        call.finish = Message.Finish.STOPPED
        await self.end_early(Turn.Status.STOPPED, self.ending(call))

    async def fail(self, code: str, sentence: str, *, call: ModelCall | None = None) -> None:
        """End the turn with a failure; text that was already shown is kept as incomplete."""
        if call is not None:
            call.finish = Message.Finish.INCOMPLETE
        elif self.call is not None and self.call.has_text:
            call = self.call
            call.finish = Message.Finish.INCOMPLETE
        await self.end_early(Turn.Status.FAILED, self.ending(call, code=code, sentence=sentence))

    async def await_place(self) -> None:
        """Wait until the replies before this one in their round are over, to stand behind them.

        One that nobody has begun again for long keeps no other from its end.
        """
        give_up = time.monotonic() + UNBEGUN_SECONDS
        while self.turn.lane:
            states = await self.worker.db(lanes.before, turn=self.turn)
            if Turn.Status.RUNNING in states:
                give_up = time.monotonic() + UNBEGUN_SECONDS
            if not states or time.monotonic() > give_up:
                return
            await asyncio.sleep(PLACE_EVERY)
            self.go_on_unless_gone()

    async def end_early(self, status: str, ending: Ending) -> None:
        """Write the end and send it on."""
        await self.await_place()
        await self.worker.db(
            steps.end_early,
            lease=self.lease,
            status=status,
            ending=ending,
            counter=self.worker.counter,
            now=self.worker.clock(),
        )
        self.say("end")

    def ending(self, call: ModelCall | None, *, code: str = "", sentence: str = "") -> Ending:
        """Return how the call ended, as a value."""
        if call is None:
            return Ending(error_code=code, error_sentence=sentence)
        if call.error and not code:
            code, sentence = call.error.code, call.error.sentence
        return Ending(
            parts=call.parts() if call.is_useful else (),
            finish=call.finish,
            usage=call.usage,
            body_sha256=call.body_sha256,
            receipt_id=call.receipt_id,
            first_token_at=call.first_token_at,
            error_code=code,
            error_sentence=sentence,
            fold_from=self.prompt.fold_from if self.prompt else None,
            warm_from=self.prompt.warm_from if self.prompt else None,
            light_model=self.prompt.light_model if self.prompt else "",
            strategy=self.prompt.strategy if self.prompt else "",
            tells=self.prompt.tells if self.prompt else False,
            infers=self.prompt.infers if self.prompt else False,
            estimate=self.prompt.prompt_tokens if self.prompt else 0,
            factors=self.prompt.factors if self.prompt else Factors(),
            shares=self.prompt.shares if self.prompt else {},
        )

    async def hand_back(self) -> None:
        """Hand the turn back, because this process ends: another one begins again at once."""
        with suppress(LeaseLost):
            await self.worker.db(steps.hand_back, lease=self.lease, now=self.worker.clock())
            self.say("restarted")

    def unsaved(self) -> Partial | None:
        """Return the text so far, if there is more of it than at the last checkpoint."""
        call = self.call
        if call is None or call.length <= self.saved:
            return None
        self.saved = call.length
        return Partial(
            lease=self.lease,
            step=self.turn.step,
            begun_anew=self.turn.begun_anew,
            text=str(call.text) if call.has_text else "",
            reasoning=str(call.reasoning),
        )

    def obey(self, beat: Heartbeat) -> None:
        """Heed what a heartbeat learned: the turn was asked to stop, or is no longer ours."""
        if beat is Heartbeat.STOP:
            self.interrupt(STOP)
        elif beat is Heartbeat.LOST:
            self.interrupt(LOST)

    def say(self, kind: str, text: str = "", offset: int = 0) -> None:
        """Send one frame on the live bus."""
        turn = self.turn
        frame = Frame(
            kind=kind,
            attempt=turn.attempt,
            step=turn.step,
            anew=turn.begun_anew,
            offset=offset,
            text=text,
        )
        self.worker.put(turn.pk, frame)


def told(error: ProviderError, *, provider: str, calls: int) -> str:
    """Say beside the error's own words whose it is, with which status, and how often it was tried.

    At most as much as a turn keeps.
    """
    facts = [provider] if provider else []
    if error.status is not None:
        facts.append(f"status {error.status}")
    facts.append("asked once" if calls == 1 else f"asked {calls} times")
    return f"{error.sentence} ({', '.join(facts)}.)"[:500]
