"""The context of the next message for programs: what it would send, as messages or as text.

It is composed as the outlook is, so it is what the next receipt will say. Nothing is stored.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

from chats.ground.refusals import Refusal
from chats.models import Branch, Chat
from chats.prompt import model_choice, outlook, sent_texts
from chats.record import receipts
from chats.record.messages import check_text
from contextpolicy.engine import messages as engine
from contextpolicy.engine.messages import WireMessage
from contextpolicy.engine.segments import Segment
from contextpolicy.engine.systemtext import governed, system_parts
from contextpolicy.engine.text_layouts import TextContext, context_text, to_messages
from contextpolicy.engine.transcript import SECTION_JOINT, TextEntry


class TeamRepliesHere(Refusal):
    """Agents reply in the chat, and each is shown something else."""

    code = "team_replies_here"
    status = 409
    sentence = (
        "A team replies in this chat, and each of its agents is shown something else. Ask for the"
        " context of one of them: GET chats/…/agents/…/context."
    )


@dataclass(frozen=True, slots=True)
class NextContext:
    """The prompt of the next message: its pieces, and the chat's knowledge as values."""

    outlook: outlook.Outlook
    question: str
    # As a receipt keeps segments.
    segments: Sequence[Sequence[object]]
    sources: sent_texts.SegmentSources
    notes: Sequence[str]
    text_context: TextContext = field(default_factory=TextContext)

    @property
    def hides_system(self) -> bool:
        """True if a part of the system text is the policy's, and the policy hides it."""
        hides = self.outlook.choice.values.hide_system_text
        return hides and any(s[0] == "system" and s[1] != "chat" for s in self.segments)

    def messages(self) -> tuple[WireMessage, ...]:
        """Return the messages that would be sent; a hidden system text is left empty."""
        return tuple(
            wire._replace(content="") if wire.role == "system" and self.hides_system else wire
            for wire in self.outlook.sent.messages
        )

    def as_text(self, *, include_system: bool) -> str:
        """Write the context as text: titles, one entry a message, without the question."""
        return context_text(self.text_context, include_system=include_system)

    def as_messages(self, *, include_system: bool) -> list[WireMessage]:
        """Write the context as messages with the question last; without one it is left out."""
        made = to_messages(self.text_context, question=self.question, include_system=include_system)
        return made if self.question else made[:-1]


def next_context(*, chat: Chat, question: str, now: datetime) -> NextContext:
    """Compose what `question` would send in a chat; without one, all but the question.

    Raises `TeamRepliesHere`, what `record.messages.check_text` and `model_choice.choose` raise, and
    `composition.PromptRefused`.
    """
    if chat.team_id is not None:
        raise TeamRepliesHere
    choice = model_choice.choose(chat=chat)
    if question:
        check_text(question, limit=choice.values.input_length_limit)
    rows = Branch.objects.select_related("active_compaction__base", "parent")
    branch = rows.get(pk=cast(uuid.UUID, chat.active_branch_id))
    branch.chat = chat
    found = outlook.outlook_on(branch, choice=choice, now=now, question=question)
    segments = [[*row_of(segment)] for segment in found.sent.segments]
    sources = replace(sent_texts.sources_in(segments), texts=texts_of(found, chat=chat))
    recent, notes = entries(found, segments=segments, sources=sources)
    summary = found.given.summary
    return NextContext(
        outlook=found,
        question=question,
        segments=segments,
        sources=sources,
        notes=[*found.sent.adjusted, *found.sent.notes, *notes],
        text_context=TextContext(
            system=system_text(found),
            summary=summary.text if summary and has(found, "summary") else "",
            pinned=recent["pin"],
            recent=recent["history"],
            background=found.given.background,
        ),
    )


def row_of(segment: Segment) -> tuple[object, ...]:
    """Return a segment as a receipt keeps it."""
    s = segment
    return (s.origin, s.message_id, s.seq, s.tokens, s.cut_to, s.text_ref, s.result_limit)


def texts_of(found: outlook.Outlook, *, chat: Chat) -> Mapping[str, str]:
    """Return the texts that are no messages, by the digests that the segments name."""
    named: dict[str, str] = {}
    for segment in found.sent.segments:
        for digest, text in found.sent.texts.items():
            own = receipts.own_ref(
                digest, origin=segment.origin, label=segment.message_id, chat_id=chat.pk
            )
            if own == segment.text_ref:
                named[own] = text
    return named


def has(found: outlook.Outlook, origin: str) -> bool:
    """Tell whether the prompt has a piece of that origin."""
    return any(segment.origin == origin for segment in found.sent.segments)


def system_text(found: outlook.Outlook) -> str:
    """Return the system text as it would be sent; what the policy hides is left out."""
    values = found.choice.values
    parts = governed(system_parts(found.given.system), values=values)
    shown = [text for origin, text in parts if origin == "chat" or not values.hide_system_text]
    return SECTION_JOINT.join(shown)


def entries(
    found: outlook.Outlook,
    *,
    segments: Sequence[Sequence[object]],
    sources: sent_texts.SegmentSources,
) -> tuple[Mapping[str, tuple[TextEntry, ...]], Sequence[str]]:
    """Return pins and history as entries of text, cut as the policy says, and what is left out.

    Texts of people and models alone: calls and results of tools are left out, with a note.
    """
    listed: dict[str, list[TextEntry]] = {"pin": [], "history": []}
    notes = []
    for segment in segments:
        origin, label, seq = str(segment[0]), str(segment[1]), segment[2]
        message = sources.messages.get(label)
        if origin not in listed or message is None:
            continue
        values = found.choice.values
        wires, _ = sent_texts.wires_sent(message, segment, values=values)
        told = [wire.shown() for wire in wires if wire.role != "tool" and wire.shown()]
        if any(wire.role == "tool" or wire.tool_calls for wire in wires):
            notes.append(f"{seq}:tool_parts_left_out")
        if told:
            role: engine.Role = "user" if message.role == "user" else "assistant"
            listed[origin].append(TextEntry(role, SECTION_JOINT.join(told)))
    known = {name: tuple(found_here) for name, found_here in listed.items()}
    return known, [note for note in notes if note not in found.sent.notes]
