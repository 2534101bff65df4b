"""The prompt of a branch's next message, composed in advance (the outlook).

The engine composes it from the same facts and with the same counter as a turn's prompt. The context
meter and the message marks in a chat therefore match the receipt of the next message.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from chats.counts import searches
from chats.files.attach import has_text, is_cut
from chats.memory.search import references
from chats.memory.search.excerpts import find_in_chat
from chats.memory.search.follow_up import build_search_question
from chats.models import Branch, Compaction, Turn
from chats.prompt import composition, model_choice, person, prompt_facts, tail, tokenizer
from chats.prompt.moved_skills import find_window_skills
from chats.prompt.prepared_summary import simulate_publication
from chats.prompt.prompt_skills import list_prompt_skills
from chats.prompt.turn_question import Question
from chats.record import receipts, states, zones
from chats.record.messages import build_question_parts
from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    count_tokens_by_part,
)
from contextpolicy.engine.compose.compaction_need import assess_compaction_need
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.segments import Segment
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.messages.transcript import Background, TextEntry
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import format_state_text
from speed import prepared

Sent = Literal["full", "cut", "summary", "none"]
# The parts of the system text that contain skills.
SKILL_PARTS = frozenset({"skills", "team_skills"})


@dataclass(frozen=True, slots=True)
class MessageDisposition:
    """How one message is sent, or the reason why it is not sent.

    `cut_to` and `results_to`: the length in characters to which its texts and tool results are cut.
    """

    sent: Sent
    reason: str = ""
    cut_to: int | None = None
    results_to: int | None = None


FULL = MessageDisposition("full")


@dataclass(frozen=True, slots=True)
class Outlook:
    """A composed next prompt: its input, and the result in local tokens."""

    choice: model_choice.ChosenModel
    given: ComposeInput
    sent: AssembledContext
    kept: states.Kept | None
    # The segments of all sent messages, by `seq`.
    segments: dict[int, Segment]
    # Slugs of skills on demand whose texts the prompt contains, and keys of parts of files.
    loaded_skills: tuple[str, ...] = ()

    @property
    def is_estimate(self) -> bool:
        """True if the turn's token counts may differ, because the tokenizer is not loaded yet."""
        return tokenizer.is_estimate(self.given.counter)

    @property
    def tokens(self) -> Mapping[str, int]:
        """The tokens of each part in the provider's count. Their sum equals the rounded total."""
        factor, ours, told = self.given.calibration, 0, 0
        found: dict[str, int] = {}
        for part, tokens in count_tokens_by_part(self.sent.segments).items():
            ours += tokens
            found[part] = round(ours * factor) - told
            told += found[part]
        return found

    @property
    def skill_tokens(self) -> int:
        """The tokens of skills in the system text, in the provider's count."""
        tokens = sum(
            s.tokens
            for s in self.sent.segments
            if s.origin == "system" and s.message_id in SKILL_PARTS
        )
        return round(tokens * self.given.calibration)

    def fate(self, seq: int) -> MessageDisposition:
        """Return the disposition of a message. Newer messages are sent in full."""
        segment = self.segments.get(seq)
        if segment is not None:
            return get_segment_disposition(segment)
        for out in self.sent.left_out:
            if out.from_seq <= seq <= out.to_seq:
                return (
                    MessageDisposition("summary")
                    if out.reason == "covered"
                    else MessageDisposition("none", out.reason)
                )
        return FULL

    def count(self, first: int, last: int) -> Counter[Sent]:
        """Count the messages of a range by their disposition.

        Messages newer than the outlook are not counted.
        """
        found: Counter[Sent] = Counter()
        for seq, segment in self.segments.items():
            if first <= seq <= last:
                found[get_segment_disposition(segment).sent] += 1
        for out in self.sent.left_out:
            size = min(last, out.to_seq) - max(first, out.from_seq) + 1
            if size > 0:
                found["summary" if out.reason == "covered" else "none"] += size
        return found


def get_segment_disposition(segment: Segment) -> MessageDisposition:
    """Return the disposition of a prompt segment's message."""
    if segment.cut_to is None and segment.result_limit is None:
        return FULL
    return MessageDisposition("cut", cut_to=segment.cut_to, results_to=segment.result_limit)


