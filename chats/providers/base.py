"""The contract of every model provider: a request goes in, a stream of events comes out.

Everything above this room speaks these values; an adapter translates them at the call and nowhere
else. A reply is a stream of deltas that ends with exactly one `Finished`, or with a
`ProviderError`, also where the provider's content filter cut it. Adapters never retry after the
first event: the turn decides what a failure means for it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from contextpolicy.engine.messages import ToolSpec, WireMessage

FinishReason = Literal["stop", "length", "tool_calls", "refusal", "none"]
ErrorCode = Literal[
    "provider_auth",
    "provider_unavailable",
    "provider_rate_limited",
    "provider_timeout",
    "provider_protocol",
    "provider_rejected",
    "context_overflow",
    "tools_unsupported",
    "content_filtered",
    "too_many_tool_calls",
    "tool_call_too_long",
    "provider_error",
]


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """The changes made to the context of a call, in numbers; the demo model describes them.

    `summary_range` and `left_out` name messages by seq, both ends included; `left_out` holds (from,
    to, reason). `cut` counts the messages that were sent shortened. Tokens are ours (≈).
    """

    messages_sent: int
    messages_total: int
    prompt_tokens: int
    prompt_limit: int
    summary_present: bool
    summary_range: tuple[int, int] | None
    left_out: tuple[tuple[int, int, str], ...]
    cut: int
    policy: str
    strategy: str
    window: int | None
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class StateTask:
    """The input of a call that reads the state of a chat; the demo model answers from it."""

    schema: Mapping[str, object]
    values: Mapping[str, object]
    texts: tuple[str, ...]


@dataclass(slots=True)
class SentBody:
    """The SHA-256 of the bytes that left as the body of a call; empty until a response began."""

    sha256: str = ""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One model call. `parameters` are sampling options (temperature, stop), passed on as given.

    `cache_marks`: after how many messages a part ends that the server should keep, each of them,
    ascending. `thinking`: "adaptive", or a number of tokens to think with before the reply; empty:
    as the model does by itself. An adapter whose server knows neither passes over them.
    """

    model: str
    messages: tuple[WireMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    facts: ContextFacts | None = None
    state: StateTask | None = None
    stream: bool = True
    parameters: Mapping[str, object] = field(default_factory=dict)
    # The bytes of images as data URLs, by their hash; of one that is not here a line of text goes.
    images: Mapping[str, str] = field(default_factory=dict, repr=False)
    cache_marks: tuple[int, ...] = ()
    thinking: str = ""
    # The provider and the model, as `ToolCallPart.extra` names them: who gets its own fields back.
    origin: str = ""
    # Filled in by an adapter that sends bytes; no part of what is asked.
    sent: SentBody = field(default_factory=SentBody, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thoughts before its reply; never part of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of one tool call. `call_id` is always set; `name` and `arguments` are to be appended."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ExtraFields:
    """Fields that the server may want back with a reply's tool calls, once all of them came.

    Of the call at `index`; None: of the message. `thoughts` is the name of the field that had the
    thoughts.
    """

    index: int | None
    fields: Mapping[str, object]
    thoughts: str = ""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The provider's own count in tokens; those read from and written to its cache are input."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    written_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event. Reason "none": the stream ended without saying why, so the reply is cut."""

    reason: FinishReason


ProviderEvent = TextDelta | ReasoningDelta | ToolCallDelta | ExtraFields | UsageReport | Finished


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, to the first piece of reply, between two pieces, for the whole call."""

    connect: float = 5.0
    first_token: float = 60.0
    gap: float = 30.0
    total: float = 600.0


class Provider(Protocol):
    """Adapter to one model server.

    `stream` is an async generator: a caller who leaves it early closes it (`contextlib.aclosing`),
    and closing it or cancelling the task that reads it ends the call upstream. Raises
    ProviderError.
    """

    def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Yield the events of one model call."""
        ...

    async def aclose(self) -> None:
        """Give connections back; the provider is not used again."""
        ...


_SENTENCES: dict[ErrorCode, str] = {
    "provider_auth": (
        "The model provider refused the credentials. An operator needs to check the provider's key."
    ),
    "provider_unavailable": (
        "The model provider could not be reached or broke off. Try again in a moment."
    ),
    "provider_rate_limited": (
        "The model provider is receiving too many requests. Try again in a moment."
    ),
    "provider_timeout": "The model provider did not answer in time. Try again in a moment.",
    "provider_protocol": (
        "The model provider sent an answer that cannot be read. "
        "Try again; if it stays so, an operator needs to check the provider's address."
    ),
    "provider_rejected": (
        "The model provider did not accept the request. "
        "An operator needs to check the model's name and settings."
    ),
    "context_overflow": (
        "The conversation is too long for this model. Shorten the message or choose another model."
    ),
    "tools_unsupported": (
        "This model takes no tools. An operator can switch them off in the model's settings."
    ),
    "content_filtered": (
        "The model provider's content filter let no reply through. "
        "Edit your message or choose another model."
    ),
    "too_many_tool_calls": (
        "The model asked for more tools at once than this server takes, so it was cut off and none "
        "of them was used. Try again; if it stays so, choose another model."
    ),
    "tool_call_too_long": (
        "The model asked for a tool with more text than a reply may have, so it was cut off and no "
        "tool was used. Try again; if it stays so, choose another model."
    ),
    "provider_error": "The model provider reported an error. Try again in a moment.",
}
_RETRYABLE: frozenset[ErrorCode] = frozenset(
    {"provider_unavailable", "provider_rate_limited", "provider_timeout", "provider_error"}
)


class ProviderError(Exception):
    """A model call that failed, in words fit for people.

    `sentence` names no host, key or raw response. `retry_after` is in seconds, as the provider
    asked. `limit` and `actual` are the tokens an overflow error named. `retryable` says only that
    the same call may succeed later; whether it may be repeated depends on what was already shown.
    """

    def __init__(
        self,
        code: ErrorCode,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        limit: int | None = None,
        actual: int | None = None,
        retryable: bool | None = None,
        sentence: str = "",
    ) -> None:
        super().__init__(code if status is None else f"{code} ({status})")
        self.code: ErrorCode = code
        self.status = status
        self.retry_after = retry_after
        self.limit = limit
        self.actual = actual
        self.retryable = code in _RETRYABLE if retryable is None else retryable
        self.sentence = sentence or _SENTENCES[code]
