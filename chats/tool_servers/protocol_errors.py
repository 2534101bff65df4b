"""Errors in the protocol of tool servers (JSON-RPC): sent by a server, or a lost response.

The package `mcp` reports a lost or unreadable response with the same class as an error that the
server sent. After such a loss, it is unknown whether a call was carried out.
"""

import json
from typing import Any

from chats.ground.texts import sanitise_text

CONNECTION_CLOSED, PARSE_ERROR = -32000, -32700
INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32600, -32601, -32603
# How the messages of the package for each code begin (version 2.3.0). An empty text is any message.
PACKAGE_MESSAGES = {
    CONNECTION_CLOSED: ("Connection closed", "SSE stream "),
    # A server that cannot read a request does not know its id, so it cannot answer it.
    PARSE_ERROR: ("",),
    INVALID_REQUEST: (
        "Session terminated",
        "Unexpected content type: ",
        "server answered a request with 202 Accepted",
        "Redirect to ",
    ),
    METHOD_NOT_FOUND: ("Not Found",),
    INTERNAL_ERROR: ("Server returned an error response",),
}


def is_lost_connection(error: BaseException) -> bool:
    """Return True if the package reports a connection that ended without a response."""
    return read_error_data(error)[0] == CONNECTION_CLOSED


def format_server_error(error: BaseException) -> str | None:
    """Return the text of an error that the server sent, with its code and its data.

    None for all other errors, including those that the package raises if a response is lost.
    """
    code, message, data = read_error_data(error)
    if code is None or message.startswith(PACKAGE_MESSAGES.get(code, ())):
        return None
    lines = [f"{message or 'Error'} (code {code})"]
    if data not in (None, "", {}, []):
        lines.append(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))
    return sanitise_text("\n".join(lines))


def read_error_data(error: BaseException) -> tuple[int | None, str, Any]:
    """Return the code, message and data of a JSON-RPC error. The code is None for other errors."""
    data = getattr(error, "error", None)
    code, message = getattr(data, "code", None), getattr(data, "message", None)
    if not isinstance(code, int) or not isinstance(message, str):
        return None, "", None
    return code, message, getattr(data, "data", None)
