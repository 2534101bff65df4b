"""Builds the request of any past call again, from rows, and compares it with its receipt.

The receipt has every piece in order; texts that are no messages are kept under their digests, and
messages are cut and laid out by the same code that composed them. The SHA-256 of what comes out
equals the receipt's, or the answer says that it does not.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from chats.memory import inferred
from chats.models import Message, Receipt
from chats.prompt import model_choice
from chats.prompt.agents import AgentView, view_for
from chats.prompt.sent_texts import SegmentSources, sources_of
from chats.providers.base import ProviderRequest
from chats.record import images
from chats.record.history import to_engine
from contextpolicy.engine import messages as engine
from contextpolicy.engine.cachemarks import cache_marks
from contextpolicy.engine.entries import Entry
from contextpolicy.engine.layouts import Maker, entry_block, in_strict_roles
from contextpolicy.engine.messages import ToolSpec, WireMessage
from contextpolicy.engine.pieces import maker_for
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.segments import Block, Parts, Scale, Segment, prompt_json, text_ref
from contextpolicy.engine.strategies.entity_state import state_request
from contextpolicy.engine.text_layouts import TextMaker
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.engine.toolrules import stubbed_results
from contextpolicy.engine.truncation import cut
from contextpolicy.models import ModelSpec
from contextpolicy.resolution import values_of

COUNTER = ApproximateCounter()
# The notes of a prompt whose roles a server wants in turns.
STRICT = {"opening_added", "messages_joined"}


class PartMissing(Exception):
    """A part of the prompt is no longer stored; `digest` or id names it."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A past request. `fault` says why it is not what was sent; empty when it is.

    `pieces`: how many messages of the request each group of segments makes, in prompt order.
    """

    receipt: Receipt
    messages: tuple[WireMessage, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    pieces: tuple[tuple[Sequence[Segment], int], ...] = ()
    fault: str = ""

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of messages and tools, as receipts have it."""
        return text_ref(prompt_json(self.messages, self.tools))


def rebuilt(receipt: Receipt) -> Rebuilt:
    """Build the request of a call again and compare its hash with the receipt's."""
    if receipt.erased_at is not None:
        return Rebuilt(receipt, fault="erased")
    try:
        found = _Build(receipt).made()
    except (PartMissing, ValueError, KeyError):
        return Rebuilt(receipt, fault="missing")
    return found if found.sha256 == receipt.prompt_sha256 else replace(found, fault="differs")


def request_of(found: Rebuilt, *, with_images: bool = False) -> ProviderRequest:
    """Return the request of a rebuilt call; its limit and form are those of the model today.

    Images are named by their hashes, or, to compare it with what left, there as bytes.
    """
    receipt = found.receipt
    model = model_of(receipt)
    is_marked = receipt.purpose == "reply" and values_of(receipt.effective_policy).cache_marks
    most = receipt.budget.get("reserve") or None
    if model and model.max_output and most:
        most = min(most, model.max_output)
    if receipt.purpose == "warm_up":
        most = 1
    return ProviderRequest(
        model=receipt.model_name,
        messages=found.messages,
        tools=found.tools,
        max_output_tokens=most,
        stream=not (model and model.cannot_stream),
        images=(
            images.of_prompt(found.messages, chat=receipt.turn.branch.chat) if with_images else {}
        ),
        cache_marks=cache_marks(found.pieces, found.messages) if is_marked else (),
        thinking=model.thinking if model and receipt.purpose in {"reply", "warm_up"} else "",
        origin=model_choice.origin_of(model) if model else "",
    )


def model_of(receipt: Receipt) -> ModelSpec | None:
    """Return the model of a call as it is set up today; None if there is none of its name."""
    rows = ModelSpec.objects.filter(name=receipt.model_name).order_by("-enabled", "slug")
    own = receipt.turn.model
    return own if own is not None and own.name == receipt.model_name else rows.first()


