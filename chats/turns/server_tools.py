"""Calls tools on tool servers, from the worker's event loop.

Each call has a time limit and holds no database lock. A stop request closes the connection.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from chats.ground import cancelling
from chats.tool_servers.client import ToolServerFailed, call_server_tool
from chats.tool_servers.output import CallOutput
from chats.tool_servers.results import format_failure, format_result, locate_result_text
from chats.turns.result_images import ReadResult, leave_out_images
from chats.turns.tool_steps import CallEnding, Outcome, ReadyCall

ImageReader = Callable[[CallOutput], Awaitable[ReadResult]]


async def run_ready_call(
    ready: ReadyCall, *, interrupted: asyncio.Event, read_images: ImageReader
) -> CallEnding:
    """Call a tool and wait for its end. Setting `interrupted` closes the connection.

    `read_images` reads the images in the result. A failure of the server raises no exception: the
    model gets a description of the failure.
    """
    if ready.access is None:
        raise ValueError(f"tool call {ready.pk} has no server")
    began = time.monotonic()
    calling = asyncio.create_task(
        call_server_tool(
            ready.access, name=ready.tool, arguments=ready.arguments, digest=ready.digest
        )
    )
    ending = asyncio.create_task(interrupted.wait())
    await asyncio.wait({calling, ending}, return_when=asyncio.FIRST_COMPLETED)
    is_stopped = not calling.done()
    await cancelling.cancel_tasks(calling, ending)
    spent = round(1000 * (time.monotonic() - began))
    if is_stopped and (calling.cancelled() or calling.exception()):
        return build_failed_ending("stopped", is_unknown=True, spent=spent)
    try:
        output = calling.result()
    except ToolServerFailed as error:
        return build_failed_ending(error.code, is_unknown=error.was_sent, spent=spent)
    found = ReadResult(output.text)
    if output.images:
        found = await read_until_interrupted(output, interrupted=interrupted, read=read_images)
    return build_call_ending(output, found=found, ready=ready, spent=spent)


async def read_until_interrupted(
    output: CallOutput, *, interrupted: asyncio.Event, read: ImageReader
) -> ReadResult:
    """Read the images in a result. If `interrupted` is set, they are left out."""
    reading = asyncio.ensure_future(read(output))
    ending = asyncio.create_task(interrupted.wait())
    await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
    await cancelling.cancel_tasks(reading, ending)
    return leave_out_images(output, "stopped") if reading.cancelled() else reading.result()


def build_call_ending(
    output: CallOutput, *, found: ReadResult, ready: ReadyCall, spent: int
) -> CallEnding:
    """Return the ending of a call with a result. `spent` is its duration in milliseconds.

    `found` contains the text and the images of the result.
    """
    content = format_result(
        found.text,
        server=ready.server,
        tool=ready.tool,
        is_error=output.is_error,
        sent_bytes=output.sent_bytes,
    )
    return CallEnding(
        Outcome.ERROR if output.is_error else Outcome.OK,
        content,
        result_bytes=len(found.text.encode()) + sum(len(each.data) for each in output.images),
        milliseconds=spent,
        images=found.move_images(locate_result_text(content, length=len(found.text))),
    )


def build_failed_ending(code: str, *, is_unknown: bool, spent: int) -> CallEnding:
    """Return the ending of a call without a result. `spent` is its duration in milliseconds."""
    return CallEnding(
        Outcome.UNKNOWN if is_unknown else Outcome.FAILED,
        format_failure(code, is_unknown=is_unknown),
        code,
        milliseconds=spent,
    )
