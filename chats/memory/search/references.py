"""Selects excerpts from other chats for a question, and reads them for prompts.

The selection is made once per turn and stored as rows that refer to messages. Each prompt reads the
text from the messages, so erased or excluded text is never sent. Texts are matched by words, and by
embeddings if an embedding model is configured. If no text reaches the relevance floor, nothing is
added to the prompt.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chats.memory.search.active_paths import ActivePaths
from chats.memory.search.asking import is_question_or_request
from chats.memory.search.meaning import Look
from chats.memory.search.neighbours import (
    SHORTEST,
    MatchingMessage,
    order_with_neighbours,
)
from chats.memory.search.question import parse_question, shorten_question
from chats.memory.search.recall import match_texts
from chats.memory.search.recall_scope import Scope
from chats.memory.search.searchable_text import MOST_CHARACTERS as MOST_INDEXED
from chats.memory.search.searchable_text import collect_searchable_texts
from chats.memory.search.sentences import select_best_sentences
from chats.memory.search.visible_texts import attach_branches, iterate_visible_texts
from chats.models import Branch, Chat, Message, TurnReference
from chats.record import statements
from chats.record.history import select_path_messages
from chats.record.sendable import build_sendable_filter
from chats.record.zones import convert_to_account_zone, format_local_day
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.transcript import EntryRole, TextEntry
from contextpolicy.engine.policy.policy import PolicyValues

# Maximum excerpts per chat, unless only one chat is searched.
MOST_OF_A_CHAT = 2
# Maximum characters of an excerpt, and maximum number of the newest messages that are left out of
# the search because the prompt contains them.
LONGEST = 1_000
MOST_LEFT_OUT = 400
# The lengths of an excerpt of another chat; the shorter ones are tried if there is less room.
LENGTHS = (LONGEST, 500, 250)
# The lengths of a message next to it.
NEIGHBOUR_LENGTHS = (500, 250)


@dataclass(frozen=True, slots=True)
class Reference:
    """A part of a message that is sent with a question.

    `match_seq` is the `seq` of the message that matched the question: this one, or one near it.
    """

    message_id: uuid.UUID
    start: int
    end: int
    score: float
    match_seq: int


@dataclass(frozen=True, slots=True)
class ChosenReferences:
    """The selected excerpts, oldest first. If there are none, `note` gives the reason.

    `by_words`: the reason that embeddings were not used although they are configured. `chat_ids`:
    the chats of the excerpts.
    """

    references: Sequence[Reference] = ()
    note: str = ""
    by_words: str = ""
    chat_ids: frozenset[uuid.UUID] = frozenset()


def build_reference_scope(chat: Chat, *, scope: str) -> Scope:
    """Return the chats from which a policy allows a chat to retrieve context.

    For the scope `folder`, these are the chats of the same folder, or all chats without a folder if
    the chat has none.
    """
    if scope == "chat":
        return Scope("chat", chat.pk)
    if scope == "folder" and chat.folder_id is not None:
        return Scope("folder", chat.folder_id, for_others=True)
    return Scope("person", unfiled=scope == "folder", for_others=True)


def list_prompt_messages(branch: Branch, *, covered: int, window: int | None) -> list[uuid.UUID]:
    """Return the ids of a branch's newest messages that its prompt contains or may contain."""
    after = max(covered, branch.last_seq - window if window else 0)
    rows = select_path_messages(branch, after=after, before=branch.last_seq + 1).order_by("-seq")
    return list(rows.values_list("pk", flat=True)[:MOST_LEFT_OUT])


