"""Local tool servers: only commands of the settings, with a real process."""

import asyncio
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from pytest_django import Settings

from chats.tool_servers import client
from chats.tool_servers.client import (
    ServerAccess,
    ToolServerFailed,
    call_server_tool,
    list_server_tools,
)

ACCESS = ServerAccess(transport="stdio", command="own")
# A server of the package that this test does not use as a client.
PROGRAM = """
import os
from mcp.server.mcpserver import MCPServer

server = MCPServer("own")


@server.tool()
def secrets() -> str:
    return ",".join(sorted(os.environ))


server.run("stdio")
"""


@pytest.fixture
def command(tmp_path: Path, settings: Settings) -> str:
    """The command line of a server, allowed in the settings."""
    path = tmp_path / "server.py"
    path.write_text(PROGRAM)
    line = f"{sys.executable} {path}"
    settings.TOOL_COMMANDS = {"own": line}
    return line


@pytest.mark.usefixtures("command")
def test_a_process_lists_and_runs_its_tools_without_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENCRYPTION_KEYS", "canary")
    found = asyncio.run(list_server_tools(ACCESS))
    assert [tool.name for tool in found] == ["secrets"]
    output = asyncio.run(
        call_server_tool(ACCESS, name="secrets", arguments={}, digest=found[0].digest)
    )
    assert "PATH" in output.text
    assert "ENCRYPTION_KEYS" not in output.text


def test_a_command_that_is_not_in_the_settings_never_runs(settings: Settings) -> None:
    settings.TOOL_COMMANDS = {}
    with pytest.raises(ToolServerFailed) as failure:
        asyncio.run(list_server_tools(ACCESS))
    assert failure.value.code == "tool_command_missing"


def test_a_process_that_ends_at_once_is_unavailable(settings: Settings) -> None:
    settings.TOOL_COMMANDS = {"own": f"{sys.executable} -c pass"}
    with pytest.raises(ToolServerFailed) as failure:
        asyncio.run(list_server_tools(ACCESS))
    assert failure.value.code in ("tool_server_unavailable", "tool_server_protocol")


@pytest.mark.parametrize("line", ["no-such-program", "/"])
def test_a_command_that_cannot_be_started_is_unavailable(settings: Settings, line: str) -> None:
    settings.TOOL_COMMANDS = {"own": line}
    with pytest.raises(ToolServerFailed) as failure:
        asyncio.run(list_server_tools(ACCESS))
    assert failure.value.code == "tool_server_unavailable"


# A server that writes without end and without a line break, and stores the number of its bytes. It
# replaces that file in one step, because it can be killed at any point.
ENDLESS = """
import os, sys
written = 0
while True:
    sys.stdout.write("x" * 65536)
    sys.stdout.flush()
    written += 65536
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(written))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
"""


def test_a_line_without_end_is_not_read_to_memory(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, counted = tmp_path / "endless.py", tmp_path / "written"
    program.write_text(ENDLESS)
    settings.TOOL_COMMANDS = {"own": f"{sys.executable} {program} {counted}"}
    monkeypatch.setattr(client, "LIST_BYTES", 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ToolServerFailed) as failure:
            asyncio.run(list_server_tools(ACCESS))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failure.value.code == "tool_server_protocol"
    assert peak < 30_000_000
    # The limit, one chunk and the buffers of the pipe.
    before = int(counted.read_text())
    assert before < 3_000_000
    time.sleep(0.3)
    assert int(counted.read_text()) == before, "the process still runs"


@pytest.mark.parametrize("ending", ["stop", "time"])
def test_a_process_ends_with_its_call(tmp_path: Path, settings: Settings, ending: str) -> None:
    pid = tmp_path / "pid"
    program = tmp_path / "silent.py"
    program.write_text(
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    settings.TOOL_COMMANDS = {"own": f"{sys.executable} {program}"}

    async def call() -> bool:
        """Return True if the process started within the time limit."""
        asking = asyncio.create_task(list_server_tools(ACCESS))
        while not asking.done() and not (pid.exists() and pid.read_text()):
            await asyncio.sleep(0.05)
        if ending == "stop":
            asking.cancel()
        with pytest.raises((ToolServerFailed, asyncio.CancelledError)):
            await asking
        return pid.exists()

    # On a busy machine Python needs more than a second to start.
    for seconds in (1, 4, 16) if ending == "time" else (60,):
        settings.TOOL_SECONDS = seconds
        if asyncio.run(call()):
            break
    assert not Path(f"/proc/{pid.read_text()}").exists()
