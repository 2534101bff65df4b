"""The work on one turn from opening to end, as a coroutine on the worker's event loop.

`run_opened_turn` waits for the opening, and `worker.heartbeats` keeps the lease alive.
`TurnAttempt.run_steps` repeats steps, `TurnAttempt.call_model` calls the model with retries, and
`turns.calling` reads one stream. All writes are in `turns.writes`.
"""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.functional import Promise
from django.utils.translation import gettext_noop

from chats.compaction import window
from chats.compaction.publish import publish_prepared
from chats.ground import turn_notices
from chats.ground.leases import LeaseLost
from chats.ground.live import Frame
from chats.ground.refusals import Refusal
from chats.ground.sentences import Sentence
from chats.memory.search.meaning import Look
from chats.memory.search.references import ChosenReferences
from chats.models import Message, ToolStep, Turn
from chats.prompt import built_prompt, composition, model_choice, tail
from chats.prompt.tools.history_search import query_in
from chats.prompt.tools.registry import NO_SKILLS, is_server_call
from chats.prompt.tools.skill_load import SkillFacts
from chats.providers.base import Provider, ProviderError
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns import (
    file_excerpts,
    lanes,
    overflow_learning,
    references,
    state_extraction,
    tool_steps,
    writes,
)
from chats.turns import lease as leases
from chats.turns.calling import ModelCall, ResumedCall
from chats.turns.lease import Heartbeat, Partial
from chats.turns.opening import ClaimedTurn
from chats.turns.server_tools import run_ready_call
from chats.turns.writes import StepResult
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.calibration import Factors
from contextpolicy.resolution import load_policy_values

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

STOP, LOST, SHUTDOWN = "stop", "lost", "shutdown"
# Seconds between a finished lane's checks whether earlier lanes have ended, and the longest wait
# for a lane that has no worker.
PLACE_EVERY, UNBEGUN_SECONDS = 0.2, 10
CUT_SENTENCE = gettext_noop(
    "The reply was cut off. The text so far is saved. Continue it or try again."
)
INTERNAL_SENTENCE = gettext_noop(
    "Something went wrong on this server. Your message is saved. Try again."
)
ASKED_SENTENCE = gettext_noop("called {calls} times")
WAIT_SENTENCE = gettext_noop(
    "The model provider requires a wait of {seconds:.0f} seconds. Your message is saved. Try "
    "again after that."
)


