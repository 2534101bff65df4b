"""Builds the request body for Anthropic's Messages API, without the package.

That API is stricter than ours: the system text is separate, roles alternate and start with the
user, each result follows its call, and no text is empty. Adjacent messages of one role become one
message with several blocks, so that a cache breakpoint can be set between them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from chats.ground.texts import read_server_json, sanitise_value
from chats.providers.anthropic_chunks import THINKING_BLOCKS
from chats.providers.base import ProviderRequest, find_image_url
from chats.providers.wire import collect_sent_fields, open_loop
from contextpolicy.engine.compose.layouts import OPENING
from contextpolicy.engine.messages.messages import (
    FilePart,
    ToolCallPart,
    ToolSpec,
    WireMessage,
    format_image_text,
)
from contextpolicy.engine.strict_json import has_more_levels

# The output limit of calls without one, because the API requires a limit.
DEFAULT_OUTPUT = 4096
LEAST_THINKING = 1024
# The server's limit of cache breakpoints.
MOST_MARKS = 4
# Levels of the arguments of a call.
MOST_LEVELS = 500
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_MARK = {"type": "ephemeral"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URL = re.compile(r"data:(?P<kind>[^;,]+);base64,(?P<data>.*)", re.DOTALL)
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")

Block = dict[str, Any]


def build_anthropic_body(request: ProviderRequest) -> dict[str, Any]:
    """Return the body of a call. Only sampling options that the API supports are passed."""
    system, messages = _conversation(request)
    if request.prefill:
        # The API rejects a beginning of the reply that ends with white space.
        last = messages[-1]["content"][-1]
        last["text"] = last["text"].rstrip()
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or DEFAULT_OUTPUT,
        "messages": messages,
        "stream": request.stream,
    }
    if system:
        body["system"] = system
    body |= _tools(request) | _build_thinking(request)
    return body | _options(request.parameters, thinks="thinking" in body)


def _conversation(request: ProviderRequest) -> tuple[list[Block], list[dict[str, Any]]]:
    """Return the system text and the messages, with the requested cache breakpoints."""
    marked = set(sorted(request.cache_marks)[-MOST_MARKS:])
    is_open = open_loop(request.messages)
    sent = _make_ids_distinct(request.messages)
    system: list[Block] = []
    messages: list[dict[str, Any]] = []
    last: Block | None = None
    for place, message in enumerate(sent, start=1):
        blocks = list(_blocks(message, request))
        if request.thinking and place > is_open and message.tool_calls:
            blocks = [*_thoughts(message, by=request.origin), *blocks]
        if message.role == "system":
            system += blocks
        elif blocks:
            _append(messages, "assistant" if message.role == "assistant" else "user", blocks)
        last = blocks[-1] if blocks else last
        if place in marked and last is not None:
            last["cache_control"] = _MARK
    return system, messages or [{"role": "user", "content": [{"type": "text", "text": OPENING}]}]


def _make_ids_distinct(messages: Sequence[WireMessage]) -> Iterator[WireMessage]:
    """Yield the messages with another id for each call whose id an earlier call has.

    Some servers restart the numbers of calls in each reply. This API rejects an id that returns.
    """
    uses: Counter[str] = Counter()
    # The ids that the results of the latest calls get, by the original id.
    sent: dict[str, list[str]] = {}
    for message in messages:
        if message.tool_calls:
            sent = {}
            calls = []
            for call in message.tool_calls:
                call_id = f"{call.call_id}#{uses[call.call_id]}"
                call_id = _call_id(call_id) if uses[call.call_id] else call.call_id
                uses[call.call_id] += 1
                sent.setdefault(call.call_id, []).append(call_id)
                calls.append(replace(call, call_id=call_id))
            yield message._replace(tool_calls=tuple(calls))
        elif message.role == "tool":
            ids = sent.get(message.tool_call_id) or [message.tool_call_id]
            yield message._replace(tool_call_id=ids.pop(0) if len(ids) > 1 else ids[0])
        else:
            yield message


def _thoughts(message: WireMessage, *, by: str) -> list[Block]:
    """Return the thinking blocks that are sent back to the model that signed them.

    The API requires them first and unchanged while the calls of their message are answered.
    """
    found = collect_sent_fields(message, by=by).get(THINKING_BLOCKS)
    blocks = found if isinstance(found, list) else []
    kinds = {"thinking", "redacted_thinking"}
    return [block for block in blocks if isinstance(block, dict) and block.get("type") in kinds]


def _append(messages: list[dict[str, Any]], role: str, blocks: list[Block]) -> None:
    if not messages and role == "assistant":
        messages.append({"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    else:
        messages.append({"role": role, "content": blocks})


def _blocks(message: WireMessage, request: ProviderRequest) -> Iterator[Block]:
    if message.role == "tool":
        pieces = [_piece(piece, request) for piece in message.pieces()]
        yield {
            "type": "tool_result",
            "tool_use_id": _call_id(message.tool_call_id),
            "content": pieces if message.images else message.content,
        }
        return
    for piece in message.pieces() if message.images else (message.content,):
        block = _piece(piece, request)
        if block["type"] != "text" or block["text"].strip():
            yield block
    for call in message.tool_calls:
        yield {
            "type": "tool_use",
            "id": _call_id(call.call_id),
            "name": _name(call.name),
            "input": _arguments(call),
        }


def _piece(piece: str | FilePart, request: ProviderRequest) -> Block:
    """Return a text or an image block. An image without bytes becomes a line with its name."""
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    url = find_image_url(piece, request)
    if not url:
        return {"type": "text", "text": format_image_text(piece)}
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    source = {"type": "base64", "media_type": found["kind"], "data": found["data"]}
    return {"type": "image", "source": source}


def _call_id(given: str) -> str:
    """Return the id of a call. An id in another provider's format is replaced."""
    if _ID.fullmatch(given):
        return given
    return f"call_{hashlib.sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _name(given: str) -> str:
    return _NOT_IN_NAMES.sub("_", given)[:64] or "tool"


