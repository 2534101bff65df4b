"""The reference servers of the protocol as local processes. `make tool-servers` installs them."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from chats.tool_servers.client import (
    ServerAccess,
    call_server_tool,
    list_server_tools,
)
from chats.tool_servers.output import CallOutput

PROGRAMS = Path(sys.prefix) / "tool-servers" / "node_modules" / ".bin"
pytestmark = pytest.mark.skipif(
    not PROGRAMS.exists() or shutil.which("node") is None, reason="make tool-servers"
)
ACCESS = ServerAccess(transport="stdio", command="reference")


def call(name: str, **arguments: Any) -> CallOutput:
    """Call a tool whose definition was just read."""
    found = {tool.name: tool.digest for tool in asyncio.run(list_server_tools(ACCESS))}
    return asyncio.run(call_server_tool(ACCESS, name=name, arguments=arguments, digest=found[name]))


def test_the_server_with_everything(settings: Settings) -> None:
    settings.TOOL_COMMANDS = {"reference": f"{PROGRAMS}/mcp-server-everything stdio"}
    tools = asyncio.run(list_server_tools(ACCESS))
    assert len(tools) > 5
    assert call("echo", message="hello") == CallOutput("Echo: hello")
    # Content that is not text is described.
    assert "bytes, not shown]" in call("get-tiny-image").text
    # An error of the tool is a result.
    assert call("get-sum", a="one", b=2).is_error


def test_the_server_for_files_stays_in_its_folder(tmp_path: Path, settings: Settings) -> None:
    shared, secret = tmp_path / "shared", tmp_path / "secret.txt"
    shared.mkdir()
    (shared / "note.txt").write_text("a note")
    secret.write_text("a secret")
    settings.TOOL_COMMANDS = {"reference": f"{PROGRAMS}/mcp-server-filesystem {shared}"}
    assert "a note" in call("read_text_file", path=str(shared / "note.txt")).text
    refused = call("read_text_file", path=str(secret))
    assert refused.is_error
    assert "a secret" not in refused.text
