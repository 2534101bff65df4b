"""The model calls of a step, with retries, smaller prompts after an overflow, and receipts."""

import asyncio
import random
import uuid
from contextlib import suppress
from datetime import timedelta

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_noop

from chats.ground import turn_notices
from chats.ground.refusals import Refusal
from chats.ground.sentences import Sentence
from chats.prompt import built_prompt, composition
from chats.providers.base import ProviderError
from chats.turns import call_receipts, overflow_learning, writes
from chats.turns import lease as leases
from chats.turns.attempt_state import AttemptState
from chats.turns.call_frames import CallPublisher
from chats.turns.calling import ModelCall
from chats.turns.step_prompt import compose_step_prompt

ASKED_SENTENCE = gettext_noop("called {calls} times")
WAIT_SENTENCE = gettext_noop(
    "The model provider does not accept requests at the moment. Your message is saved. Try again "
    "in {seconds:.0f} seconds."
)


class EmptyReply(Refusal):
    """The model returned an empty reply twice."""

    code = "empty_reply"
    sentence = gettext_noop(
        "The model returned an empty reply twice. Your message is saved. Try again."
    )


async def call_model(attempt: AttemptState, prompt: built_prompt.Prompt) -> ModelCall:
    """Call the model. Retries temporary errors until the first token, and an overflow once.

    A call that was rejected because of its tools is repeated without them. An empty reply is also
    retried once, then raises `EmptyReply`, except for API clients (`is_accepted_empty`).
    """
    overflowed = emptied = False
    number = 0
    while True:
        number += 1
        call = await call_model_once(attempt, prompt, number)
        prompt = attempt.prompt or prompt
        overflow = (
            None
            if overflowed or attempt.reason
            else overflow_learning.detect_overflow(call, model=attempt.turn.model)
        )
        if overflow is not None:
            overflowed = True
            smaller = await shrink_prompt(attempt, prompt, overflow)
            if smaller is None:
                return call
            prompt = smaller
            await discard_call(attempt, call, overflow)
            continue
        call.is_accepted = is_accepted_empty(attempt, call, emptied=emptied)
        if attempt.reason or call.is_useful or call.is_accepted:
            return call
        plain = await call_without_tools(attempt, call, prompt)
        if plain is not None:
            prompt = plain
            continue
        if call.error is not None and not await wait_to_retry(attempt, call.error, number):
            call.error.full = format_provider_error(
                call.error, provider=prompt.account.name, calls=number
            )
            return call
        await attempt.close_receipt(call)
        if call.error is None and emptied:
            raise EmptyReply
        emptied = call.error is None


def is_accepted_empty(attempt: AttemptState, call: ModelCall, *, emptied: bool) -> bool:
    """Return True if an empty reply is returned to an API client, as its provider would.

    A reply that was cut by its limit would be cut again. Others are retried once (`emptied`).
    Clients would repeat a failed request automatically.
    """
    if attempt.reason or attempt.turn.client is None or call.error is not None:
        return False
    return emptied or call.reason == "length"


async def call_without_tools(
    attempt: AttemptState, call: ModelCall, prompt: built_prompt.Prompt
) -> built_prompt.Prompt | None:
    """Return a prompt without tools if the server rejected the call because of them.

    Records that the model does not support tools. Returns None for any other error, and if the
    tools belong to a client.
    """
    refused = call.error is not None and call.error.code == "tools_unsupported"
    if not refused or not prompt.request.tools or attempt.turn.model is None:
        return None
    if attempt.turn.client is not None:
        # The client gets the error and decides.
        return None
    await attempt.close_receipt(call)
    attempt.turn.model = await attempt.worker.db(
        writes.note_no_tools, model=attempt.turn.model, now=attempt.worker.clock()
    )
    return await compose_step_prompt(attempt)


async def shrink_prompt(
    attempt: AttemptState, prompt: built_prompt.Prompt, overflow: ProviderError
) -> built_prompt.Prompt | None:
    """After an overflow, store the model's learned limit and return a smaller prompt.

    None if the required parts alone exceed the model's limit.
    """
    if attempt.turn.model is not None:
        await attempt.worker.db(
            overflow_learning.store_learned_window,
            model_id=attempt.turn.model.pk,
            limit=overflow_learning.compute_learned_window(prompt, overflow),
            now=attempt.worker.clock(),
        )
    try:
        return await compose_step_prompt(
            attempt, smaller_than=overflow_learning.shrink_window(prompt, overflow)
        )
    except composition.PromptRefused:
        return None