def _arguments(call: ToolCallPart) -> dict[str, Any]:
    """Return the arguments as an object. A model's invalid arguments are wrapped in one."""
    try:
        read = sanitise_value(read_server_json(call.arguments or "{}"))
    except (ValueError, RecursionError):
        read = call.arguments
    if has_more_levels(read, limit=MOST_LEVELS):
        # Such a body could not be written.
        read = call.arguments
    return read if isinstance(read, dict) else {"arguments": read}


def _tools(request: ProviderRequest) -> dict[str, Any]:
    """Return the tools. Tools that only earlier messages used are declared but not callable."""
    choice = _tool_choice(request.parameters)
    if request.tools:
        tools = [_tool(spec) for spec in request.tools]
        return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}
    used = dict.fromkeys(_name(c.name) for m in request.messages for c in m.tool_calls)
    if not used:
        return {}
    named = [{"name": name, "input_schema": {"type": "object"}} for name in used]
    return {"tools": named, "tool_choice": {"type": "none"}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    if spec.hosted:
        return dict(spec.parameters)
    tool: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "input_schema": {"type": "object", **spec.parameters},
    }
    return tool | {"strict": True} if spec.strict else tool


def _tool_choice(parameters: Mapping[str, object]) -> dict[str, Any]:
    given = parameters.get("tool_choice")
    function = given.get("function") if isinstance(given, dict) else None
    choice: dict[str, Any] = {}
    if isinstance(function, dict):
        choice = {"type": "tool", "name": function.get("name")}
    elif isinstance(given, str) and given in _CHOICES:
        choice = {"type": _CHOICES[given]}
    if parameters.get("parallel_tool_calls") is False and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice


def _build_thinking(request: ProviderRequest) -> dict[str, Any]:
    """Return the thinking options. Empty without thinking.

    The server rejects thinking if the request forces a tool call. The thinking budget is also left
    out if tool calls must be answered, because the server would require the signed thinking of the
    previous step, which may be missing, or if the output limit is too low.
    """
    if not request.thinking:
        return {}
    is_forced = _tool_choice(request.parameters).get("type") in {"any", "tool"}
    if request.thinking == "adaptive":
        # Models with adaptive thinking may think unless it is switched off.
        chosen = (
            {"type": "disabled"} if is_forced else {"type": "adaptive", "display": "summarized"}
        )
        return {"thinking": chosen}
    goes_on = _follows_tools(request.messages)
    # At least half of the limit is left for the reply.
    most = (request.max_output_tokens or DEFAULT_OUTPUT) // 2
    if goes_on or is_forced or most < LEAST_THINKING:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": min(int(request.thinking), most)}}


def _follows_tools(messages: tuple[WireMessage, ...]) -> bool:
    """Return True if tool results follow the newest assistant message."""
    behind = takewhile(lambda message: message.role != "assistant", reversed(messages))
    return any(message.role == "tool" for message in behind)


def _options(parameters: Mapping[str, object], *, thinks: bool) -> dict[str, Any]:
    """Return further options. The API no longer supports `temperature` and similar ones."""
    found: dict[str, Any] = {}
    stop = parameters.get("stop")
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    if stops := [text for text in stops if isinstance(text, str) and text.strip()]:
        found["stop_sequences"] = stops
    output = _output(parameters, thinks=thinks)
    return found | {"output_config": output} if output else found


def _output(parameters: Mapping[str, object], *, thinks: bool) -> dict[str, Any]:
    output: dict[str, Any] = {}
    effort = parameters.get("reasoning_effort")
    if thinks and effort in ("low", "medium", "high", "xhigh"):
        output["effort"] = effort
    form = parameters.get("response_format")
    given = form.get("json_schema") if isinstance(form, dict) else None
    if isinstance(given, dict) and isinstance(given.get("schema"), dict):
        output["format"] = {"type": "json_schema", "schema": given["schema"]}
    return output
