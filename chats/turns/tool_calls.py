"""The tool calls in a reply: the product's own tools, tools on tool servers, and consents."""

from collections.abc import Collection, Sequence
from functools import partial

from django.conf import settings

from chats.ground import turn_notices
from chats.memory.search.meaning import Look
from chats.models import Message
from chats.prompt.tools.history_search import query_in
from chats.prompt.tools.registry import NO_SKILLS, is_server_call
from chats.prompt.tools.skill_load import SkillFacts
from chats.tool_servers.output import CallOutput
from chats.turns import references, tool_steps, writes
from chats.turns.attempt_state import STOP, AttemptState, ConsentRequired
from chats.turns.call_frames import publish_result, publish_running_calls
from chats.turns.calling import ModelCall
from chats.turns.result_images import ReadResult, ResultImage, read_result_images
from chats.turns.server_tools import run_ready_call
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.resolution import load_policy_values


async def run_tool_calls(attempt: AttemptState, call: ModelCall) -> None:
    """Run the model's tool calls. At the step limit, the reply ends with finish `LIMIT`.

    Raises `ConsentRequired` if a tool call needs a user's consent.
    """
    if call.finish not in {Message.Finish.TOOL_CALLS, Message.Finish.STOP}:
        return
    # Some servers report "stop" with tool calls, others "tool_calls" without any.
    call.finish = Message.Finish.TOOL_CALLS if call.requests else Message.Finish.STOP
    if not call.requests or attempt.turn.client is not None:
        # A client runs its own tools and sends their results.
        return
    offered = {spec.name for spec in attempt.prompt.request.tools} if attempt.prompt else set()
    if any(is_server_call(each.name, offered=offered) for each in call.requests.values()):
        await store_tool_step(attempt, call)
    if call.ran_servers and await request_call_consents(attempt, call, offered=offered):
        raise ConsentRequired
    publish_running_calls(attempt, call.requests)
    await run_each_tool(attempt, call, offered=offered)
    if attempt.turn.step >= settings.MAX_STEPS:
        call.finish = Message.Finish.LIMIT


async def run_each_tool(
    attempt: AttemptState, call: ModelCall, *, offered: Collection[str]
) -> None:
    """Run the tool calls in a reply in order, until the user stops the reply."""
    skills = attempt.prompt.skills if attempt.prompt else NO_SKILLS
    for index, request in call.requests.items():
        if is_server_call(request.name, offered=offered):
            result: str | None = await run_server_tool(attempt, call, index, request)
        else:
            result = await run_own_tool(attempt, request, offered=offered, skills=skills)
        if result is not None:
            call.results[index] = result
            publish_result(attempt, index, result)
            skills = skills.after(request, result)
        if call.ran_servers and attempt.reason == STOP:
            return


async def run_own_tool(
    attempt: AttemptState, request: ToolCallPart, *, offered: Collection[str], skills: SkillFacts
) -> str | None:
    """Run one of the product's own tools and return its result.

    None if a replay has no result for the call.
    """
    look = await start_vector_search(attempt, request) if request.name in offered else None
    return await attempt.worker.db(
        writes.use_tool,
        lease=attempt.lease,
        turn=attempt.turn,
        call=request,
        offered=offered,
        counter=attempt.worker.counter,
        now=attempt.worker.clock(),
        sent=attempt.prompt.sent_seqs if attempt.prompt else (),
        look=look,
        skills=skills,
    )


async def store_tool_step(attempt: AttemptState, call: ModelCall) -> None:
    """Store a reply before its tools are called. Its receipt is then complete."""
    if call.ran_servers:
        return
    await attempt.close_receipt(call)
    await attempt.worker.db(
        tool_steps.open_tool_step,
        lease=attempt.lease,
        turn=attempt.turn,
        parts=call.parts(),
        receipt_id=call.receipt_id,
        usage=call.usage,
        body_sha256=call.body_sha256,
        first_token_at=call.first_token_at,
    )
    call.ran_servers = True


async def request_call_consents(
    attempt: AttemptState, call: ModelCall, *, offered: Collection[str]
) -> bool:
    """Ask the user about calls that require consent. Return True if the turn now waits."""
    if attempt.reason == STOP:
        return False
    asked = {
        place: each
        for place, each in call.requests.items()
        if is_server_call(each.name, offered=offered)
    }
    return await attempt.worker.db(
        tool_steps.request_consents,
        lease=attempt.lease,
        turn=attempt.turn,
        calls=asked,
        text=str(call.text),
        allowed=list_allowed_tools(attempt),
        now=attempt.worker.clock(),
    )


def list_allowed_tools(attempt: AttemptState) -> Sequence[str]:
    return load_policy_values(attempt.prompt.effective).tools if attempt.prompt else ()


async def run_server_tool(
    attempt: AttemptState, call: ModelCall, place: int, request: ToolCallPart
) -> str:
    """Call a tool on a tool server and return the result. Its images are added to `call.images`.

    A call that ended in an earlier attempt is not repeated. One whose outcome is unknown is
    repeated only if the tool is idempotent.
    """
    ready = await attempt.worker.db(
        tool_steps.begin_tool_call,
        lease=attempt.lease,
        turn=attempt.turn,
        place=place,
        call=request,
        allowed=list_allowed_tools(attempt),
        now=attempt.worker.clock(),
    )
    if ready.content is not None:
        call.images[place] = ready.images
        return ready.content
    attempt.publish("state", turn_notices.CALLING.format(tool=ready.tool, server=ready.server))
    ending = await run_ready_call(
        ready,
        interrupted=attempt.interrupted,
        read_images=partial(read_call_images, attempt, earlier=call.list_images()),
    )
    attempt.publish("state")
    # A call whose worker ends stays open: the next worker does not know the outcome.
    attempt.stop_if_unwanted()
    await attempt.worker.db(
        tool_steps.end_tool_call,
        lease=attempt.lease,
        turn=attempt.turn,
        ready=ready,
        call_id=request.call_id,
        ending=ending,
        now=attempt.worker.clock(),
    )
    call.images[place] = ending.images
    return ending.content


async def read_call_images(
    attempt: AttemptState, output: CallOutput, *, earlier: Sequence[ResultImage]
) -> ReadResult:
    """Read the images in a result for the turn's chat.

    `earlier`: the images in earlier results of the reply.
    """
    if attempt.prompt is None or attempt.turn.model is None:
        raise ValueError("a tool was called before a prompt was composed")
    return await attempt.worker.aside(
        read_result_images,
        output=output,
        owner_id=attempt.turn.branch.chat.owner_id,
        values=load_policy_values(attempt.prompt.effective),
        model=attempt.turn.model,
        earlier=earlier,
    )


async def start_vector_search(attempt: AttemptState, request: ToolCallPart) -> Look | None:
    """Return the vector search for a search call. None if there is no embedding model."""
    if attempt.prompt is None:
        return None
    return await references.look_for(
        query_in,
        values=load_policy_values(attempt.prompt.effective),
        aside=attempt.worker.aside,
        arguments=request.arguments,
        owner_id=attempt.turn.branch.chat.owner_id,
    )