async def discard_call(attempt: AttemptState, call: ModelCall, overflow: ProviderError) -> None:
    """Close the receipt of a call whose reply is discarded, and remove that reply from pages."""
    was_shown = call.is_useful
    call.error = overflow
    await attempt.close_receipt(call)
    if was_shown:
        attempt.call = None
        attempt.turn.begun_anew += 1
        await attempt.worker.db(
            leases.update_held_turn,
            lease=attempt.lease,
            begun_anew=attempt.turn.begun_anew,
            partial_text="",
            partial_reasoning="",
        )
        attempt.publish("anew")


async def call_model_once(
    attempt: AttemptState, prompt: built_prompt.Prompt, number: int
) -> ModelCall:
    """Store the receipt of a call, send the request, and collect the streamed reply.

    An interrupted attempt sends nothing.
    """
    receipt_id, prompt = await create_call_receipt(attempt, prompt, number)
    attempt.prompt = prompt
    call = ModelCall(
        receipt_id=receipt_id,
        say=attempt.publish,
        say_call=CallPublisher(attempt).say,
        clock=attempt.worker.clock,
    )
    attempt.call = call
    attempt.saved = 0
    if not attempt.reason:
        provider = attempt.worker.provider(prompt.account)
        await call.listen(provider, prompt.request, interrupted=attempt.interrupted)
    attempt.stop_if_unwanted()
    return call


async def create_call_receipt(
    attempt: AttemptState, prompt: built_prompt.Prompt, number: int
) -> tuple[uuid.UUID, built_prompt.Prompt]:
    """Create the receipt of the next call, and return its id and prompt. Cancels a running search.

    If opening the turn already created the receipt of the first call, returns that receipt's id. An
    outdated prompt is composed again, up to twice. Raises `PromptOutdated` if it is still outdated.
    """
    attempt.cancel_search()
    opening, attempt.opening = attempt.opening, None
    if opening is not None and opening.receipt_id is not None:
        return opening.receipt_id, prompt
    for is_last in (False, False, True):
        try:
            receipt_id = await attempt.worker.db(
                call_receipts.create_receipt,
                lease=attempt.lease,
                turn=attempt.turn,
                prompt=prompt,
                call=number,
                now=attempt.worker.clock(),
            )
        except call_receipts.PromptOutdated:
            if is_last:
                raise
            prompt = await compose_step_prompt(attempt)
        else:
            break
    return receipt_id, prompt


async def wait_to_retry(attempt: AttemptState, error: ProviderError, number: int) -> bool:
    """Wait before a retry, and show the wait on the page.

    Returns False if no retry is left, if the provider requires a wait of more than 60 seconds, or
    if the attempt was asked to stop.
    """
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
    until = attempt.worker.clock() + timedelta(seconds=seconds)
    await attempt.worker.db(leases.update_held_turn, lease=attempt.lease, waiting_until=until)
    attempt.publish("state", turn_notices.WAITING.format(until=f"{until:%H:%M:%S}"))
    with suppress(TimeoutError):
        await asyncio.wait_for(attempt.interrupted.wait(), seconds)
    attempt.stop_if_unwanted()
    await attempt.worker.db(leases.update_held_turn, lease=attempt.lease, waiting_until=None)
    return not attempt.reason


def format_provider_error(error: ProviderError, *, provider: str, calls: int) -> Sentence:
    """Append the provider, status and number of attempts to an error's sentence."""
    facts: list[str | Promise] = [provider] if provider else []
    if error.status is not None:
        facts.append(Sentence(gettext_noop("status {status}"), status=error.status))
    asked = gettext_noop("called once") if calls == 1 else ASKED_SENTENCE
    facts.append(Sentence(asked, calls=calls))
    return Sentence(gettext_noop("{sentence} ({facts}.)"), sentence=error.full, facts=facts)