def compose_next_prompt(
    branch: Branch,
    *,
    choice: model_choice.ChosenModel,
    now: datetime,
    counter: TokenCounter,
    question: str = "",
    files: Sequence[Mapping[str, str]] = (),
    searches: bool = True,
    publishes: bool = True,
    said: engine.Message | None = None,
) -> Outlook:
    """Compose the prompt that `question` would send on a branch.

    `branch` must be loaded with its compaction and chat. With the worker's counter, the
    result equals the next receipt. `files` are the serialized parts of its files. `said` is
    a question that is already stored. Without any of them, the question is empty. If
    `searches` is false, no excerpts of the chat are retrieved for it. `publishes` is false if the
    caller knows that the branch has no prepared summary. Raises `composition.PromptRefused`.
    """
    branch = simulate_cut_files(branch, files=files)
    kept = states.load_stored_state(branch, values=choice.values)
    answered = build_next_question(
        branch, question=question, files=files, kept=kept, choice=choice, counter=counter, now=now
    )
    if said is not None:
        if answered.zone and said.created_at:
            at = datetime.fromisoformat(said.created_at)
            said = replace(said, day=zones.format_local_day(answered.zone, at))
        answered = replace(answered, question=(said,))
    asks = question or (engine.extract_message_text(said) if said else "")
    branch, given, made = compose_like_worker(
        branch,
        choice=choice,
        asked=answered,
        counter=counter,
        # A stored question is one of the past, which the summary of today did not follow.
        publishes=publishes and said is None and branch.chat.team_id is None,
        asks=asks if searches else "",
        now=now,
    )
    sent = apply_stored_digests(made, chat_id=branch.chat_id)
    return Outlook(
        choice=choice,
        given=given,
        sent=sent,
        kept=kept,
        segments={s.seq: s for s in sent.segments if s.seq and s.origin != "question"},
        loaded_skills=tuple(list_prompt_skills(sent, given=given, active=branch.active_compaction)),
    )


def compose_like_worker(
    branch: Branch,
    *,
    choice: model_choice.ChosenModel,
    asked: Question,
    counter: TokenCounter,
    publishes: bool,
    asks: str,
    now: datetime,
) -> tuple[Branch, ComposeInput, AssembledContext]:
    """Compose a prompt with the changes that a worker makes first, in memory.

    It moves the window, retrieves the excerpts for `asks`, and with `publishes` uses a summary that
    is ready. Returns the changed branch, and the prompt with its facts. Raises
    `composition.PromptRefused`.
    """
    is_moved = False
    while True:
        given = prompt_facts.load_prompt_facts(
            branch=branch, choice=choice, asked=asked, counter=counter
        )
        given, made = composition.compose_with_search(given, branch=branch, choice=choice)
        if not is_moved:
            made = (
                composition.find_wider_window(branch, choice=choice, asked=asked, counter=counter)
                or made
            )
        if isinstance(made, AssembledContext) and asks:
            entries = find_prompt_excerpts(
                branch, asks, given=given, made=made, asked=asked, at=now
            )
            asks = ""
            if entries:
                asked = replace(asked, background=replace(asked.background, references=entries))
                continue
        changed = None
        if publishes and is_swap_due(given, made):
            publishes = False
            changed = simulate_publication(branch)
        if changed is None:
            if isinstance(made, AssembledContext):
                return branch, given, made
            # Like the worker: move the window, then load and compose again.
            changed, is_moved = simulate_window_move(branch, to_seq=made.to_seq), True
        branch = changed
        simulate_moved_skills(branch, values=choice.values, counter=counter)


def is_swap_due(given: ComposeInput, made: AssembledContext | WindowNeeded) -> bool:
    """Return True if a worker publishes a summary that is ready before it sends the prompt."""
    return isinstance(made, WindowNeeded) or assess_compaction_need(given, made).action == "swap"


# The tail of the newest turn of a branch that has ended.
LAST_TAIL = prepared.Select(
    lambda at: (
        Turn.objects.filter(branch=at("branch"), finished_at__isnull=False)
        .order_by("-accepted")
        .values_list("tail")[:1]
    )
)


