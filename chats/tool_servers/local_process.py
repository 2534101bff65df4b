"""The transport of local tool servers: JSON lines of a process, each of limited length.

The transport of the package reads a line of any length into memory.
"""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

# Seconds that a process has to end after its input has ended.
GRACE_SECONDS = 2.0
GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class LocalMessageTooLong(Exception):
    """A line of a local server exceeds the limit."""


def build_environment() -> dict[str, str]:
    """Return the variables of a local server: a few standard ones, and none of our secrets."""
    # Workers without the extra `tools` import this module, too.
    from mcp.client.stdio import get_default_environment  # noqa: PLC0415  # see above

    return get_default_environment()


@asynccontextmanager
async def run_local_server(command: Sequence[str], *, most: int) -> AsyncIterator[tuple[Any, Any]]:
    """Start a process, and yield the message streams from it and to it.

    `most`: maximum bytes of one message from the process. Raises OSError if the command cannot be
    started, and `LocalMessageTooLong` in an exception group. The process and its children end with
    the context.
    """
    # The package is an extra, and takes a second to import.
    from mcp.shared.message import SessionMessage  # noqa: PLC0415  # an extra
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415  # as above

    async def read_messages() -> None:
        with suppress(*GONE):
            async for line in split_lines(process, most=most):
                await incoming.send(parse_message(line))
        # Not after a line that is too long: the session would report a closed connection.
        incoming.close()

    def parse_message(line: bytes) -> Any:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error

    async def write_messages() -> None:
        with suppress(*GONE):
            async for sent in to_send:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await get_stream(process.stdin).send(f"{text}\n".encode())

    process = await anyio.open_process(
        list(command),
        env=build_environment(),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    incoming: MemoryObjectSendStream[Any]
    to_send: MemoryObjectReceiveStream[Any]
    incoming, received = anyio.create_memory_object_stream[Any](0)
    outgoing, to_send = anyio.create_memory_object_stream[Any](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_messages)
            tasks.start_soon(write_messages)
            yield received, outgoing
            tasks.cancel_scope.cancel()
    finally:
        for stream in (incoming, received, outgoing, to_send):
            stream.close()
        with anyio.CancelScope(shield=True):
            await end_process(process)


async def split_lines(process: Process, *, most: int) -> AsyncIterator[bytes]:
    """Yield the complete lines of a process.

    Raises `LocalMessageTooLong` after more than `most` bytes without a line end.
    """
    rest = bytearray()
    async for chunk in get_stream(process.stdout):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            yield bytes(rest + line)
            rest.clear()
        rest += last
        if len(rest) > most:
            raise LocalMessageTooLong


def get_stream(stream: Any) -> Any:
    """Return a pipe of a process. Raises ValueError if it was opened without pipes."""
    if stream is None:
        raise ValueError("the process has no pipe")
    return stream


async def end_process(process: Process) -> None:
    """End the input of a process, then end it and its children."""
    with suppress(*GONE):
        await get_stream(process.stdin).aclose()
    with anyio.move_on_after(GRACE_SECONDS):
        await process.wait()
    # Also end the children that it left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()
