"""The context of the next message for API clients, as messages or as text.

Composed in the same way as the next prompt of the context meter (the outlook), so it
matches the next receipt. Nothing is stored.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext_noop

from chats.files import attach
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat
from chats.prompt import model_choice, next_prompt, sent_texts
from chats.prompt.tokenizer import get_page_counter
from chats.record import receipts
from chats.record.message_text import check_text
from chats.record.messages import build_question_parts
from contextpolicy.engine.compose.system_text import filter_system_parts, order_system_parts
from contextpolicy.engine.compose.text_layouts import (
    TextContext,
    build_context_messages,
    format_context_text,
)
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.segments import Segment
from contextpolicy.engine.messages.transcript import SECTION_JOINT, TextEntry

# Seconds to wait for the tokenizer at a process's first request. Usually it takes less than one.
SECONDS = 5


class TeamRepliesHere(Refusal):
    """A team replies in the chat. Request the context of one agent instead."""

    code = "team_replies_here"
    status = 409
    sentence = gettext_noop(
        "A team replies in this chat, and each agent sees a different context. Request the "
        "context of one agent: GET chats/…/agents/…/context."
    )


@dataclass(frozen=True, slots=True)
class NextContext:
    """The prompt of the next message: its segments, and its content as values."""

    outlook: next_prompt.Outlook
    # The question, with the texts of its files; empty without both.
    question: Sequence[WireMessage]
    # The segments have the format of a receipt.
    segments: Sequence[Sequence[object]]
    sources: sent_texts.SegmentSources
    notes: Sequence[str]
    # See `next_prompt.load_missed_search`.
    missed_search: str = ""
    text_context: TextContext = field(default_factory=TextContext)

    @property
    def hides_system(self) -> bool:
        """True if the system text contains a part of the policy that the policy hides."""
        hides = self.outlook.choice.values.hide_system_text
        return hides and any(s[0] == "system" and s[1] != "chat" for s in self.segments)

    def messages(self) -> tuple[WireMessage, ...]:
        """Return the messages that would be sent. A hidden system text is empty."""
        return tuple(
            wire._replace(content="") if wire.role == "system" and self.hides_system else wire
            for wire in self.outlook.sent.messages
        )

    def as_text(self, *, include_system: bool) -> str:
        """Return the context as text: headings and one entry per message, without the question."""
        return format_context_text(self.text_context, include_system=include_system)

    def as_messages(self, *, include_system: bool) -> list[WireMessage]:
        """Return the context as messages, with the question last if there is one."""
        made = build_context_messages(
            self.text_context,
            question=SECTION_JOINT.join(wire.shown() for wire in self.question),
            include_system=include_system,
        )
        return made if self.question else made[:-1]


@dataclass(frozen=True, slots=True)
class NextQuestion:
    """A message that is not sent yet: its text and uploaded files.

    `unread`: files without text, such as files that are still being read, are attached by name.
    """

    text: str = ""
    files: Sequence[uuid.UUID] = ()
    unread: bool = False


def compose_next_context(
    *, chat: Chat, user: AbstractBaseUser, question: NextQuestion, now: datetime
) -> NextContext:
    """Compose the context of a question; without one, only the other parts of the prompt.

    Raises `TeamRepliesHere`, the refusals of `record.message_text.check_text`,
    `attach.build_draft_parts` and `model_choice.choose_chat_model`, and
    `composition.PromptRefused`.
    """
    if chat.team_id is not None:
        raise TeamRepliesHere
    choice = model_choice.choose_chat_model(chat=chat)
    if question.text:
        limit = choice.values.input_length_limit
        check_text(question.text, limit=limit, has_files=bool(question.files))
    files = attach.build_draft_parts(
        question.files,
        user=user,
        values=choice.values,
        model=choice.model,
        unread=question.unread,
    )
    rows = Branch.objects.select_related("active_compaction__base", "parent")
    branch = rows.get(pk=cast(uuid.UUID, chat.active_branch_id))
    branch.chat = chat
    found = next_prompt.compose_next_prompt(
        branch,
        choice=choice,
        counter=get_page_counter(wait=SECONDS),
        now=now,
        question=question.text,
        files=files,
    )
    parts = engine.parse_parts(build_question_parts(question.text, files=files))
    segments = [[*build_segment_row(segment)] for segment in found.sent.segments]
    sources = replace(
        sent_texts.load_segment_sources(segments), texts=collect_segment_texts(found, chat=chat)
    ).with_notes(found.sent.notes)
    recent, notes = build_context_entries(found, segments=segments, sources=sources)
    summary = found.given.summary
    return NextContext(
        outlook=found,
        question=engine.convert_parts_to_wires("user", parts) if question.text or files else (),
        segments=segments,
        sources=sources,
        notes=[*found.sent.adjusted, *found.sent.notes, *notes],
        missed_search=next_prompt.load_missed_search(branch) if choice.values.references else "",
        text_context=TextContext(
            system=get_visible_system_text(found),
            summary=summary.text if summary and has_origin(found, "summary") else "",
            pinned=recent["pin"],
            recent=recent["history"],
            background=found.given.background,
        ),
    )


def build_segment_row(segment: Segment) -> tuple[object, ...]:
    s = segment
    return (s.origin, s.message_id, s.seq, s.tokens, s.cut_to, s.text_ref, s.result_limit)


def collect_segment_texts(found: next_prompt.Outlook, *, chat: Chat) -> Mapping[str, str]:
    """Return the texts other than messages, by the digests to which segments refer."""
    named: dict[str, str] = {}
    for segment in found.sent.segments:
        for digest, text in found.sent.texts.items():
            own = receipts.derive_stored_digest(
                digest, origin=segment.origin, label=segment.message_id, chat_id=chat.pk
            )
            if own == segment.text_ref:
                named[own] = text
    return named


def has_origin(found: next_prompt.Outlook, origin: str) -> bool:
    return any(segment.origin == origin for segment in found.sent.segments)


def get_visible_system_text(found: next_prompt.Outlook) -> str:
    """Return the system text as sent, without parts that the policy hides."""
    values = found.choice.values
    parts = filter_system_parts(order_system_parts(found.given.system), values=values)
    shown = [text for origin, text in parts if origin == "chat" or not values.hide_system_text]
    return SECTION_JOINT.join(shown)


def build_context_entries(
    found: next_prompt.Outlook,
    *,
    segments: Sequence[Sequence[object]],
    sources: sent_texts.SegmentSources,
) -> tuple[Mapping[str, tuple[TextEntry, ...]], Sequence[str]]:
    """Return pins and history as text entries, with notes about left-out messages.

    Texts are cut according to the policy. Contains only text written by people and models. Tool
    calls and results are left out, with a note.
    """
    listed: dict[str, list[TextEntry]] = {"pin": [], "history": []}
    notes = []
    for segment in segments:
        origin, label, seq = str(segment[0]), str(segment[1]), segment[2]
        message = sources.messages.get(label)
        if origin not in listed or message is None:
            continue
        values = found.choice.values
        wires, _ = sent_texts.recreate_wire_messages(
            message, segment, values=values, sources=sources
        )
        entries = [wire.shown() for wire in wires if wire.role != "tool" and wire.shown()]
        if any(wire.role == "tool" or wire.tool_calls for wire in wires):
            notes.append(f"{seq}:tool_parts_left_out")
        if entries:
            role: engine.Role = "user" if message.role == "user" else "assistant"
            listed[origin].append(TextEntry(role, SECTION_JOINT.join(entries)))
    known = {name: tuple(found_here) for name, found_here in listed.items()}
    return known, [note for note in notes if note not in found.sent.notes]
