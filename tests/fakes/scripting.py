"""The script of the fake model server: options, queued faults and queued replies."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

MARK = re.compile(r"\[\[fake ([^\]]*)\]\]")

Counter = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Options:
    """How one request is answered. Times are in milliseconds; `after` counts deltas.

    `reply` is a text with underscores for spaces, `echo` for the received text, or a `summary` of
    it (see `summaries`). `reject` names a parameter that the server refuses as unknown, a field of
    a message (`message.channel`), a detail of images (`detail.low`), or `result_images`. With
    `unknown.user` or `invalid.user`, the error repeats the value of the parameter. `split` is the
    number of TCP writes per event. `billed` overrides the prompt tokens in the usage. `read_ms`
    is the time to read a prompt token that is not cached. The cache holds the newest prompt, so
    `read_ms` serves one request at a time.
    """

    tokens: int = 20
    ttft: float = 0.0
    ms: float = 0.0
    fault: str = ""
    after: int = 3
    retry_after: str = ""
    reasoning: int = 0
    reply: str = ""
    usage: int = 1
    billed: int = 0
    read_ms: float = 0.0
    split: int = 1
    reject: str = ""
    context_limit: int = 0

    def changed(self, given: dict[str, Any]) -> "Options":
        """A copy of these options with the given ones, which may be strings.

        Unknown names are ignored.
        """
        names = {f.name for f in fields(self)}
        return replace(
            self, **{k: type(getattr(self, k))(v) for k, v in given.items() if k in names}
        )


@dataclass(slots=True)
class ScriptedReply:
    """A reply that is sent once, to the first request whose last user message contains `match`."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str = ""
    match: str = ""
    model: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class QueuedFault:
    """Options for the next `times` requests that match. `model` is a prefix of the model's name."""

    options: dict[str, Any]
    times: int = 1
    match: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of one request, its scripted reply if any, and its size."""

    options: Options
    reply: ScriptedReply | None
    prompt_tokens: int


class Script:
    """The server's settings and the remaining entries of its queues."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.options = Options()
        self.models: list[Any] = ["fake-chat", "fake-small"]
        self.tag = ""
        self.replies: list[ScriptedReply] = []
        self.faults: list[QueuedFault] = []

    def configure(self, settings: dict[str, Any]) -> None:
        """Merge settings: option names, `models`, `tag`, and the queues `replies` and `faults`."""
        self.options = self.options.changed(settings)
        self.models = settings.get("models", self.models)
        self.tag = settings.get("tag", self.tag)
        if "replies" in settings:
            self.replies = [ScriptedReply(**entry) for entry in settings["replies"]]
        if "faults" in settings:
            self.faults = [_queued(entry) for entry in settings["faults"]]

    def listed(self) -> list[dict[str, Any]]:
        """The list of models. An entry is a name, or an object with more fields."""
        return [entry if isinstance(entry, dict) else {"id": entry} for entry in self.models]

    def settings(self) -> dict[str, Any]:
        """The settings made by `configure` and the remaining entries of the queues."""
        return {
            **asdict(self.options),
            "models": self.models,
            "tag": self.tag,
            "replies": [asdict(reply) for reply in self.replies],
            "faults": [asdict(fault) for fault in self.faults],
        }

    def plan(self, body: dict[str, Any]) -> Plan:
        """How to answer a request: settings, then queues, then model name, then the message.

        A queued fault or reply is used once.
        """
        model, _, suffix = str(body.get("model", "")).partition("+")
        messages = body.get("messages", [])
        question = _question(messages)
        given = _fault_for(self.faults, model, question)
        reply = _reply_for(self.replies, model, question)
        given |= reply.options if reply else {}
        given |= _pairs(suffix.split("+"))
        for mark in MARK.findall(question):
            given |= _pairs(mark.split())
        return Plan(self.options.changed(given), reply, self._tokens(messages))

    def unread(self, messages: list[dict[str, Any]], *, known: list[dict[str, Any]]) -> int:
        """The number of prompt tokens after the prefix shared with the cached prompt."""
        pairs = zip(messages, known, strict=False)
        same = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
        start = min(len(messages), len(known)) if same is None else same
        return self._tokens(messages[start:])

    def _tokens(self, messages: list[dict[str, Any]]) -> int:
        return sum(
            4 + sum(map(self._counter, (text_of(message.get("content")), *_calls(message))))
            for message in messages
        )


def _calls(message: dict[str, Any]) -> Iterator[str]:
    """The name and arguments of each tool call, as counted in the prompt."""
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        yield call["function"]["arguments"]


def text_of(content: object) -> str:
    """A message's content as text, whether it is a string or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""


def _queued(entry: dict[str, Any]) -> QueuedFault:
    rules = {k: entry[k] for k in ("times", "match", "model") if k in entry}
    return QueuedFault({k: v for k, v in entry.items() if k not in rules}, **rules)


def _fault_for(faults: list[QueuedFault], model: str, question: str) -> dict[str, Any]:
    for fault in faults:
        if fault.times > 0 and fault.match in question and model.startswith(fault.model):
            fault.times -= 1
            return dict(fault.options)
    return {}


def _reply_for(replies: list[ScriptedReply], model: str, question: str) -> ScriptedReply | None:
    for reply in replies:
        if reply.match in question and model.startswith(reply.model):
            replies.remove(reply)
            return reply
    return None


def _question(messages: list[dict[str, Any]]) -> str:
    texts = (text_of(m.get("content")) for m in reversed(messages) if m.get("role") == "user")
    return next(texts, "")


def _pairs(parts: list[str]) -> dict[str, Any]:
    return {name: value for name, mark, value in (p.partition("=") for p in parts) if mark}
