"""The contract of model providers: a request goes in, a stream of events comes out.

All other code uses these types; only adapters translate them. A reply is a stream of deltas that
ends with exactly one `Finished` or with a `ProviderError`, even if the provider's content filter
cut it. Adapters never retry after the first event: the turn decides how to handle a failure.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from django.utils.translation import gettext_noop

from chats.ground.sentences import Sentence, render_english
from contextpolicy.engine.messages.messages import FilePart, ToolSpec, WireMessage

FinishReason = Literal["stop", "length", "tool_calls", "refusal", "none"]
# The last message of a request is the beginning of the reply. "marked": the message is also marked
# as a beginning.
PrefillStyle = Literal["", "plain", "marked"]
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
    """Numbers about the reduction of a call's context, which the demo model describes.

    `summary_range` and `left_out` identify messages by `seq`, both ends included; `left_out`
    contains (from, to, reason). `cut` counts the messages that were shortened. Tokens are local
    tokens (≈).
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
    """The input of a call that extracts a chat's state, for the demo model."""

    schema: Mapping[str, object]
    values: Mapping[str, object]
    texts: tuple[str, ...]


@dataclass(slots=True)
class SentBody:
    """The SHA-256 of a request body as sent. Empty until a response starts.

    `learned`: the options of the request, if the server refused others first and then accepted it.
    """

    sha256: str = ""
    learned: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """One model call. `parameters` are sampling options (temperature, stop), passed unchanged.

    `cache_marks`: the message counts after which to set cache breakpoints, ascending. `thinking`:
    "adaptive", or the maximum tokens for thinking before the reply; empty: the model's default.
    Adapters ignore options that their server does not support.
    """

    model: str
    messages: tuple[WireMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    facts: ContextFacts | None = None
    state: StateTask | None = None
    stream: bool = True
    parameters: Mapping[str, object] = field(default_factory=dict)
    # Images as data URLs by hash. An image that is not listed is sent as a line of text.
    images: Mapping[str, str] = field(default_factory=dict, repr=False)
    # False: images of other servers are sent as lines of text, too.
    takes_images: bool = True
    cache_marks: tuple[int, ...] = ()
    thinking: str = ""
    # "": the last message is not the beginning of the reply.
    prefill: PrefillStyle = ""
    # The requested model as provider/model. Servers get back only the extra fields of this model.
    origin: str = ""
    # Options that the server refused before, see `learned_options`. Not part of the request.
    known: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    # Set by adapters that send bytes; not part of the request.
    sent: SentBody = field(default_factory=SentBody, compare=False, repr=False)


def find_image_url(piece: FilePart, request: ProviderRequest) -> str:
    """Return the URL or data URL with which an image is sent; empty for a line of text."""
    image = piece.image
    if image is None or not request.takes_images:
        return ""
    return image.url or request.images.get(image.sha256, "")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the text of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning before its reply, which is not part of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities of tokens, as sent by the provider. They precede the text of the tokens.

    `is_mixed`: the same chunk also has reasoning or tool calls, and `entries` may include theirs.
    """

    entries: Sequence[Any]
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call. `call_id` is always set. Append `name` and `arguments`."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ExtraFields:
    """Fields to send back with a reply's tool calls, emitted once all of them have arrived.

    They belong to the call at `index`, or to the message if it is None. `thoughts` is the name of
    the field that held the thinking.
    """

    index: int | None
    fields: Mapping[str, object]
    thoughts: str = ""


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The provider's own token counts. Cache reads and writes are part of the input.

    Reasoning is part of the output; 0 if the provider does not report it.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    written_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a reply.

    Reason "none": the stream ended without a finish reason, so the reply is incomplete.
    """

    reason: FinishReason


ProviderEvent = (
    TextDelta
    | ReasoningDelta
    | TokenLogprobs
    | ToolCallDelta
    | ExtraFields
    | UsageReport
    | Finished
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of a call in seconds.

    `connect`: until the connection is open. `first_token`: until the first piece of the
    reply. `gap`: between two pieces. `total`: for the whole call.
    """

    connect: float = 5.0
    first_token: float = 60.0
    gap: float = 30.0
    total: float = 600.0


class Provider(Protocol):
    """Adapter to one model server.

    `stream` is an async generator. A caller that stops early closes it (`contextlib.aclosing`).
    Closing it, or cancelling the task that reads it, ends the request. Raises ProviderError.
    """

    def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Yield the events of one model call."""
        ...

    async def aclose(self) -> None:
        """Close all connections. The provider must not be used afterwards."""
        ...


_SENTENCES: dict[ErrorCode, str] = {
    "provider_auth": gettext_noop(
        "The model provider rejected the API key. An operator needs to check the provider’s key."
    ),
    "provider_unavailable": gettext_noop(
        "The model provider could not be reached, or the connection was lost. Try again in a "
        "moment."
    ),
    "provider_rate_limited": gettext_noop(
        "The model provider is receiving too many requests. Try again in a moment."
    ),
    "provider_timeout": gettext_noop(
        "The model provider did not answer in time. Try again in a moment."
    ),
    "provider_protocol": gettext_noop(
        "The model provider sent an unreadable response. Try again. If the error persists, an "
        "operator needs to check the provider’s address."
    ),
    "provider_rejected": gettext_noop(
        "The model provider rejected the request. An operator needs to check the model’s name and "
        "settings."
    ),
    "context_overflow": gettext_noop(
        "The chat is too long for this model. Shorten the message or choose another model."
    ),
    "tools_unsupported": gettext_noop(
        "This model does not support tools. An operator can disable them in the model’s settings."
    ),
    "content_filtered": gettext_noop(
        "The model provider’s content filter blocked the reply. Edit your message or choose "
        "another model."
    ),
    "too_many_tool_calls": gettext_noop(
        "The model requested more tool calls at once than this server allows. The reply was "
        "stopped, and no tool was run. Try again. If the error persists, choose another model."
    ),
    "tool_call_too_long": gettext_noop(
        "One of the model’s tool calls exceeded the length limit of a reply. The reply was "
        "stopped, and no tool was run. Try again. If the error persists, choose another model."
    ),
    "provider_error": gettext_noop("The model provider reported an error. Try again in a moment."),
}
_RETRYABLE: frozenset[ErrorCode] = frozenset(
    {"provider_unavailable", "provider_rate_limited", "provider_timeout", "provider_error"}
)


class ProviderError(Exception):
    """A failed model call, with a sentence for users.

    `sentence` contains no host, key or raw response. `retry_after` is in seconds, as requested by
    the provider. `limit` and `actual` are the tokens in an overflow error. `retryable` says only
    that the same call may succeed later; whether to repeat it depends on the text already shown.
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
        # The sentence keeps its values, for rows that are shown in the reader's language.
        self.full = Sentence(sentence or _SENTENCES[code])

    @property
    def sentence(self) -> str:
        return render_english(self.full)
