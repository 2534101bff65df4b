"""Composes the model requests for a summary: before each call, and later from stored data.

A request reads messages, or merges the results of earlier calls. The summary's row stores which
messages or results each request used, and the results themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from contextpolicy.engine.messages.messages import Message, Summary, WireMessage
from contextpolicy.engine.messages.segments import Segment, compute_text_ref
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.prompts import (
    SUMMARY_V1,
    build_merge_request,
    build_summary_request,
    count_transcript_tokens,
)


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """One request: the messages it reads, by seq, or the texts it merges, by index.

    The `is_last` call writes the summary itself. It also gets the previous summary and, if it reads
    messages, the facts that an earlier attempt lost and the URLs that it invented. `max_chars`
    truncates each message. `room`: tokens the model may write in addition to the summary, for
    reasoning. `cuts_tools`: `max_chars` applies to tool calls and results too.
    """

    from_seq: int = 0
    to_seq: int = 0
    max_chars: int | None = None
    texts: tuple[int, ...] = ()
    is_last: bool = False
    room: int = 0
    cuts_tools: bool = False


@dataclass(slots=True)
class CallRecord:
    """The parts of a summary's requests that are not stored elsewhere.

    `texts`: the results of all calls but the last, preceded by the extract of messages that no call
    read. `version`: the prompt version, 1 in records without this field. `zone`: the time zone of
    the dates.
    """

    lost: tuple[str, ...] = ()
    texts: list[str] = field(default_factory=list)
    calls: list[SummaryCall] = field(default_factory=list)
    version: str = SUMMARY_V1
    zone: str = ""
    unknown: tuple[str, ...] = ()

    def as_stored(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> "CallRecord":
        calls = [SummaryCall(**{**call, "texts": tuple(call["texts"])}) for call in stored["calls"]]
        return cls(
            tuple(stored["lost"]),
            list(stored["texts"]),
            calls,
            stored.get("version", SUMMARY_V1),
            stored.get("zone", ""),
            tuple(stored.get("unknown", ())),
        )


@dataclass(frozen=True, slots=True)
class SummarySources:
    """The inputs of a summary: messages, previous summary and policy settings."""

    messages: Sequence[Message]
    previous: Summary | None
    values: PolicyValues
    focus: str
    cited: Sequence[Message] = ()

    def read_by(self, call: SummaryCall) -> list[Message]:
        return [m for m in self.messages if call.from_seq <= m.seq <= call.to_seq]

    def pieces(
        self, call: SummaryCall, record: CallRecord, *, counter: TokenCounter
    ) -> list[Segment]:
        """Return the segments that follow the instruction in a call's question, in order.

        These are the previous summary, then messages or the results of earlier calls.
        """
        found = []
        if self.previous and call.is_last:
            found.append(build_text_segment(self.previous.text, counter=counter))
        if call.texts:
            texts = (record.texts[place] for place in call.texts)
            return [*found, *(build_text_segment(text, counter=counter) for text in texts)]
        for message in self.read_by(call):
            tokens = count_transcript_tokens(
                message, values=self.values, counter=counter, version=record.version
            )
            piece = Segment("history", message.id, message.seq, "user", tokens, call.max_chars)
            found.append(piece)
        return found

    def request(self, call: SummaryCall, record: CallRecord) -> tuple[WireMessage, ...]:
        previous = self.previous if call.is_last else None
        if call.texts:
            return build_merge_request(
                partial=[record.texts[place] for place in call.texts],
                previous=previous,
                values=self.values,
                focus=self.focus,
                version=record.version,
                cited=self.cited,
            )
        return build_summary_request(
            messages=self.read_by(call),
            previous=previous,
            values=self.values,
            max_chars_per_message=call.max_chars,
            cuts_tools=call.cuts_tools,
            lost=record.lost if call.is_last else (),
            unknown=record.unknown if call.is_last else (),
            focus=self.focus,
            version=record.version,
            cited=self.cited if call.is_last else (),
        )


def build_text_segment(text: str, *, counter: TokenCounter) -> Segment:
    """Return the segment for a previous or partial summary in a request."""
    return Segment("summary", "", 0, "user", counter.count(text), text_ref=compute_text_ref(text))


# A function that is called before each request, with its prompt and the record of all requests so
# far. It records the call and renews the claim, or raises `LeaseLost`.
Renew = Callable[[str, CallRecord], None]
# A function that is called after each request, with the reported usage and the size of the prompt
# in local tokens. It counts the call towards the quotas of the chat's owner.
Count = Callable[[Mapping[str, int], int], None]
