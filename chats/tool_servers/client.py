"""The client of tool servers. Only it and `local_process` import the package `mcp`.

Each list and each call opens its own session, which ends with it: no connection stays open between
calls, and a stopped call leaves none behind. A call first compares the definition of its tool with
the approved one, so a server cannot change it in between.
"""

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.ground.texts import sanitise_text
from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.transport import build_guarded_client
from chats.tool_servers.local_process import run_local_server
from chats.tool_servers.output import CallOutput, cut_output, read_result_content
from chats.tool_servers.protocol_errors import format_server_error, is_lost_connection
from contextpolicy.models import ToolServer
from contextpolicy.models.tools import LONGEST_DEFINITION
from contextpolicy.tool_servers import HINTS, DescribedTool

if TYPE_CHECKING:
    from mcp import Client

# Each failure becomes a code, because the package would log parts of responses.
logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
CONNECT_SECONDS = 10.0
# The maximum number of tools of one server, and of pages of its list.
MOST_TOOLS, MOST_PAGES = 500, 50
# The maximum bytes of one message with a list of tools.
LIST_BYTES = 16 * 1024 * 1024
# The result of a call that asks for more input. This client offers servers no callbacks.
NEEDS_INPUT = "The tool asked the person for input, which is not possible here."
# Headers of the protocol, in addition to those of every request.
HEADERS = frozenset(
    {"mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id"}
)


class ToolServerFailed(Refusal):
    """A tool server could not be used. `code` is one of `SENTENCES`.

    `most`: the limit in bytes that applied to each message from the server.
    """

    status = 502

    def __init__(self, code: str, *, was_sent: bool = False, most: int = LIST_BYTES) -> None:
        self.code = code
        self.most = most
        # The call may have been carried out.
        self.was_sent = was_sent
        self.sentence = SENTENCES[code]
        limits = {
            "seconds": settings.TOOL_SECONDS,
            "tools": MOST_TOOLS,
            "characters": LONGEST_DEFINITION,
            "mebibytes": f"{most / 1024 / 1024:.4g}",
        }
        named = {name: limit for name, limit in limits.items() if f"{{{name}" in self.sentence}
        super().__init__(retry_after=None, **named)


# What happened, why, and what to do. Rows of older versions keep their own sentences.
SENTENCES: Mapping[str, str] = {
    "package_missing": gettext_noop(
        "The package for tool servers is not installed. Run “make tools”, then restart."
    ),
    "tool_server_unavailable": gettext_noop(
        "The tool server cannot be reached, or it closed the connection. Check that the server is "
        "running and that its address is correct, then read the definitions again."
    ),
    "tool_server_protocol": gettext_noop(
        "The tool server’s response does not follow the MCP protocol, or one message exceeds "
        "{mebibytes} MiB. Check that the address belongs to an MCP server and that the "
        "credential is valid, then read the definitions again."
    ),
    "tool_server_timeout": gettext_noop(
        "The tool server did not answer within {seconds:g} seconds. Check whether it is "
        "overloaded, or raise TOOL_SECONDS, then read the definitions again."
    ),
    "tool_server_busy": gettext_noop(
        "The tool server refused the request because it gets too many (429). Check its limits, "
        "then try again later."
    ),
    "tool_server_credential": gettext_noop(
        "The tool server refused the credential (401 or 403). Check that the credential is valid "
        "and may use this server, then read the definitions again."
    ),
    "tool_server_not_found": gettext_noop(
        "The tool server does not accept requests at this address (404 or 405). Check that the "
        "address belongs to an MCP server, then read the definitions again."
    ),
    "tool_server_refused": gettext_noop(
        "The tool server’s address is not allowed: private networks and plain http need an entry "
        "in ALLOWED_PRIVATE_PROVIDERS. If you run this server, list it there, then restart."
    ),
    "tool_definition_changed": gettext_noop(
        "The tool’s definition changed on its server, so the tool is not called. An "
        "administrator must read and approve it again."
    ),
    "tool_not_listed": gettext_noop(
        "The server no longer lists this tool. Read its definitions again, and choose other tools "
        "in the policies that allow this one."
    ),
    "too_many_tools": gettext_noop(
        "The server lists more than {tools:,} tools, a tool without a name, or a "
        "definition of more than {characters:,} characters. Configure the server to list "
        "fewer tools or shorter definitions, then read the definitions again."
    ),
    "tool_command_missing": gettext_noop(
        "This tool server’s command is not in the setting TOOL_COMMANDS. Add it to the setting "
        "and restart, or choose another command."
    ),
}


