"""The outlook of a branch: the prompt of its next message, composed before anybody sends it.

The engine composes here as it does for a turn, over the same facts, so that meter, rails and
compaction markers say what the receipt of the next message will say. The web process has no
tokenizer: messages bring their stored counts, texts that were sent once bring the count that their
receipt or row keeps, and only texts that were never sent are estimated.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from chats.memory import references
from chats.models import Branch, Compaction, PromptText, Receipt, Turn
from chats.prompt import composition, model_choice, person, tail
from chats.record import receipts, states, zones
from contextpolicy.engine import messages as engine
from contextpolicy.engine.assembly import (
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    tokens_by_part,
)
from contextpolicy.engine.segments import Segment
from contextpolicy.engine.strategies.entity_state import state_text
from contextpolicy.engine.tokens import ApproximateCounter, message_tokens
from contextpolicy.engine.transcript import Background, TextEntry

Sent = Literal["full", "cut", "summary", "none"]
# The newest turns whose receipts are read: one that waits has none yet.
NEWEST_TURNS = 3
# Pieces that no layout puts into one message with others: they are counted alike in every prompt.
OF_THEIR_OWN = frozenset({"system", "tools"})


class Scaled:
    """A counter whose estimates are scaled by the stored counts of some messages.

    For layouts that send messages as lines of text, whose stored counts cannot be used as such.
    """

    version = "scaled-1"

    def __init__(self, messages: Sequence[engine.Message]) -> None:
        self._estimate = ApproximateCounter()
        stored = sum(message.tokens for message in messages)
        estimated = sum(
            message_tokens(message.parts, message.role, self._estimate) for message in messages
        )
        self._factor = stored / estimated if stored and estimated else 1.0

    def count(self, text: str) -> int:
        """Return the estimated number of tokens of `text`."""
        return round(self._estimate.count(text) * self._factor)


@dataclass(frozen=True, slots=True)
class Fate:
    """The way in which one message is sent, or the reason why not.

    `cut_to` and `results_to`: to how many characters its texts and its tool results are cut.
    """

    sent: Sent
    reason: str = ""
    cut_to: int | None = None
    results_to: int | None = None


FULL = Fate("full")


@dataclass(frozen=True, slots=True)
class Outlook:
    """A composed next prompt: the facts it was made of, and what is sent, in our count."""

    choice: model_choice.ChosenModel
    given: ComposeInput
    sent: AssembledContext
    kept: states.Kept | None
    # Every message that is sent itself, by its seq.
    segments: dict[int, Segment]

    @property
    def tokens(self) -> Mapping[str, int]:
        """The tokens of each part as the provider counts them, adding up to those of the whole."""
        factor, ours, told = self.given.calibration, 0, 0
        found: dict[str, int] = {}
        for part, tokens in tokens_by_part(self.sent.segments).items():
            ours += tokens
            found[part] = round(ours * factor) - told
            told += found[part]
        return found

    def fate(self, seq: int) -> Fate:
        """Return how a message is sent; one that came later is sent in full."""
        segment = self.segments.get(seq)
        if segment is not None:
            return fate_of(segment)
        for out in self.sent.left_out:
            if out.from_seq <= seq <= out.to_seq:
                return Fate("summary") if out.reason == "covered" else Fate("none", out.reason)
        return FULL

    def count(self, first: int, last: int) -> Counter[Sent]:
        """Count the messages of a range by the way in which they are sent, whatever its length."""
        found: Counter[Sent] = Counter()
        for seq, segment in self.segments.items():
            if first <= seq <= last:
                found[fate_of(segment).sent] += 1
        for out in self.sent.left_out:
            size = min(last, out.to_seq) - max(first, out.from_seq) + 1
            if size > 0:
                found["summary" if out.reason == "covered" else "none"] += size
        return found


def fate_of(segment: Segment) -> Fate:
    """Return how a message is sent that is a segment of the prompt."""
    if segment.cut_to is None and segment.result_limit is None:
        return FULL
    return Fate("cut", cut_to=segment.cut_to, results_to=segment.result_limit)


def outlook_on(
    branch: Branch,
    *,
    choice: model_choice.ChosenModel,
    now: datetime,
    question: str = "",
    said: engine.Message | None = None,
) -> Outlook:
    """Compose what `question` would send on a branch, its compaction and chat already read.

    `said`: a question that is stored already. Without either an empty one stands in its place.
    Raises `composition.PromptRefused`.
    """
    kept = states.kept_on(branch, values=choice.values)
    answered = asked(branch, question=question, kept=kept, choice=choice, now=now)
    if said is not None:
        day = zones.day_in(answered.zone, datetime.fromisoformat(said.created_at))
        said = replace(said, day=day if answered.zone else "")
        answered = replace(answered, question=(said,))
    given = facts_on(branch, choice=choice, asked=answered)
    given, made = composition.with_search(given, branch=branch, choice=choice)
    while isinstance(made, WindowNeeded):
        # As the worker does: it moves the window, then reads and composes again.
        branch = moved(branch, to_seq=made.to_seq)
        given = facts_on(branch, choice=choice, asked=answered)
        given, made = composition.with_search(given, branch=branch, choice=choice)
    asks = question or (engine.text_of(said) if said else "")
    if asks and (entries := excerpts(branch, asks, given=given, made=made, asked=answered, at=now)):
        with_entries = replace(given, background=replace(given.background, references=entries))
        again = composition.ask_engine(with_entries)
        if isinstance(again, AssembledContext):
            given, made = with_entries, again
    made = as_kept(made, chat_id=branch.chat_id)
    sent = counted(made, known=known_counts(branch, made=made, given=given))
    return Outlook(
        choice=choice,
        given=given,
        sent=sent,
        kept=kept,
        segments={s.seq: s for s in sent.segments if s.seq and s.origin != "question"},
    )


def excerpts(
    branch: Branch,
    question: str,
    *,
    given: ComposeInput,
    made: AssembledContext,
    asked: composition.Question,
    at: datetime,
) -> tuple[TextEntry, ...]:
    """Return the excerpts of the chat that a question would bring, found by its words alone."""
    room = tail.excerpt_room(given, made)
    if room is None:
        return ()
    is_closed = branch.chat.without_memory or not given.values.archive
    found = references.find_in_chat(
        branch,
        question=references.asked_with(question, seq=asked.before, branch=branch),
        before=asked.before,
        values=given.values,
        room=room.tokens,
        sent=room.sent,
        is_closed=lambda _: is_closed,
        counter=given.counter,
        at=at,
    )
    return references.entries_of(found, is_plain=given.values.plain_sections, zone=asked.zone)


def facts_on(
    branch: Branch, *, choice: model_choice.ChosenModel, asked: composition.Question
) -> ComposeInput:
    """Return the facts for a prompt of this branch, with estimates for what was never counted."""
    given = composition.gather(
        branch=branch, choice=choice, asked=asked, counter=ApproximateCounter()
    )
    if choice.values.layout == "multi_turn":
        return given
    return replace(given, counter=Scaled(given.history))


def moved(branch: Branch, *, to_seq: int) -> Branch:
    """Return the branch as it would be after a move of the window; nothing is written."""
    active = branch.active_compaction
    is_window = active is not None and active.kind == Compaction.Kind.WINDOW
    base = active.base if active is not None and is_window else active
    found = copy(branch)
    found.active_compaction = Compaction(kind=Compaction.Kind.WINDOW, base=base, to_seq=to_seq)
    return found


def stands_alone(given: ComposeInput) -> bool:
    """Tell whether each piece of the prompt is a message of its own."""
    return given.values.layout == "multi_turn" and not given.strict_roles


def asked(
    branch: Branch,
    *,
    question: str,
    kept: states.Kept | None,
    choice: model_choice.ChosenModel,
    now: datetime,
) -> composition.Question:
    """Return the question as if it stood at the branch's end, with the tail it would have now."""
    parts = (engine.TextPart(question),) if question else ()
    zone = composition.zone_for(branch, values=choice.values)
    known = person.about(branch, choice=choice, until=now)
    message = engine.Message(
        id="",
        seq=branch.last_seq + 1,
        role="user",
        parts=parts,
        tokens=message_tokens(parts, "user", ApproximateCounter()),
        created_at=now.isoformat(timespec="seconds"),
        day=zones.day_in(zone, now) if zone else "",
    )
    return composition.Question(
        question=(message,),
        before=message.seq,
        last_seq=message.seq,
        zone=zone,
        background=Background(
            preferences=known.preferences,
            profile=known.profile,
            recent=known.recent,
            state=state_text(kept.row.values) if kept and kept.row else "",
            date=f"{now:%Y-%m-%d}" if choice.values.show_date else "",
        ),
        notes=known.notes,
    )