def load_missed_search(branch: Branch) -> str:
    """Return the reason why the last turn's search had no result in time; empty if it had."""
    for (tail_of_turn,) in LAST_TAIL.tuples(branch=branch.pk):
        note = str((tail_of_turn or {}).get("references", ""))
        return note if note in searches.LATE else ""
    return ""


def find_prompt_excerpts(
    branch: Branch,
    question: str,
    *,
    given: ComposeInput,
    made: AssembledContext,
    asked: Question,
    at: datetime,
) -> tuple[TextEntry, ...]:
    """Return the excerpts of the chat for a question, found by keywords only."""
    room = tail.measure_excerpt_room(given, made)
    if room is None:
        return ()
    found = find_in_chat(
        branch,
        question=build_search_question(question, seq=asked.before, branch=branch),
        before=asked.before,
        values=given.values,
        room=room.tokens,
        sent=room.sent,
        cut=room.cut,
        # A chat's own messages may be used in a chat without memory too.
        is_closed=not given.values.archive,
        counter=given.counter,
        at=at,
    )
    return references.build_chosen_entries(
        found, is_plain=given.values.plain_sections, zone=asked.zone
    )


def simulate_window_move(branch: Branch, *, to_seq: int) -> Branch:
    """Return the branch with a window move applied in memory. Stores nothing.

    A move that leaves out nothing more than the summary ends the window.
    """
    active = branch.active_compaction
    is_window = active is not None and active.kind == Compaction.Kind.WINDOW
    base = active.base if active is not None and is_window else active
    found = copy(branch)
    found.active_compaction = base
    if to_seq > (base.to_seq if base else 0):
        found.active_compaction = Compaction(kind=Compaction.Kind.WINDOW, base=base, to_seq=to_seq)
    return found


def simulate_cut_files(branch: Branch, *, files: Sequence[Mapping[str, str]]) -> Branch:
    """Return the branch with new files applied in memory. Stores nothing.

    Once a chat has a truncated document, its prompts offer the tool that reads documents.
    """
    if not any(map(has_text, files)):
        return branch
    found = copy(branch)
    found.chat = copy(branch.chat)
    found.chat.has_documents = True
    found.chat.has_cut_files |= any(map(is_cut, files))
    return found


def simulate_moved_skills(branch: Branch, *, values: PolicyValues, counter: TokenCounter) -> None:
    """Set in memory the skills that a simulated window would move to the system text."""
    active = branch.active_compaction
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        active.skills = find_window_skills(
            branch, base=active.base, to_seq=active.to_seq, values=values, counter=counter
        )


def build_next_question(
    branch: Branch,
    *,
    question: str,
    files: Sequence[Mapping[str, str]],
    kept: states.Kept | None,
    choice: model_choice.ChosenModel,
    counter: TokenCounter,
    now: datetime,
) -> Question:
    """Return the question as the branch's last message, with its current tail."""
    # A question without files has a text part even if it is empty: no parts would count no tokens.
    parts = engine.parse_parts(build_question_parts(question, files=files))
    zone = prompt_facts.get_prompt_zone(branch, values=choice.values)
    known = person.load_person_context(branch, choice=choice, until=now)
    message = engine.Message(
        id="",
        seq=branch.last_seq + 1,
        role="user",
        parts=parts,
        tokens=count_uncut_tokens(parts, "user", counter),
        created_at=now.isoformat(timespec="seconds"),
        day=zones.format_local_day(zone, now) if zone else "",
    )
    return Question(
        question=(message,),
        before=message.seq,
        last_seq=message.seq,
        zone=zone,
        background=Background(
            preferences=known.preferences,
            profile=known.profile,
            recent=known.recent,
            state=format_state_text(kept.row.values) if kept and kept.row else "",
            date=prompt_facts.format_question_date(branch, values=choice.values, at=now),
        ),
        notes=known.notes,
    )


def apply_stored_digests(made: AssembledContext, *, chat_id: uuid.UUID) -> AssembledContext:
    """Return the prompt with the text digests that the chat's receipts use."""
    segments = tuple(
        s._replace(
            text_ref=receipts.derive_stored_digest(
                s.text_ref, origin=s.origin, label=s.message_id, chat_id=chat_id
            )
        )
        for s in made.segments
    )
    return replace(made, segments=segments)
