"""Rebuilds the request of a past call from stored rows, and compares it with the receipt.

The receipt lists all segments in order. Texts other than messages are stored by digest; messages
are cut and laid out by the code that composed them. The result's SHA-256 must equal the receipt's,
otherwise the difference is reported.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from chats.memory.preferences import inference_checks
from chats.models import Message, Receipt
from chats.prompt import model_choice
from chats.prompt.agents import AgentView, load_agent_view
from chats.prompt.sent_texts import SegmentSources, load_receipt_sources
from chats.providers.base import ProviderRequest
from chats.record import images
from chats.record.history import build_engine_message
from contextpolicy.engine.compose.cache_breakpoints import place_cache_breakpoints
from contextpolicy.engine.compose.layouts import Maker, build_entry_block, enforce_strict_roles
from contextpolicy.engine.compose.pieces import build_prompt_maker
from contextpolicy.engine.compose.text_layouts import TextMaker
from contextpolicy.engine.history.entries import Entry
from contextpolicy.engine.history.tool_rules import (
    find_stubbed_results,
    list_omittable_results,
    parse_stub_notes,
)
from contextpolicy.engine.history.truncation import cut_text
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.messages import ToolSpec, WireMessage
from contextpolicy.engine.messages.segments import (
    Block,
    Parts,
    Scale,
    Segment,
    compute_text_ref,
    format_prompt_json,
)
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import build_state_request
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.resolution import load_policy_values

COUNTER = ApproximateCounter()
# Receipt notes of prompts for servers that require alternating roles.
STRICT = {"opening_added", "messages_joined"}


class PartMissing(Exception):
    """A part of the prompt is no longer stored. The argument is its digest or message id."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A rebuilt request.

    `fault`: `erased`, `missing` (a part is no longer stored) or `differs` (its hash is not the
    receipt's); empty if the request equals the one that was sent. `pieces`: groups of segments in
    prompt order, each with its number of messages.
    """

    receipt: Receipt
    messages: tuple[WireMessage, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    pieces: tuple[tuple[Sequence[Segment], int], ...] = ()
    fault: str = ""

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of messages and tools, as in receipts."""
        return compute_text_ref(format_prompt_json(self.messages, self.tools))


def rebuild_request(receipt: Receipt) -> Rebuilt:
    """Rebuild the request of a call and compare its hash with the receipt's."""
    if receipt.erased_at is not None:
        return Rebuilt(receipt, fault="erased")
    try:
        found = _Build(receipt).made()
        if found.sha256 != receipt.prompt_sha256 and receipt.turn.agent_id is not None:
            earlier = _Build(receipt, only_ascii=True).made()
            found = earlier if earlier.sha256 == receipt.prompt_sha256 else found
    except (PartMissing, ValueError, KeyError):
        return Rebuilt(receipt, fault="missing")
    if found.sha256 == receipt.prompt_sha256:
        return found
    return replace(found, fault="missing" if is_owner_renamed_since(receipt) else "differs")


def is_owner_renamed_since(receipt: Receipt) -> bool:
    """Return True if an agent's prompt may contain an earlier user name of the chat's owner.

    User names are not stored with messages, and the audit log does not contain the earlier ones.
    """
    if receipt.turn.agent_id is None:
        return False
    events = AuditEvent.objects.filter(type="user.changed", at__gte=receipt.created_at)
    owner = receipt.turn.branch.chat.owner_id
    found = events.filter(data__user=owner).values_list("data", flat=True)
    return any("username" in data.get("fields", ()) for data in found)


def request_of(found: Rebuilt, *, with_images: bool = False) -> ProviderRequest:
    """Return the request of a rebuilt call, with the model's current output limit and settings.

    Images are given as hashes, or as bytes if `with_images`, to compare the body with the request
    as sent.
    """
    receipt = found.receipt
    model = find_call_model(receipt)
    is_marked = (
        receipt.purpose == "reply" and load_policy_values(receipt.effective_policy).cache_marks
    )
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
            images.load_prompt_images(found.messages, chat=receipt.turn.branch.chat)
            if with_images and (model is None or model.takes_images)
            else {}
        ),
        takes_images=model is None or model.takes_images,
        cache_marks=place_cache_breakpoints(found.pieces, found.messages) if is_marked else (),
        thinking=model.thinking if model and receipt.purpose in {"reply", "warm_up"} else "",
        origin=model_choice.get_model_origin(model) if model else "",
    )