# The key that a piece is counted by: its origin, its message or name, its cuts, and its text.
Key = tuple[object, ...]


def known_counts(
    branch: Branch, *, made: AssembledContext, given: ComposeInput
) -> Mapping[Key, int]:
    """Return the worker's counts of the pieces of a prompt, as far as it has counted them already.

    They are those of the branch's newest receipt; for a text that it does not name, those of any
    prompt that had it. In layouts where pieces share a message, only the pieces that never do are
    returned.
    """
    found: dict[Key, int] = {}
    for origin, label, _, tokens, cut_to, digest, *results_to in newest_segments(branch):
        key = (origin, label, cut_to, digest, results_to[0] if results_to else None)
        found[key] = int(str(tokens))
    # A summary brings a count of its own.
    texts = (s for s in made.segments if s.text_ref and s.origin != "summary")
    missing = {s.text_ref: key_of(s) for s in texts}
    missing = {digest: key for digest, key in missing.items() if key not in found}
    if missing:
        rows = PromptText.objects.filter(digest__in=missing, tokens__isnull=False)
        for digest, tokens in rows.values_list("digest", "tokens"):
            found[missing[digest]] = tokens or 0
    for segment in made.segments:
        if segment.origin == "summary" and given.summary is not None:
            found.setdefault(key_of(segment), segment.tokens + unestimated(branch, given.summary))
    if stands_alone(given):
        return found
    return {key: tokens for key, tokens in found.items() if key[0] in OF_THEIR_OWN}