def choose_references(
    *,
    chat: Chat,
    question: str,
    values: PolicyValues,
    leave_out: Collection[uuid.UUID],
    is_closed: Callable[[uuid.UUID], bool],
    counter: TokenCounter,
    at: datetime,
    look: Look | None = None,
) -> ChosenReferences:
    """Select excerpts for a question that was asked at the time `at`.

    `is_closed` returns True for a chat whose policy excludes it from search. Without excerpts,
    `note` is `none` if nothing was found, otherwise `below_floor`. `look` compares by embedding.
    Matches of closed chats, and of chats with enough excerpts, are skipped, so that others follow.
    """
    scope = build_reference_scope(chat, scope=values.reference_scope)
    matches = match_texts(
        chat.owner_id,
        parse_question(question, at=convert_to_account_zone(chat.owner_id, at)),
        scope=scope,
        leave_out=leave_out,
        look=look,
    )
    late = "late" if matches.is_late else ""
    paths = ActivePaths()
    chosen = Choice(
        weights=matches.weigh_stems(),
        room=values.reference_tokens,
        counter=counter,
        most_of_a_chat=values.reference_count if scope.kind == "chat" else MOST_OF_A_CHAT,
        paths=paths,
        leave_out=frozenset(leave_out),
    )
    floor = values.reference_floor
    # Almost every text of a chat can share its topic, so each word counts in a single chat.
    measure = matches.strength if scope.kind == "chat" else matches.strength_among_chats
    strong = [text for text in matches.texts if measure(text) >= floor]
    for row, text in iterate_visible_texts(chat.owner_id, strong, scope=scope, leave_out=leave_out):
        message = row.message
        if message is None or chosen.is_full(message) or not paths.contains(message):
            continue
        if not is_closed(message.branch.chat_id):
            chosen.add_with_neighbours(message, score=text.mark)
            if chosen.of_a_chat.total() == values.reference_count:
                break
    if not chosen.references:
        visible = iterate_visible_texts(
            chat.owner_id, matches.texts, scope=scope, leave_out=leave_out
        )
        is_any = any(row.message is not None and paths.contains(row.message) for row, _ in visible)
        return ChosenReferences(note="below_floor" if is_any else "none", by_words=late)
    return ChosenReferences(
        chosen.list_in_order(), by_words=late, chat_ids=frozenset(chosen.of_a_chat)
    )


@dataclass(slots=True)
class Choice:
    """Collects excerpts of other chats within `room` tokens.

    `weights` maps the stems of the question to their weights.
    """

    weights: Mapping[str, float]
    room: int
    counter: TokenCounter
    most_of_a_chat: int
    paths: ActivePaths
    leave_out: Collection[uuid.UUID]
    references: list[tuple[Message, Reference]] = field(default_factory=list)
    of_a_chat: Counter[uuid.UUID] = field(default_factory=Counter)

    def is_full(self, message: Message) -> bool:
        """Return True if the chat of a message has as many excerpts as one chat may have."""
        return self.of_a_chat[message.branch.chat_id] >= self.most_of_a_chat

    def add_with_neighbours(self, message: Message, *, score: float) -> None:
        """Add the best sentences of a match, and of the messages next to it, as far as they fit.

        The message after a person's message often answers it, and a reply needs the question before
        it. Together with the match, they count as one excerpt of the chat.
        """
        match = MatchingMessage(message.seq or 0, 0, score)
        if not self.add(message, match, LENGTHS):
            return
        self.of_a_chat[message.branch.chat_id] += 1
        is_reply = message.role == Message.Role.ASSISTANT
        near = [
            each
            for each in order_with_neighbours([match], reach=1)
            if each.near and is_reply == (each.seq < match.seq)
        ]
        rows = self.paths.load_near(message, [each.seq for each in near])
        asks = is_question_or_request(shorten_question(message.text))
        for each in near:
            row = rows.get(each.seq)
            is_answer = asks and each.seq > match.seq
            if row is not None and (is_answer or len(row.text) >= SHORTEST):
                self.add(row, each, NEIGHBOUR_LENGTHS)

    def add(self, message: Message, found: MatchingMessage, lengths: Sequence[int]) -> bool:
        """Add the sentences of a message that best match the question. Return False if none fit."""
        known = {reference.message_id for _, reference in self.references}
        if message.pk in known or message.pk in self.leave_out:
            return False
        part = self.fit_sentences(message, lengths)
        if part is None:
            return False
        reference = Reference(
            message.pk, *part, score=round(found.score, 4), match_seq=found.near or found.seq
        )
        self.references.append((message, reference))
        return True

    def fit_sentences(self, message: Message, lengths: Sequence[int]) -> tuple[int, int] | None:
        """Return the best sentences of at most one of some lengths that fit, or None."""
        text = "\n".join(collect_searchable_texts(message.parts))[:MOST_INDEXED]
        if not text.strip():
            return None
        for longest in lengths:
            part = select_best_sentences(text, weights=self.weights, most=longest)
            tokens = self.counter.count(format_excerpt(text, *part))
            if tokens <= self.room:
                self.room -= tokens
                return part
        return None

    def list_in_order(self) -> list[Reference]:
        """Return the excerpts, oldest first.

        Undated excerpts come first, because they would seem to belong to the day line before them.
        """

        def order(each: tuple[Message, Reference]) -> tuple[bool, datetime, str, int]:
            message = each[0]
            chat_id = str(message.branch.chat_id)
            return not message.undated, message.created_at, chat_id, message.seq or 0

        return [reference for _, reference in sorted(self.references, key=order)]


def format_excerpt(text: str, start: int, end: int) -> str:
    """Return a part of the text, with an ellipsis at each end where text was left out."""
    before = "… " if start > 0 else ""
    after = " …" if end < len(text) else ""
    return f"{before}{text[start:end].strip()}{after}"