def find_call_model(receipt: Receipt) -> ModelSpec | None:
    """Return the configured model with the name of the call's model, or None."""
    rows = ModelSpec.objects.filter(name=receipt.model_name).order_by("-enabled", "slug")
    own = receipt.turn.model
    return own if own is not None and own.name == receipt.model_name else rows.first()


@dataclass(slots=True)
class _Build:
    """One request while it is being rebuilt."""

    receipt: Receipt
    # See `Viewer.only_ascii`.
    only_ascii: bool = False
    values: PolicyValues = field(init=False)
    sources: SegmentSources = field(init=False)
    view: AgentView | None = field(init=False)
    segments: list[Segment] = field(init=False)
    # The date segments, by the segment that each precedes.
    days: dict[Segment, Segment] = field(init=False)

    def __post_init__(self) -> None:
        self.values = load_policy_values(self.receipt.effective_policy)
        self.sources = load_receipt_sources([self.receipt])
        of_reply = self.receipt.purpose in {"reply", "warm_up"}
        self.view = load_agent_view(self.receipt.turn) if of_reply else None
        if self.view is not None and self.only_ascii:
            viewer = replace(self.view.viewer, only_ascii=True)
            self.view = replace(self.view, viewer=viewer)
        self.segments = [
            Segment(row[0], str(row[1]), row[2], "user", row[3], row[4], row[5], row[6])
            for row in self.receipt.segments
        ]
        self.days = {
            segment: before for before, segment in pairwise(self.segments) if before.origin == "day"
        }

    def made(self) -> Rebuilt:
        """Build the request according to the purpose of the call. Raises `PartMissing`."""
        if self.receipt.purpose == "state":
            return self.side(self.state())
        if self.receipt.purpose == "title":
            return self.side(self.title())
        if self.receipt.purpose == "preferences":
            return self.side(self.inferring())
        return self.reply()

    def side(self, messages: Sequence[WireMessage]) -> Rebuilt:
        """Return a side call: a system text, and one message with the rest."""
        pieces = [(self.segments[:1], 1), (self.segments[1:], 1)]
        return Rebuilt(self.receipt, tuple(messages), (), tuple(pieces))

    def state(self) -> Sequence[WireMessage]:
        texts = {s.message_id: self.text(s) for s in self.segments if s.origin == "tail"}
        known = json.loads(texts["state"]) if texts.get("state") else {}
        read = [self.message(s) for s in self.segments if s.origin == "question"]
        replied = "".join(
            engine.extract_message_text(self.message(s))[-(s.cut_to or 0) :]
            for s in self.segments
            if s.origin == "history"
        )
        made = build_state_request(
            question=read, state=known, schema=self.values.state_schema, replied=replied
        )
        return (WireMessage("system", self.text(self.segments[0])), made[1])

    def title(self) -> Sequence[WireMessage]:
        texts = []
        for segment in self.segments[1:]:
            text = engine.extract_message_text(self.message(segment))
            limit = len(text) if segment.cut_to is None else segment.cut_to
            texts.append(cut_text(text, limit=max(limit, 1), style=self.values.cut_style).text)
        system = WireMessage("system", self.text(self.segments[0]))
        return (system, WireMessage("user", "\n\n".join(texts)))

    def inferring(self) -> Sequence[WireMessage]:
        messages = [self.message(segment) for segment in self.segments[1:]]
        system = WireMessage("system", self.text(self.segments[0]))
        return (system, WireMessage("user", inference_checks.format_conversation(messages)))

    def reply(self) -> Rebuilt:
        by_origin: Mapping[str, list[Segment]] = defaultdict(list)
        for segment in self.segments:
            by_origin[segment.origin].append(segment)
        history = [self.message(segment) for segment in by_origin["history"]]
        maker = build_prompt_maker(
            values=self.values,
            form=self.view.form if self.view else "",
            counter=COUNTER,
            scale=Scale(1, None),
            stubbed=self.stubbed(history),
        )
        asked = [*by_origin["question"], *by_origin["continue"]]
        parts = Parts(
            system=(self.joined(by_origin["system"], "system", maker),),
            tools=tuple(Block((segment,)) for segment in by_origin["tools"]),
            summary=tuple(self.kept(segment) for segment in by_origin["summary"]),
            pins=tuple(self.dated(self.pin(segment, maker), maker) for segment in by_origin["pin"]),
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
        prefill = [self.kept(segment, "assistant") for segment in by_origin["prefill"]]
        blocks = (*maker.arranged(parts), *prefill)
        if STRICT & set(self.receipt.notes):
            blocks, _ = enforce_strict_roles(blocks, maker=maker)
        return Rebuilt(
            self.receipt,
            tuple(wire for block in blocks for wire in block.wires),
            self.tools(by_origin["tools"]),
            tuple((block.segments, len(block.wires)) for block in blocks if block.segments),
        )

    def stubbed(self, history: Sequence[engine.Message]) -> dict[int, frozenset[str]]:
        """Return the results that the prompt omitted, by the seq of their message.

        Receipts of older versions contain only the messages. The call ids are then found by the
        rules.
        """
        noted = parse_stub_notes(self.receipt.notes)
        if None not in noted.values():
            return {seq: ids or frozenset() for seq, ids in noted.items()}
        likely = find_stubbed_results(history, values=self.values)
        return {
            message.seq: likely.get(message.seq)
            or list_omittable_results(message, values=self.values)
            for message in history
            if message.seq in noted
        }

    def text(self, segment: Segment) -> str:
        """Return the stored text of a segment that is not a message. Raises `PartMissing`."""
        text = self.sources.texts.get(segment.text_ref)
        if text is None:
            raise PartMissing(segment.text_ref)
        return text

    def message(self, segment: Segment) -> engine.Message:
        """Return a message as it was sent. Raises `PartMissing`."""
        row: Message | None = self.sources.messages.get(segment.message_id)
        if row is None or row.erased_at is not None:
            raise PartMissing(segment.message_id)
        value = build_engine_message(row, counter=COUNTER)
        return self.view.seen(value, counter=COUNTER) if self.view else value

    def tools(self, segments: Sequence[Segment]) -> tuple[ToolSpec, ...]:
        listed = [tool for segment in segments for tool in json.loads(self.text(segment))]
        return tuple(ToolSpec(**tool) for tool in listed)

    def joined(self, segments: Sequence[Segment], role: engine.WireRole, maker: Maker) -> Block:
        """Return one message that consists of several texts."""
        texts = [(segment.message_id, self.text(segment)) for segment in segments]
        made = maker.message(segments[0].origin, role, texts) if texts else Block(())
        return made._replace(segments=tuple(segments))

    def kept(self, segment: Segment, role: engine.WireRole = "user") -> Block:
        """Return the block of a segment whose text was stored as sent."""
        return Block((segment,), (WireMessage(role, self.text(segment)),))

    def tail(self, segments: Sequence[Segment], maker: Maker) -> tuple[Block, ...]:
        """Return the tail, which comes before the question: one message, or text segments."""
        if isinstance(maker, TextMaker):
            return tuple(self.kept(segment) for segment in segments)
        return (self.joined(segments, "user", maker),) if segments else ()

    def pin(self, segment: Segment, maker: Maker) -> Block:
        """Return the wire message of a pinned message that is sent outside the window."""
        return maker.pin(self.message(segment))._replace(segments=(segment,))

    def asked(self, segment: Segment, maker: Maker) -> Block:
        """Return the question, or the instruction that replaces it."""
        if segment.text_ref:
            return self.kept(segment)
        return maker.question(self.message(segment))._replace(segments=(segment,))

    def past(self, segment: Segment, message: engine.Message, maker: Maker) -> Entry:
        """Return a history message: cut by the policy, or whole if it was continued."""
        made = maker.history(message)
        is_whole = segment.cut_to is None and made.cut_to is not None
        return maker.continued(message) if is_whole else made

    def dated(self, block: Block, maker: Maker) -> Block:
        """Return the block of a message with the date that was sent before it, if any."""
        day = self.days.get(block.segments[0])
        if day is None:
            return block
        message = replace(self.message(block.segments[0]), day=day.message_id)
        return maker.dated(block, message)._replace(segments=(day, *block.segments))

    def as_sent(self, segment: Segment, made: Entry) -> Block:
        return build_entry_block(segment.origin, made)._replace(segments=(segment,))


def find_previous_receipt(receipt: Receipt) -> Receipt | None:
    """Return the receipt of the same agent's previous call on the branch.

    Only calls of the same kind count. None for the first call.
    """
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
    """The prefix that two requests share: messages, local tokens, and the first difference.

    `broken_by`: origin of the first segment that differs; empty if the previous request was only
    extended. `seq`: the message of that segment; 0 if it is not a message.
    """

    messages: int
    tokens: int
    broken_by: str = ""
    seq: int = 0
    before: uuid.UUID | None = None


def compare_request_prefix(now: Rebuilt, before: Rebuilt | None) -> Prefix | None:
    """Compare a request with the previous one. None if one of them cannot be rebuilt."""
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