def as_kept(made: AssembledContext, *, chat_id: uuid.UUID) -> AssembledContext:
    """Return the prompt with its texts named as the chat's receipts name them."""
    segments = tuple(
        s._replace(
            text_ref=receipts.own_ref(
                s.text_ref, origin=s.origin, label=s.message_id, chat_id=chat_id
            )
        )
        for s in made.segments
    )
    return replace(made, segments=segments)


def unestimated(branch: Branch, summary: engine.Summary) -> int:
    """Return by how much the worker's count of a summary's text differs from its estimate."""
    active = branch.active_compaction
    row = active.base if active and active.kind == Compaction.Kind.WINDOW else active
    if row is None or row.summary_tokens is None:
        return 0
    return row.summary_tokens - summary.tokens


def newest_segments(branch: Branch) -> Sequence[Sequence[object]]:
    """Return the segments of the newest prompt on a branch, as its receipt keeps them."""
    turns = Turn.objects.filter(branch=branch).order_by("-accepted").values("pk")[:NEWEST_TURNS]
    rows = Receipt.objects.filter(
        turn__in=turns, call__gt=Receipt.BESIDE, step__gt=Receipt.AFTERWARDS
    )
    found = rows.order_by("-created_at").values_list("segments", flat=True).first()
    return found or ()


def key_of(segment: Segment) -> Key:
    """Return the key that a piece is counted by."""
    return (
        segment.origin,
        segment.message_id,
        segment.cut_to,
        segment.text_ref,
        segment.result_limit,
    )


def counted(made: AssembledContext, *, known: Mapping[Key, int]) -> AssembledContext:
    """Return the prompt with the worker's count of every piece that it has counted already."""
    segments = tuple(s._replace(tokens=known.get(key_of(s), s.tokens)) for s in made.segments)
    return replace(
        made, segments=segments, prompt_tokens=sum(segment.tokens for segment in segments)
    )
