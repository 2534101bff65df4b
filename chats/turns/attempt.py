"""The work on one turn from opening to end, as a coroutine on the worker's event loop.

`run_opened_turn` waits for the opening, and `worker.heartbeats` keeps the lease alive.
`TurnAttempt.run_steps` repeats steps: `step_prompt` composes the prompt, `model_calls` calls the
model with retries, `calling` reads one stream, and `tool_calls` runs the tools of the reply. All
writes are in `writes`.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable
from contextlib import suppress

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.functional import Promise
from django.utils.translation import gettext_noop

from chats.ground.leases import LeaseLost
from chats.ground.refusals import Refusal
from chats.models import Message, ToolStep, Turn
from chats.turns import lanes, writes
from chats.turns import lease as leases
from chats.turns.attempt_state import (
    STOP,
    AttemptState,
    ConsentRequired,
    Interrupted,
    Worker,
)
from chats.turns.call_frames import publish_stored_calls
from chats.turns.calling import ModelCall, ResumedCall
from chats.turns.model_calls import call_model
from chats.turns.opening import ClaimedTurn
from chats.turns.step_prompt import compose_step_prompt
from chats.turns.step_results import StepResult
from chats.turns.tool_calls import run_tool_calls

logger = logging.getLogger(__name__)

# Seconds between a finished lane's checks whether earlier lanes have ended, and the longest wait
# while none of them is running.
PLACE_EVERY, UNBEGUN_SECONDS = 0.2, 10
CUT_SENTENCE = gettext_noop(
    "The reply was cut off. The text so far is saved. Continue it or try again."
)
INTERNAL_SENTENCE = gettext_noop(
    "Something went wrong on this server. Your message is saved. Try again."
)


async def run_opened_turn(
    *,
    opened: Awaitable[ClaimedTurn | None],
    asked_at: float,
    worker: Worker,
    runs: dict[uuid.UUID, "TurnAttempt"],
) -> None:
    """Work on the opened turn. Does nothing if the turn could not be claimed.

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


class TurnAttempt(AttemptState):
    """This worker's attempt at a turn."""

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
        """Compose the prompt, call the model, run its tools and store the reply.

        A reply that an earlier attempt stored is used without calling the model. Returns True if
        another step follows.
        """
        stored = self.opening.stored if self.opening else None
        if stored is None:
            prompt = self.opening.prompt if self.opening else None
            call = await call_model(self, prompt or await compose_step_prompt(self))
        else:
            call = await self.resume_step(stored)
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
        publish_stored_calls(self, call.requests)
        self.prompt = await compose_step_prompt(self)
        return call

    async def finish_step(self, call: ModelCall) -> bool:
        """Run the reply's tool calls and store the reply. Return False if the turn has ended.

        Raises `ConsentRequired` if a tool call needs a user's consent.
        """
        await run_tool_calls(self, call)
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

    async def save_stopped_reply(self, call: ModelCall) -> None:
        """End a reply that a user stopped. The text so far becomes the reply."""
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

        After `UNBEGUN_SECONDS` without a running earlier lane, the wait ends.
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

    async def requeue_turn(self) -> None:
        """Requeue the turn, because this process is shutting down."""
        with suppress(LeaseLost):
            await self.worker.db(writes.requeue_turn, lease=self.lease, now=self.worker.clock())
            self.publish("restarted")