@dataclass(slots=True)
class _Build:
    """One request while it is built again."""

    receipt: Receipt
    values: PolicyValues = field(init=False)
    sources: SegmentSources = field(init=False)
    view: AgentView | None = field(init=False)
    segments: list[Segment] = field(init=False)
    # The lines with days, by the piece that each precedes.
    days: dict[Segment, Segment] = field(init=False)

    def __post_init__(self) -> None:
        self.values = values_of(self.receipt.effective_policy)
        self.sources = sources_of([self.receipt])
        of_reply = self.receipt.purpose in {"reply", "warm_up"}
        self.view = view_for(self.receipt.turn) if of_reply else None
        self.segments = [
            Segment(row[0], str(row[1]), row[2], "user", row[3], row[4], row[5], row[6])
            for row in self.receipt.segments
        ]
        self.days = {
            segment: before for before, segment in pairwise(self.segments) if before.origin == "day"
        }

    def made(self) -> Rebuilt:
        """Build it by what the call was for. Raises `PartMissing`."""
        if self.receipt.purpose == "state":
            return self.side(self.state())
        if self.receipt.purpose == "title":
            return self.side(self.title())
        if self.receipt.purpose == "preferences":
            return self.side(self.inferring())
        return self.reply()

    def side(self, messages: Sequence[WireMessage]) -> Rebuilt:
        """Return a call beside the reply: a system text and one message of all the rest."""
        pieces = [(self.segments[:1], 1), (self.segments[1:], 1)]
        return Rebuilt(self.receipt, tuple(messages), (), tuple(pieces))

    def state(self) -> Sequence[WireMessage]:
        """Build the call that read the state of a chat."""
        texts = {s.message_id: self.text(s) for s in self.segments if s.origin == "tail"}
        known = json.loads(texts["state"]) if texts.get("state") else {}
        read = [self.message(s) for s in self.segments if s.origin == "question"]
        made = state_request(question=read, state=known, schema=self.values.state_schema)
        return (WireMessage("system", self.text(self.segments[0])), made[1])

    def title(self) -> Sequence[WireMessage]:
        """Build the call that asked for a title."""
        said = []
        for segment in self.segments[1:]:
            text = engine.text_of(self.message(segment))
            limit = len(text) if segment.cut_to is None else segment.cut_to
            said.append(cut(text, limit=max(limit, 1), style=self.values.cut_style).text)
        system = WireMessage("system", self.text(self.segments[0]))
        return (system, WireMessage("user", "\n\n".join(said)))

    def inferring(self) -> Sequence[WireMessage]:
        """Build the call that asked what holds of the person."""
        said = [self.message(segment) for segment in self.segments[1:]]
        system = WireMessage("system", self.text(self.segments[0]))
        return (system, WireMessage("user", inferred.shown(said)))

    def reply(self) -> Rebuilt:
        """Build the prompt of a reply, or its beginning."""
        by_origin: Mapping[str, list[Segment]] = defaultdict(list)
        for segment in self.segments:
            by_origin[segment.origin].append(segment)
        history = [self.message(segment) for segment in by_origin["history"]]
        maker = maker_for(
            values=self.values,
            form=self.view.form if self.view else "",
            counter=COUNTER,
            scale=Scale(1, None),
            stubbed=stubbed_results(history, values=self.values),
        )
        asked = [*by_origin["question"], *by_origin["continue"]]
        parts = Parts(
            system=(self.joined(by_origin["system"], "system", maker),),
            tools=tuple(Block((segment,)) for segment in by_origin["tools"]),
            summary=tuple(self.kept(segment) for segment in by_origin["summary"]),
            pins=tuple(self.pin(segment, maker) for segment in by_origin["pin"]),
            history=tuple(
                self.dated(self.as_sent(segment, self.past(segment, message, maker)), maker)
                for segment, message in zip(by_origin["history"], history, strict=True)
            ),
            tail=self.tail(by_origin["tail"], maker),
            question=tuple(self.dated(self.asked(segment, maker), maker) for segment in asked),
            steps=tuple(
                self.as_sent(segment, maker.whole(self.message(segment), segment.result_limit))
                for segment in by_origin["step"]
            ),
        )
        blocks = maker.arranged(parts)
        if STRICT & set(self.receipt.notes):
            blocks, _ = in_strict_roles(blocks, maker=maker)
        return Rebuilt(
            self.receipt,
            tuple(wire for block in blocks for wire in block.wires),
            self.tools(by_origin["tools"]),
            tuple((block.segments, len(block.wires)) for block in blocks if block.segments),
        )

    def text(self, segment: Segment) -> str:
        """Return the stored text of a piece that is no message. Raises `PartMissing`."""
        text = self.sources.texts.get(segment.text_ref)
        if text is None:
            raise PartMissing(segment.text_ref)
        return text

    def message(self, segment: Segment) -> engine.Message:
        """Return a message as it was shown then. Raises `PartMissing`."""
        row: Message | None = self.sources.messages.get(segment.message_id)
        if row is None or row.erased_at is not None:
            raise PartMissing(segment.message_id)
        value = to_engine(row, counter=COUNTER)
        return self.view.seen(value, counter=COUNTER) if self.view else value

    def tools(self, segments: Sequence[Segment]) -> tuple[ToolSpec, ...]:
        """Return the tool definitions."""
        listed = [tool for segment in segments for tool in json.loads(self.text(segment))]
        return tuple(ToolSpec(**tool) for tool in listed)

    def joined(self, segments: Sequence[Segment], role: engine.WireRole, maker: Maker) -> Block:
        """Return one message of several texts."""
        texts = [(segment.message_id, self.text(segment)) for segment in segments]
        made = maker.message(segments[0].origin, role, texts) if texts else Block(())
        return made._replace(segments=tuple(segments))

    def kept(self, segment: Segment) -> Block:
        """Return a piece whose text was kept as it was sent."""
        return Block((segment,), (WireMessage("user", self.text(segment)),))

    def tail(self, segments: Sequence[Segment], maker: Maker) -> tuple[Block, ...]:
        """Return what stood before the question: one message, or pieces of a text."""
        if isinstance(maker, TextMaker):
            return tuple(self.kept(segment) for segment in segments)
        return (self.joined(segments, "user", maker),) if segments else ()

    def pin(self, segment: Segment, maker: Maker) -> Block:
        """Return a pinned message outside the window."""
        return maker.pin(self.message(segment))._replace(segments=(segment,))

    def asked(self, segment: Segment, maker: Maker) -> Block:
        """Return the question, or the instruction in its place."""
        if segment.text_ref:
            return self.kept(segment)
        return maker.question(self.message(segment))._replace(segments=(segment,))

    def past(self, segment: Segment, message: engine.Message, maker: Maker) -> Entry:
        """Return a message of the history: cut as the policy says, or whole where it went on."""
        made = maker.history(message)
        is_whole = segment.cut_to is None and made.cut_to is not None
        return maker.continued(message) if is_whole else made

    def dated(self, block: Block, maker: Maker) -> Block:
        """Return the block of a message with the day that was sent before it, if one was."""
        day = self.days.get(block.segments[0])
        if day is None:
            return block
        message = replace(self.message(block.segments[0]), day=day.message_id)
        return maker.dated(block, message)._replace(segments=(day, *block.segments))

    def as_sent(self, segment: Segment, made: Entry) -> Block:
        """Return the block of a message with the segment of the receipt."""
        return entry_block(segment.origin, made)._replace(segments=(segment,))