class Worker(Protocol):
    """The interface of the worker process to a turn: `worker.runtime`, or a test double."""

    clock: Callable[[], datetime]

    @property
    def counter(self) -> TokenCounter:
        """The token counter for stored and sent text."""
        ...

    async def db(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function in a thread. Retries after a lost connection."""
        ...

    async def aside(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run an optional database function in a thread that replies do not use."""
        ...

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None: ...

    def provider(self, account: Account) -> Provider: ...


async def run_opened_turn(
    *,
    opened: Awaitable[ClaimedTurn | None],
    asked_at: float,
    worker: Worker,
    runs: dict[uuid.UUID, "TurnAttempt"],
) -> None:
    """Work on the opened turn. Does nothing if another worker claimed it.

    `asked_at`: the monotonic time at which the opening was requested.
    """
    opening = await opened
    if opening is None:
        return
    turn_id = opening.turn.pk
    current = TurnAttempt(opening=opening, worker=worker)
    runs[turn_id] = current
    try:
        if time.monotonic() - asked_at > settings.HEARTBEAT_EVERY:
            # Renew now: the lease has been running since the claim, and the next heartbeat may come
            # late.
            current.on_heartbeat((await worker.db(leases.renew_leases, leases=[opening.lease]))[0])
        await current.run()
    finally:
        if runs.get(turn_id) is current:
            del runs[turn_id]


class EmptyReply(Refusal):
    """The model returned no text."""

    code = "empty_reply"
    sentence = gettext_noop(
        "The model returned an empty reply twice. Your message is saved. Try again."
    )


class Interrupted(Exception):
    """The attempt ends because this process shuts down."""


class ConsentRequired(Exception):
    """The attempt ends because the turn waits for a person's decision, without a worker."""


class TurnAttempt:
    """This worker's attempt at a turn, with the model call that it is making."""

    def __init__(self, *, opening: ClaimedTurn, worker: Worker) -> None:
        self.lease = opening.lease
        self.worker = worker
        # The row that was read when the step opened.
        self.turn = opening.turn
        # The opening, until its prompt and its call have been used.
        self.opening: ClaimedTurn | None = opening
        self.prompt: built_prompt.Prompt | None = None
        self.reason = ""
        self.interrupted = asyncio.Event()
        self.call: ModelCall | None = None
        self.saved = 0
        # The search for retrieved context, until its result is used or the request is sent.
        self.search: references.RunningSearch | None = None

    def interrupt(self, reason: str) -> None:
        """End the attempt as soon as possible with `STOP`, `LOST` or `SHUTDOWN`.

        If there are several reasons, the first one applies.
        """
        if not self.reason:
            self.reason = reason
            self.interrupted.set()

    async def run(self) -> None:
        """Work until the turn ends or its lease is lost. `worker.heartbeats` renews the lease."""
        try:
            await self.run_steps()
        except LeaseLost:
            logger.info("turn %s: lease lost", self.lease.turn_id)
        except Interrupted:
            await self.requeue_turn()
        except ConsentRequired:
            # Pages read the stored rows again, which now contain the request for consent.
            self.turn.begun_anew += 1
            self.publish("anew")
        except (OperationalError, InterfaceError) as error:
            # Not even a failure can be written. The next attempt starts over.
            logger.warning(
                "turn %s: left to a due job: %s", self.lease.turn_id, type(error).__name__
            )
        except Exception:
            # Report unexpected errors in the chat, so that the page does not wait forever.
            logger.exception("turn %s failed unexpectedly", self.lease.turn_id)
            with suppress(LeaseLost):
                await self.end_as_failed("internal_error", INTERNAL_SENTENCE)
        finally:
            self.cancel_search()

    async def run_steps(self) -> None:
        """Run steps as long as the previous one ran tools or new messages arrived."""
        if self.turn.attempt > 1:
            self.publish("restarted")
        while True:
            # The previous step's text is already stored and does not belong to this step.
            self.call = None
            self.saved = 0
            self.publish("step")
            if self.turn.stop_requested_at:
                self.interrupt(STOP)
            try:
                goes_on = await self.run_step()
            except Refusal as refusal:
                await self.end_as_failed(refusal.code, refusal.full)
                return
            if not goes_on:
                return
            self.turn = await self.worker.db(
                writes.open_step,
                lease=self.lease,
                counter=self.worker.counter,
                now=self.worker.clock(),
            )

    async def run_step(self) -> bool:
        """Compose the prompt, call the model, store the reply.

        Returns True if another step follows.
        """
        stored = self.opening.stored if self.opening else None
        if stored is not None:
            call: ModelCall = await self.resume_step(stored)
        else:
            prompt = self.opening.prompt if self.opening else None
            call = await self.call_model(prompt or await self.compose())
        if self.reason == STOP:
            await self.save_stopped_reply(call)
            return False
        if call.error:
            await self.end_as_failed(call.error.code, call.error.full, call=call)
            return False
        return await self.finish_step(call)

    async def resume_step(self, stored: ToolStep) -> ResumedCall:
        """Return the reply that an earlier attempt stored, without calling the model again."""
        self.opening = None
        call = ResumedCall(stored, say=self.publish, clock=self.worker.clock)
        self.call = call
        self.prompt = await self.compose()
        return call

    async def compose(self, *, smaller_than: int | None = None) -> built_prompt.Prompt:
        """Compose the prompt of the current step. Moves the window first if needed."""
        turn = self.turn
        due: tail.TailRequired | None = None
        if self.opening and self.opening.due:
            due, self.opening = self.opening.due, None
            await self.build_tail(due)
        # Five window moves, and a search result that comes after its time limit.
        for _ in range(6):
            due = await self.use_late_result() or due
            prompt = await self.worker.db(
                composition.compose_prompt,
                turn=turn,
                counter=self.worker.counter,
                window_limit=smaller_than,
                draft=due.draft if due else None,
            )
            due = None
            if isinstance(prompt, tail.TailRequired):
                due = prompt
                await self.build_tail(due)
                continue
            # Publish a summary that is ready. The turn never waits for one.
            is_summary_due = not (
                isinstance(prompt, built_prompt.Prompt) and prompt.need.action != "swap"
            )
            if is_summary_due and await self.worker.db(
                publish_prepared, branch_id=turn.branch_id, now=self.worker.clock()
            ):
                continue
            if isinstance(prompt, built_prompt.Prompt):
                if self.search is not None and self.search.task.done():
                    continue
                return prompt
            await self.worker.db(
                window.move_window, branch_id=turn.branch_id, move=prompt, now=self.worker.clock()
            )
        raise RuntimeError("the prompt does not fit after five window moves")

    async def build_tail(self, due: tail.TailRequired) -> None:
        """Build the missing parts of the tail, once per turn. A stop request ends the turn here."""
        if due.references:
            # The search runs while the other parts are built.
            self.search = references.start_search(
                self.turn, due=due, counter=self.worker.counter, aside=self.worker.aside
            )
        if due.state:
            await self.extract_state(due.choice)
        if due.files:
            chunks = await self.worker.db(
                file_excerpts.find_turn_excerpts,
                turn=self.turn,
                choice=due.choice,
                counter=self.worker.counter,
            )
            self.turn.tail = await self.worker.db(
                file_excerpts.store_file_excerpts, lease=self.lease, turn=self.turn, chunks=chunks
            )
        if self.search is not None:
            await self.store_result(self.search, await self.search.wait_for_result())

    async def use_late_result(self) -> tail.TailRequired | None:
        """Store the result of a search that ended after its time limit. Never waits.

        Returns the request for the search, or None without a result.
        """
        search = self.search
        if search is None or not search.task.done():
            return None
        await self.store_result(search, search.task.result())
        return search.due

    async def store_result(self, search: references.RunningSearch, found: ChosenReferences) -> None:
        """Store the retrieved context. A search that is still running stays in `search`."""
        if found.note != "late":
            self.search = None
        self.turn.tail = await self.worker.db(
            references.store_retrieved_context, lease=self.lease, turn=self.turn, found=found
        )

    def cancel_search(self) -> None:
        """Cancel the search if it is still running, and discard its result."""
        if self.search is not None:
            self.search.task.cancel()
            self.search = None

    async def extract_state(self, choice: model_choice.ChosenModel) -> None:
        """Have the model update the chat's state with the messages up to the question."""
        tail = await self.worker.db(
            state_extraction.begin_extraction,
            lease=self.lease,
            turn=self.turn,
            choice=choice,
            counter=self.worker.counter,
            now=self.worker.clock(),
        )
        if isinstance(tail, state_extraction.Extraction):
            self.publish("state", state_extraction.SENTENCE)
            call = await state_extraction.call_extraction_model(
                tail,
                provider=self.worker.provider(tail.account),
                clock=self.worker.clock,
                interrupted=self.interrupted,
            )
            self.publish("state")
            self.stop_if_unwanted()
            tail = await self.worker.db(
                state_extraction.finish_extraction,
                lease=self.lease,
                turn=self.turn,
                extraction=tail,
                call=call,
                stopped=self.reason == STOP,
                now=self.worker.clock(),
            )
        self.turn.tail = tail

    async def call_model(self, prompt: built_prompt.Prompt) -> ModelCall:
        """Call the model. Retries temporary errors until the first token, and an overflow once.

        An empty reply is also retried once, then raises `EmptyReply`.
        """
        overflowed = emptied = False
        number = 0
        while True:
            number += 1
            call = await self.call_once(prompt, number)
            overflow = (
                None
                if overflowed or self.reason
                else overflow_learning.detect_overflow(call, model=self.turn.model)
            )
            if overflow is not None and not (overflowed or self.reason):
                overflowed = True
                smaller = await self.shrink(prompt, overflow)
                if smaller is None:
                    return call
                prompt = smaller
                await self.discard_call(call, overflow)
                continue
            if self.reason or call.is_useful:
                return call
            plain = await self.call_without_tools(call, prompt)
            if plain is not None:
                prompt = plain
                continue
            if call.error is not None and not await self.wait_to_retry(call.error, number):
                call.error.full = format_provider_error(
                    call.error, provider=prompt.account.name, calls=number
                )
                return call
            await self.close_receipt(call)
            if call.error is None and emptied:
                raise EmptyReply
            emptied = call.error is None

    async def call_without_tools(
        self, call: ModelCall, prompt: built_prompt.Prompt
    ) -> built_prompt.Prompt | None:
        """Return a prompt without tools if the server rejected the call because of them.

        Records that the model does not support tools. Returns None for any other error.
        """
        refused = call.error is not None and call.error.code == "tools_unsupported"
        if not refused or not prompt.request.tools or self.turn.model is None:
            return None
        if self.turn.client is not None:
            # The tools belong to the client, which gets the error and decides.
            return None
        await self.close_receipt(call)
        self.turn.model = await self.worker.db(
            writes.note_no_tools, model=self.turn.model, now=self.worker.clock()
        )
        return await self.compose()

    async def shrink(
        self, prompt: built_prompt.Prompt, overflow: ProviderError
    ) -> built_prompt.Prompt | None:
        """After an overflow, store the model's learned limit and return a smaller prompt.

        None if the required parts alone exceed the model's limit.
        """
        if self.turn.model is not None:
            await self.worker.db(
                overflow_learning.store_learned_window,
                model_id=self.turn.model.pk,
                limit=overflow_learning.compute_learned_window(prompt, overflow),
                now=self.worker.clock(),
            )
        try:
            return await self.compose(
                smaller_than=overflow_learning.shrink_window(prompt, overflow)
            )
        except composition.PromptRefused:
            # The required parts alone exceed the model's limit.
            return None

    async def discard_call(self, call: ModelCall, overflow: ProviderError) -> None:
        """Close the receipt of a call whose reply is discarded, and remove its text from pages."""
        was_shown = call.is_useful
        call.error = overflow
        await self.close_receipt(call)
        if was_shown:
            self.call = None
            self.turn.begun_anew += 1
            await self.worker.db(
                leases.update_held_turn,
                lease=self.lease,
                begun_anew=self.turn.begun_anew,
                partial_text="",
                partial_reasoning="",
            )
            self.publish("anew")

    async def call_once(self, prompt: built_prompt.Prompt, number: int) -> ModelCall:
        """Store the receipt of a call, send it, and collect the streamed reply."""
        receipt_id = await self.create_receipt(prompt, number)
        self.prompt = prompt
        call = ModelCall(receipt_id=receipt_id, say=self.publish, clock=self.worker.clock)
        self.call = call
        self.saved = 0
        if not self.reason:
            provider = self.worker.provider(prompt.account)
            await call.listen(provider, prompt.request, interrupted=self.interrupted)
        self.stop_if_unwanted()
        return call

    async def create_receipt(self, prompt: built_prompt.Prompt, number: int) -> uuid.UUID:
        """Return the receipt of the next call. The opening has already created the first one."""
        self.cancel_search()
        opening, self.opening = self.opening, None
        if opening is not None and opening.receipt_id is not None:
            return opening.receipt_id
        return await self.worker.db(
            writes.create_receipt,
            lease=self.lease,
            turn=self.turn,
            prompt=prompt,
            call=number,
            now=self.worker.clock(),
        )

    def stop_if_unwanted(self) -> None:
        """Raise `LeaseLost` or `Interrupted` if this attempt may no longer write."""
        if self.reason == LOST:
            raise LeaseLost(self.lease.turn_id)
        if self.reason == SHUTDOWN:
            raise Interrupted

    async def close_receipt(self, call: ModelCall) -> None:
        """Complete the receipt of a call that is followed by another."""
        await self.worker.db(
            writes.close_call,
            receipt_id=call.receipt_id,
            ending=self.build_result(call),
            now=self.worker.clock(),
        )

    async def wait_to_retry(self, error: ProviderError, number: int) -> bool:
        """Wait before a retry, and show the wait on the page. Return False if no retry is left."""
        if not error.retryable or number >= settings.PROVIDER_CALLS:
            return False
        seconds = error.retry_after
        if seconds is None:
            # Full jitter: turns that failed together do not retry together.
            ceiling = min(settings.PROVIDER_BACKOFF_MAX, 2.0 ** (number - 1) * 2)
            seconds = random.uniform(min(1.0, ceiling), ceiling)  # noqa: S311  # spreading load, no secret
        elif seconds > 60:
            error.full = Sentence(WAIT_SENTENCE, seconds=seconds)
            return False
        until = self.worker.clock() + timedelta(seconds=seconds)
        await self.worker.db(leases.update_held_turn, lease=self.lease, waiting_until=until)
        self.publish("state", turn_notices.WAITING.format(until=f"{until:%H:%M:%S}"))
        with suppress(TimeoutError):
            await asyncio.wait_for(self.interrupted.wait(), seconds)
        self.stop_if_unwanted()
        await self.worker.db(leases.update_held_turn, lease=self.lease, waiting_until=None)
        return not self.reason

    async def finish_step(self, call: ModelCall) -> bool:
        """Store the model's reply. Return False if the turn has ended.

        Raises `ConsentRequired` if a tool call needs a person's consent.
        """
        await self.run_tools(call)
        if call.ran_servers and self.reason == STOP:
            await self.save_stopped_reply(call)
            return False
        await self.wait_for_lane()
        if call.finish == Message.Finish.INCOMPLETE:
            await self.end_as_failed("reply_incomplete", CUT_SENTENCE, call=call)
            return False
        goes_on = await self.worker.db(
            writes.close_step,
            lease=self.lease,
            ending=self.build_result(call),
            counter=self.worker.counter,
            now=self.worker.clock(),
        )
        if not goes_on:
            self.publish("end")
        return goes_on

    async def run_tools(self, call: ModelCall) -> None:
        """Run the model's tool calls. At the step limit, the reply ends with finish `LIMIT`.

        Raises `ConsentRequired` if a tool call needs a person's consent.
        """
        if call.finish not in {Message.Finish.TOOL_CALLS, Message.Finish.STOP}:
            return
        # Some servers report "stop" with tool calls, others "tool_calls" without any.
        call.finish = Message.Finish.TOOL_CALLS if call.requests else Message.Finish.STOP
        if not call.requests or self.turn.client is not None:
            # A client runs its own tools and sends their results.
            return
        offered = {spec.name for spec in self.prompt.request.tools} if self.prompt else set()
        if any(is_server_call(each.name, offered=offered) for each in call.requests.values()):
            await self.store_tool_step(call)
        if call.ran_servers and await self.request_consents(call, offered=offered):
            raise ConsentRequired
        await self.run_each_tool(call, offered=offered)
        if self.turn.step >= settings.MAX_STEPS:
            call.finish = Message.Finish.LIMIT

    async def run_each_tool(self, call: ModelCall, *, offered: Collection[str]) -> None:
        """Run the tool calls of a reply in order, until the person stops the reply."""
        skills = self.prompt.skills if self.prompt else NO_SKILLS
        for index, request in call.requests.items():
            if is_server_call(request.name, offered=offered):
                result: str | None = await self.call_server_tool(index, request)
            else:
                result = await self.use_own_tool(request, offered=offered, skills=skills)
            if result is not None:
                call.results[index] = result
                skills = skills.after(request, result)
            if call.ran_servers and self.reason == STOP:
                return

    async def use_own_tool(
        self, request: ToolCallPart, *, offered: Collection[str], skills: SkillFacts
    ) -> str | None:
        """Run one of the product's own tools and return its result.

        None if a replay has no result for the call.
        """
        look = await self.start_vector_search(request) if request.name in offered else None
        return await self.worker.db(
            writes.use_tool,
            lease=self.lease,
            turn=self.turn,
            call=request,
            offered=offered,
            counter=self.worker.counter,
            now=self.worker.clock(),
            sent=self.prompt.sent_seqs if self.prompt else (),
            look=look,
            skills=skills,
        )

    async def store_tool_step(self, call: ModelCall) -> None:
        """Store a reply before its tools are called. Its receipt is then complete."""
        if call.ran_servers:
            return
        await self.close_receipt(call)
        await self.worker.db(
            tool_steps.open_tool_step,
            lease=self.lease,
            turn=self.turn,
            parts=call.parts(),
            receipt_id=call.receipt_id,
            usage=call.usage,
            body_sha256=call.body_sha256,
            first_token_at=call.first_token_at,
        )
        call.ran_servers = True

    async def request_consents(self, call: ModelCall, *, offered: Collection[str]) -> bool:
        """Ask the person about calls that require consent. Return True if the turn now waits."""
        if self.reason == STOP:
            return False
        asked = {
            place: each
            for place, each in call.requests.items()
            if is_server_call(each.name, offered=offered)
        }
        return await self.worker.db(
            tool_steps.request_consents,
            lease=self.lease,
            turn=self.turn,
            calls=asked,
            text=str(call.text),
            allowed=self.list_allowed_tools(),
            now=self.worker.clock(),
        )

    def list_allowed_tools(self) -> Sequence[str]:
        return load_policy_values(self.prompt.effective).tools if self.prompt else ()

    async def call_server_tool(self, place: int, request: ToolCallPart) -> str:
        """Call a tool of a tool server and return the result.

        Does not call it again if an earlier attempt did.
        """
        ready = await self.worker.db(
            tool_steps.begin_tool_call,
            lease=self.lease,
            turn=self.turn,
            place=place,
            call=request,
            allowed=self.list_allowed_tools(),
            now=self.worker.clock(),
        )
        if ready.content is not None:
            return ready.content
        self.publish("state", turn_notices.CALLING.format(tool=ready.tool, server=ready.server))
        ending = await run_ready_call(ready, interrupted=self.interrupted)
        self.publish("state")
        # A call whose worker ends stays open: the next worker does not know the outcome.
        self.stop_if_unwanted()
        await self.worker.db(
            tool_steps.end_tool_call,
            lease=self.lease,
            turn=self.turn,
            ready=ready,
            ending=ending,
            now=self.worker.clock(),
        )
        return ending.content

    async def start_vector_search(self, request: ToolCallPart) -> Look | None:
        """Return the vector search for a search call. None without an embedding model."""
        if self.prompt is None:
            return None
        return await references.look_for(
            query_in,
            values=load_policy_values(self.prompt.effective),
            aside=self.worker.aside,
            arguments=request.arguments,
            owner_id=self.turn.branch.chat.owner_id,
        )

    async def save_stopped_reply(self, call: ModelCall) -> None:
        """End a reply that a person stopped. The text so far becomes the reply."""
        call.finish = Message.Finish.STOPPED
        await self.end_without_reply(Turn.Status.STOPPED, self.build_result(call))

    async def end_as_failed(
        self, code: str, sentence: str | Promise, *, call: ModelCall | None = None
    ) -> None:
        """End the turn as failed. Text that was already shown is kept as an incomplete reply."""
        if call is not None:
            call.finish = Message.Finish.INCOMPLETE
        elif self.call is not None and self.call.has_text:
            call = self.call
            call.finish = Message.Finish.INCOMPLETE
        await self.end_without_reply(
            Turn.Status.FAILED, self.build_result(call, code=code, sentence=sentence)
        )

    async def wait_for_lane(self) -> None:
        """Wait until earlier lanes of the round have ended, which keeps the order of replies.

        A lane that has had no worker for `UNBEGUN_SECONDS` no longer blocks the others.
        """
        give_up = time.monotonic() + UNBEGUN_SECONDS
        while self.turn.lane:
            states = await self.worker.db(lanes.list_earlier_lane_statuses, turn=self.turn)
            if Turn.Status.RUNNING in states:
                give_up = time.monotonic() + UNBEGUN_SECONDS
            if not states or time.monotonic() > give_up:
                return
            await asyncio.sleep(PLACE_EVERY)
            self.stop_if_unwanted()

    async def end_without_reply(self, status: str, ending: StepResult) -> None:
        """End the turn without a reply, and announce the end on the live bus."""
        await self.wait_for_lane()
        await self.worker.db(
            writes.end_early,
            lease=self.lease,
            status=status,
            ending=ending,
            counter=self.worker.counter,
            now=self.worker.clock(),
        )
        self.publish("end")

    def build_result(
        self, call: ModelCall | None, *, code: str = "", sentence: str | Promise = ""
    ) -> StepResult:
        """Return the result of a step from its call: texts, usage, and the code of a failure."""
        if call is None:
            return StepResult(error_code=code, error_sentence=sentence)
        if call.error and not code:
            code, sentence = call.error.code, call.error.full
        return StepResult(
            parts=call.parts() if call.is_useful else (),
            finish=call.finish,
            usage=call.usage,
            body_sha256=call.body_sha256,
            receipt_id=call.receipt_id,
            runs_servers=call.ran_servers,
            first_token_at=call.first_token_at,
            token_log=call.log,
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

    async def requeue_turn(self) -> None:
        """Requeue the turn, because this process shuts down."""
        with suppress(LeaseLost):
            await self.worker.db(writes.requeue_turn, lease=self.lease, now=self.worker.clock())
            self.publish("restarted")

    def get_unsaved_text(self) -> Partial | None:
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

    def on_heartbeat(self, beat: Heartbeat) -> None:
        """Handle a heartbeat: the turn may have been asked to stop, or its lease may be lost."""
        if beat is Heartbeat.STOP:
            self.interrupt(STOP)
        elif beat is Heartbeat.LOST:
            self.interrupt(LOST)

    def publish(self, kind: str, text: str = "", offset: int = 0, logprobs: str = "") -> None:
        """Publish one frame on the live bus."""
        turn = self.turn
        frame = Frame(
            kind=kind,
            attempt=turn.attempt,
            step=turn.step,
            anew=turn.begun_anew,
            offset=offset,
            text=text,
            logprobs=logprobs,
        )
        self.worker.put(turn.pk, frame)


def format_provider_error(error: ProviderError, *, provider: str, calls: int) -> Sentence:
    """Append the provider, status and number of attempts to an error's sentence."""
    facts: list[str | Promise] = [provider] if provider else []
    if error.status is not None:
        facts.append(Sentence(gettext_noop("status {status}"), status=error.status))
    asked = gettext_noop("called once") if calls == 1 else ASKED_SENTENCE
    facts.append(Sentence(asked, calls=calls))
    return Sentence(gettext_noop("{sentence} ({facts}.)"), sentence=error.full, facts=facts)
