"""The state of a worker's attempt at a turn, which its steps, calls and tools share."""

import asyncio
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from django.utils.functional import Promise

from chats.ground.leases import LeaseLost
from chats.ground.live import Frame
from chats.prompt import built_prompt
from chats.prompt.calibration import PromptEstimate
from chats.prompt.follow_ups import NO_FOLLOW_UPS
from chats.providers.base import Provider
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns import call_receipts, references
from chats.turns.calling import ModelCall
from chats.turns.lease import Heartbeat, Partial
from chats.turns.opening import ClaimedTurn
from chats.turns.step_results import StepResult
from contextpolicy.engine.messages.tokens import TokenCounter

Result = TypeVar("Result")

STOP, LOST, SHUTDOWN = "stop", "lost", "shutdown"


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


class Interrupted(Exception):
    """The attempt ends because this process is shutting down."""


class ConsentRequired(Exception):
    """The attempt ends because the turn waits for a user's decision, without a worker."""


class AttemptState:
    """An attempt at a turn: its lease, the current step's prompt, and the model call."""

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

    def on_heartbeat(self, beat: Heartbeat) -> None:
        """Handle a heartbeat: the turn may have been asked to stop, or its lease may be lost."""
        if beat is Heartbeat.STOP:
            self.interrupt(STOP)
        elif beat is Heartbeat.LOST:
            self.interrupt(LOST)

    def stop_if_unwanted(self) -> None:
        """Raise `LeaseLost` or `Interrupted` if this attempt may no longer write."""
        if self.reason == LOST:
            raise LeaseLost(self.lease.turn_id)
        if self.reason == SHUTDOWN:
            raise Interrupted

    def cancel_search(self) -> None:
        """Cancel the search if it is still running, and discard its result."""
        if self.search is not None:
            self.search.task.cancel()
            self.search = None

    async def close_receipt(self, call: ModelCall) -> None:
        """Complete the receipt of a call that is followed by another."""
        await self.worker.db(
            call_receipts.close_call,
            receipt_id=call.receipt_id,
            ending=self.build_result(call),
            now=self.worker.clock(),
        )

    def build_result(
        self, call: ModelCall | None, *, code: str = "", sentence: str | Promise = ""
    ) -> StepResult:
        """Return the result of a step from its call: texts, usage, and the code of a failure."""
        if call is None:
            ran = self.call is not None and self.call.ran_servers
            return StepResult(error_code=code, error_sentence=sentence, runs_servers=ran)
        if call.error and not code:
            code, sentence = call.error.code, call.error.full
        return StepResult(
            parts=call.parts() if call.is_useful or call.is_accepted else (),
            images=call.collect_image_bytes(),
            finish=call.finish,
            usage=call.usage,
            body_sha256=call.body_sha256,
            learned=call.learned,
            receipt_id=call.receipt_id,
            runs_servers=call.ran_servers,
            first_token_at=call.first_token_at,
            is_refusal=call.reason == "refusal",
            token_log=call.log,
            error_code=code,
            error_sentence=sentence,
            follow_ups=self.prompt.follow_ups if self.prompt else NO_FOLLOW_UPS,
            estimate=self.prompt.estimate if self.prompt else PromptEstimate(),
            meter=self.prompt.meter if self.prompt else None,
        )

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

    def publish(
        self, kind: str, text: str = "", offset: int = 0, logprobs: str = "", *, place: int = 0
    ) -> None:
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
            place=place,
        )
        self.worker.put(turn.pk, frame)