# Statuses with which a server refuses a request before it carries it out, by code.
REFUSALS: Mapping[int, str] = {
    429: "tool_server_busy",
    401: "tool_server_credential",
    403: "tool_server_credential",
    404: "tool_server_not_found",
    405: "tool_server_not_found",
}


class LastResponse:
    """The HTTP status of the last request of the protocol in a session.

    The package does not pass it on. Notifications are not requests.
    """

    def __init__(self) -> None:
        self.status = 0
        self._request: Any = None

    async def note_request(self, request: Any) -> None:
        """Forget the status before another request is sent."""
        if is_protocol_request(request):
            self._request, self.status = request, 0

    async def note_response(self, response: Any) -> None:
        """Store the status of the response to the last request."""
        if response.request is self._request:
            self.status = response.status_code

    @property
    def refusal(self) -> str:
        """The code of a response with which the server refused the request; else empty."""
        return REFUSALS.get(self.status, "")


def is_protocol_request(request: Any) -> bool:
    """Return True if an HTTP request contains a request of the protocol, which has an id."""
    if request.method != "POST":
        return False
    message = json.loads(request.content)
    return isinstance(message, dict) and {"id", "method"} <= message.keys()


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The data for connecting to a server, with its credential in plain text."""

    transport: str
    url: str = ""
    command: str = ""
    credential: str = field(default="", repr=False)


def is_package_installed() -> bool:
    """Return True if tool servers can be used. Imports nothing."""
    return find_spec("mcp") is not None


async def list_server_tools(access: ServerAccess) -> list[DescribedTool]:
    """Return the tools that a server lists. Raises ToolServerFailed."""
    async with open_session(access, seconds=settings.TOOL_SECONDS, most=LIST_BYTES) as client:
        return await list_session_tools(client)


async def call_server_tool(
    access: ServerAccess, *, name: str, arguments: Mapping[str, Any], digest: str
) -> CallOutput:
    """Call a tool whose definition has this digest. Raises ToolServerFailed.

    The error's `was_sent` is True if the call may have taken effect. It is False if the server
    refused the request (`REFUSALS`).
    """
    sent = False
    try:
        async with open_session(
            access,
            seconds=settings.TOOL_SECONDS,
            most=max(settings.TOOL_RESULT_BYTES, LIST_BYTES),
        ) as client:
            listed = {tool.name: tool for tool in await list_session_tools(client)}
            if name not in listed:
                raise ToolServerFailed("tool_not_listed")
            if listed[name].digest != digest:
                raise ToolServerFailed("tool_definition_changed")
            sent = True
            output = await call_session_tool(client, name=name, arguments=arguments)
    except ToolServerFailed as error:
        if not sent or error.code in REFUSALS.values():
            raise
        raise ToolServerFailed(error.code, was_sent=True, most=error.most) from None
    return cut_output(output)


async def call_session_tool(
    client: "Client", *, name: str, arguments: Mapping[str, Any]
) -> CallOutput:
    """Call a tool of an open session. An error returned by the server is a result.

    Raises the errors of the package and of its transport, if there is no response.
    """
    # The package would discard a result that differs from the tool's output schema. The call was
    # made, and the model can read the result.
    client.session.validate_tool_result = accept_result  # type: ignore[method-assign,assignment]  # the package has no setting for it
    try:
        result = await client.session.call_tool(name, dict(arguments), allow_input_required=True)
    except Exception as error:
        text = format_server_error(error)
        if text is None:
            raise
        return CallOutput(text, is_error=True)
    if getattr(result, "result_type", "") == "input_required":
        return CallOutput(NEEDS_INPUT, is_error=True)
    return read_result_content(result)


async def accept_result(_name: str, _result: Any) -> None:
    """Accept any result of a tool."""


@asynccontextmanager
async def open_session(
    access: ServerAccess, *, seconds: float, most: int
) -> "AsyncIterator[Client]":
    """Connect to a server for at most `seconds`. Raises ToolServerFailed.

    The client offers the server no callbacks, so the server gets neither the chat, nor a model, nor
    files.
    """
    if not is_package_installed():
        raise ToolServerFailed("package_missing")
    # The package takes a second to import. In a thread, it does not block other replies.
    await asyncio.to_thread(import_module, "mcp")
    last = LastResponse()
    try:
        async with (
            asyncio.timeout(seconds),
            connect_client(access, most=most, last=last) as client,
        ):
            yield client
    except TimeoutError:
        raise ToolServerFailed("tool_server_timeout") from None
    except ToolServerFailed:
        raise
    except Exception as error:  # noqa: BLE001  # each failure of a server becomes a code
        raise ToolServerFailed(last.refusal or find_failure_code(error), most=most) from None


@asynccontextmanager
async def connect_client(
    access: ServerAccess, *, most: int, last: LastResponse
) -> "AsyncIterator[Client]":
    """Connect to a server over its transport. `last` gets the statuses of its responses."""
    from mcp import Client  # noqa: PLC0415  # an extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415  # as above

    if access.transport == ToolServer.Transport.STDIO:
        process = run_local_server(find_command(access.command), most=most)
        async with Client(process, cache=None) as client:
            yield client
        return
    async with build_guarded_client(
        allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS,
        connect_seconds=CONNECT_SECONDS,
        sent_headers=HEADERS,
        most=most,
    ) as http:
        http.event_hooks = {"request": [last.note_request], "response": [last.note_response]}
        if access.credential:
            http.headers["authorization"] = f"Bearer {access.credential}"
        transport = streamable_http_client(access.url, http_client=http, max_sse_event_size=most)
        # Without a cache, each list comes from the server.
        async with Client(transport, cache=None) as client:
            yield client


def find_command(name: str) -> list[str]:
    """Return the arguments of a command in the setting `TOOL_COMMANDS`.

    Raises ToolServerFailed.
    """
    words = shlex.split(settings.TOOL_COMMANDS.get(name, ""))
    if not words:
        raise ToolServerFailed("tool_command_missing")
    return words


async def list_session_tools(client: "Client") -> list[DescribedTool]:
    """Return the tools from all pages of a server's list. Raises ToolServerFailed."""
    found: list[DescribedTool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [describe_tool(tool) for tool in page.tools]
        cursor = page.next_cursor
        if len(found) > MOST_TOOLS:
            break
        if cursor is None:
            return found
    raise ToolServerFailed("too_many_tools")


def describe_tool(tool: Any) -> DescribedTool:
    """Return a listed tool in the format that administrators approve. Raises ToolServerFailed."""
    stated = (
        tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    )
    schema = clean_json({"type": "object", **tool.input_schema})
    described = DescribedTool(
        name=sanitise_text(tool.name)[:200],
        description=sanitise_text(tool.description or ""),
        schema=schema,
        annotations={name: clean_json(stated[name]) for name in HINTS if name in stated},
    )
    if described.size > LONGEST_DEFINITION or not described.name:
        raise ToolServerFailed("too_many_tools")
    return described


def clean_json(value: Any) -> Any:
    """Return a JSON value whose strings can be stored in every database."""
    if isinstance(value, str):
        return sanitise_text(value)
    if isinstance(value, Mapping):
        return {sanitise_text(str(key)): clean_json(item) for key, item in value.items()}
    return [clean_json(item) for item in value] if isinstance(value, list) else value


def find_failure_code(error: BaseException) -> str:
    """Return the code for an error of the package, or of a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        codes = [find_failure_code(each) for each in error.exceptions]
        return next((code for code in codes if code != "tool_server_protocol"), codes[0])
    if isinstance(error, ToolServerFailed):
        return error.code
    if isinstance(error, AddressRefused):
        return "tool_server_refused"
    if isinstance(error, TimeoutError):
        return "tool_server_timeout"
    if isinstance(error, ProviderError):
        return {
            "provider_timeout": "tool_server_timeout",
            "provider_unavailable": "tool_server_unavailable",
        }.get(error.code, "tool_server_protocol")
    if isinstance(error, OSError):
        # The program of a local server cannot be started.
        return "tool_server_unavailable"
    return "tool_server_unavailable" if is_lost_connection(error) else "tool_server_protocol"