def build_chosen_entries(
    found: ChosenReferences, *, is_plain: bool = False, zone: str = ""
) -> tuple[TextEntry, ...]:
    """Return references, formatted for a prompt, before they are stored with a turn."""
    rows = Message.objects.filter(pk__in=[each.message_id for each in found.references])
    messages = {row.pk: row for row in rows}
    return tuple(
        build_text_entry(
            build_author(messages[each.message_id]),
            "\n".join(collect_searchable_texts(messages[each.message_id].parts)),
            each.start,
            each.end,
            is_plain=is_plain,
            zone=zone,
        )
        for each in found.references
        if each.message_id in messages
    )


def load_turn_references(turn_id: uuid.UUID, *, owner_id: int) -> list[TurnReference]:
    """Return the excerpts of a turn that may still be sent, in order.

    Leaves out messages that were erased or excluded, replies that an error interrupted unless the
    user kept them, and messages whose chat was deleted.
    """
    rows = TurnReference.objects.filter(
        build_sendable_filter("message__"),
        turn=turn_id,
        message__branch__chat__owner=owner_id,
        message__branch__chat__deleted_at=None,
    )
    found = list(rows.select_related("message").order_by("place"))
    attach_branches([row.message for row in found])
    return found


def build_reference_entries(
    turn_id: uuid.UUID,
    *,
    owner_id: int,
    is_plain: bool = False,
    has_inline_day: bool = False,
    zone: str = "",
    shown: Callable[[Message], str] | None = None,
) -> tuple[TextEntry, ...]:
    """Return the references of a turn, formatted for a prompt: day, speaker, text.

    `is_plain`: only the text. `has_inline_day`: the day is a part of the label. Dates are in
    `zone`, or UTC without one. `shown` returns a message's text as the reader of the prompt may see
    it; references with an empty text are left out.
    """
    if shown is None:
        texts = statements.REFERENCED_TEXTS.tuples(turn=turn_id, owner=owner_id)
        made = [
            (
                Author(role, get_speaker_name(speaker), None if undated else at),
                "\n".join(collect_searchable_texts(parts)),
                start,
                end,
            )
            for start, end, role, speaker, at, undated, parts in texts
        ]
    else:
        rows = load_turn_references(turn_id, owner_id=owner_id)
        made = [(build_author(row.message), shown(row.message), row.start, row.end) for row in rows]
    return tuple(
        build_text_entry(
            author,
            text,
            start,
            end,
            is_plain=is_plain,
            has_inline_day=has_inline_day,
            zone=zone,
        )
        for author, text, start, end in made
        if text[start:end].strip()
    )


@dataclass(frozen=True, slots=True)
class Author:
    """The author and time of a message.

    `name` is the speaker's name, or empty. `at` is None for an undated message.
    """

    role: str
    name: str
    at: datetime | None


def get_speaker_name(speaker: Mapping[str, Any] | None) -> str:
    """Return the name of a message's speaker, or an empty string."""
    return str(speaker["roleName"]) if speaker else ""


def build_author(message: Message) -> Author:
    """Return the name, role and writing time of a message, for the label of an excerpt."""
    return Author(message.role, get_speaker_name(message.speaker), get_known_time(message))


def get_known_time(message: Message) -> datetime | None:
    """Return the time of a message; None if it is undated."""
    return None if message.undated else message.created_at


def has_inline_days(values: PolicyValues) -> bool:
    """Return True if excerpts have their day in their label, not in a line above them.

    Policies that set neither `dates` nor `reference_share` keep their old prompts.
    """
    return not values.dates and not values.reference_share


def build_text_entry(
    author: Author,
    text: str,
    start: int,
    end: int,
    *,
    is_plain: bool = False,
    has_inline_day: bool = False,
    zone: str = "",
) -> TextEntry:
    """Return a part of a message, formatted for a prompt.

    `is_plain`: without day and speaker. `has_inline_day`: the day is a part of the label.
    """
    role: EntryRole = "user" if author.role == Message.Role.USER else "assistant"
    part = format_excerpt(text, start, end)
    if is_plain:
        return TextEntry(role, part)
    day = format_iso_day(author.at, zone=zone)
    label = ", ".join(filter(None, (day if has_inline_day else "", author.name)))
    named = f"({label}) {part}" if label else part
    return TextEntry(role, named, day="" if has_inline_day else day)


def format_iso_day(at: datetime | None, *, zone: str) -> str:
    """Return the ISO day of a time in a time zone, or in UTC if no zone is given.

    Empty if `at` is None.
    """
    if at is None:
        return ""
    return format_local_day(zone, at) if zone else f"{at:%Y-%m-%d}"
