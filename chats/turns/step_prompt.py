"""The prompt of a step: composes it, moves the window, and builds missing parts of the tail."""

from chats.compaction import window
from chats.compaction.publish import publish_prepared
from chats.memory.search.references import ChosenReferences
from chats.prompt import built_prompt, composition, model_choice, tail
from chats.turns import file_excerpts, references, state_extraction
from chats.turns.attempt_state import STOP, AttemptState

# Five window moves, excerpts of documents, and a search result after its time limit.
MOST_ATTEMPTS = 7


async def compose_step_prompt(
    attempt: AttemptState, *, smaller_than: int | None = None
) -> built_prompt.Prompt:
    """Compose the prompt of the current step, and move the window first if needed.

    Also builds the missing parts of the tail. Raises `RuntimeError` if the prompt does not fit
    after seven attempts.
    """
    turn = attempt.turn
    due: tail.TailRequired | None = None
    if attempt.opening and attempt.opening.due:
        due, attempt.opening = attempt.opening.due, None
        await build_prompt_tail(attempt, due)
    for _ in range(MOST_ATTEMPTS):
        due = await use_late_result(attempt) or due
        prompt = await attempt.worker.db(
            composition.compose_prompt,
            turn=turn,
            counter=attempt.worker.counter,
            window_limit=smaller_than,
            draft=due.draft if due else None,
        )
        due = None
        if isinstance(prompt, tail.TailRequired):
            due = prompt
            await build_prompt_tail(attempt, due)
            continue
        # Publish a summary that is ready. The turn never waits for one.
        if is_summary_due(prompt) and await attempt.worker.db(
            publish_prepared, branch_id=turn.branch_id, now=attempt.worker.clock()
        ):
            continue
        if isinstance(prompt, built_prompt.Prompt):
            if attempt.search is not None and attempt.search.task.done():
                continue
            return prompt
        await attempt.worker.db(
            window.move_window, branch_id=turn.branch_id, move=prompt, now=attempt.worker.clock()
        )
    raise RuntimeError("the prompt does not fit after seven attempts")


def is_summary_due(prompt: built_prompt.Prompt | composition.WindowMoveRequired) -> bool:
    """Return True if a summary that is ready should be published before the prompt is sent."""
    return not isinstance(prompt, built_prompt.Prompt) or prompt.need.action == "swap"


async def build_prompt_tail(attempt: AttemptState, due: tail.TailRequired) -> None:
    """Build the missing parts of the tail and store them, once per turn.

    A stop request ends the state extraction; the previous state then stays.
    """
    if due.references:
        # The search runs while the other parts are built.
        attempt.search = references.start_search(
            attempt.turn, due=due, counter=attempt.worker.counter, aside=attempt.worker.aside
        )
    if due.state:
        await extract_chat_state(attempt, due.choice)
    if due.files:
        chunks = await attempt.worker.db(
            file_excerpts.find_turn_excerpts,
            turn=attempt.turn,
            choice=due.choice,
            counter=attempt.worker.counter,
            sent=due.sent,
        )
        attempt.turn.tail = await attempt.worker.db(
            file_excerpts.store_file_excerpts, lease=attempt.lease, turn=attempt.turn, chunks=chunks
        )
    if attempt.search is not None:
        await store_search_result(attempt, attempt.search, await attempt.search.wait_for_result())


async def use_late_result(attempt: AttemptState) -> tail.TailRequired | None:
    """Store the result of a search that ended after its time limit. Never waits.

    Returns the request for the search, or None if there is no result.
    """
    search = attempt.search
    if search is None or not search.task.done():
        return None
    await store_search_result(attempt, search, search.task.result())
    return search.due


async def store_search_result(
    attempt: AttemptState, search: references.RunningSearch, found: ChosenReferences
) -> None:
    """Store the retrieved context. A search that is still running stays in `search`."""
    if found.note != "late":
        attempt.search = None
    attempt.turn.tail = await attempt.worker.db(
        references.store_retrieved_context, lease=attempt.lease, turn=attempt.turn, found=found
    )


async def extract_chat_state(attempt: AttemptState, choice: model_choice.ChosenModel) -> None:
    """Have the model update the chat's state with the messages up to the question."""
    tail = await attempt.worker.db(
        state_extraction.begin_extraction,
        lease=attempt.lease,
        turn=attempt.turn,
        choice=choice,
        counter=attempt.worker.counter,
        now=attempt.worker.clock(),
    )
    if isinstance(tail, state_extraction.Extraction):
        attempt.publish("state", state_extraction.SENTENCE)
        call = await state_extraction.call_extraction_model(
            tail,
            provider=attempt.worker.provider(tail.account),
            clock=attempt.worker.clock,
            interrupted=attempt.interrupted,
        )
        attempt.publish("state")
        attempt.stop_if_unwanted()
        tail = await attempt.worker.db(
            state_extraction.finish_extraction,
            lease=attempt.lease,
            turn=attempt.turn,
            extraction=tail,
            call=call,
            stopped=attempt.reason == STOP,
            now=attempt.worker.clock(),
        )
    attempt.turn.tail = tail