def receipt_before(receipt: Receipt) -> Receipt | None:
    """Return the receipt of the call before this one on the same branch, by the same agent."""
    rows = Receipt.objects.filter(
        turn__branch=receipt.turn.branch_id,
        turn__agent=receipt.turn.agent_id,
        created_at__lte=receipt.created_at,
    ).exclude(pk=receipt.pk)
    if receipt.purpose in {"state", "title"}:
        rows = rows.filter(step=receipt.step, call=receipt.call)
    elif receipt.purpose == "preferences":
        rows = rows.filter(step=receipt.step, call__gte=Receipt.INFERRING)
    else:
        rows = rows.exclude(call=Receipt.BESIDE).filter(call__lt=Receipt.INFERRING)
    related = rows.select_related("effective_policy", "turn__branch__chat")
    return related.order_by("-created_at", "-attempt", "-step", "-call").first()


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning that two requests share: messages, our tokens, and what ended it.

    `broken_by` is the origin of the first piece that differs; empty where the one before was only
    continued. `seq`: of its message, 0 if it is none.
    """

    messages: int
    tokens: int
    broken_by: str = ""
    seq: int = 0
    before: uuid.UUID | None = None


def prefix(now: Rebuilt, before: Rebuilt | None) -> Prefix | None:
    """Compare a request with the one before it; None where one of them cannot be built again."""
    if before is None or now.fault or before.fault:
        return None
    pairs = zip(now.messages, before.messages, strict=False)
    same = 0
    for ours, theirs in pairs:
        if ours != theirs:
            break
        same += 1
    if now.tools != before.tools:
        return Prefix(0, 0, "tools", before=before.receipt.pk)
    tokens = seen = 0
    for segments, count in now.pieces:
        seen += count
        if seen > same:
            is_new = same == len(before.messages)
            first = segments[0]
            return Prefix(
                same, tokens, "" if is_new else first.origin, first.seq, before.receipt.pk
            )
        tokens += sum(segment.tokens for segment in segments)
    return Prefix(same, tokens, before=before.receipt.pk)
