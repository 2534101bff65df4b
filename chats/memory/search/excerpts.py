"""Selects excerpts that help to answer a question from the part of a chat not in its prompt.

Texts are read as plain values in a few queries: loading hundreds of model instances would take
longer than the search.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from chats.memory.search import searchable_text
from chats.memory.search.asking import is_question_or_request
from chats.memory.search.greetings import is_greeting
from chats.memory.search.marking import find_question_matches
from chats.memory.search.meaning import Look
from chats.memory.search.neighbours import (
    SHORTEST,
    MatchingMessage,
    order_with_neighbours,
)
from chats.memory.search.path_texts import PathText, PathTexts
from chats.memory.search.question import ParsedQuestion, parse_question
from chats.memory.search.recall import Matches, match_texts
from chats.memory.search.recall_scope import Scope
from chats.memory.search.references import (
    LONGEST,
    ChosenReferences,
    Reference,
    format_excerpt,
)
from chats.memory.search.sentences import select_best_sentences
from chats.models import Branch, SearchPlace
from chats.models.search import SEQ_BITS, SUMMARY_SEQ
from chats.record import history
from chats.record.zones import convert_to_account_zone, get_branch_zone
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from speed import prepared

# Messages that are read together, in one query.
TOGETHER = 60
# Messages that may not fit before the choice ends: shorter ones may follow.
MOST_MISFITS = 8
# Characters per token that a text rarely exceeds; longer texts are not even counted.
MOST_PER_TOKEN = 8
# A message that is not a question gets fewer excerpts, with more shared words each.
STATED_FLOOR, STATED_COUNT = 2, 8
# Tokens of an excerpt's role and line break without its speaker, and of the line of a day.
ENTRY_TOKENS, DAY_TOKENS = 3, 11


# The place of a branch in the index.
PLACES = prepared.Select(
    lambda at: SearchPlace.objects.filter(branch=at("branch")).values_list("pk")
)


def find_in_chat(
    branch: Branch,
    *,
    question: str,
    before: int,
    values: PolicyValues,
    room: int,
    sent: Collection[int],
    cut: Collection[int] = (),
    is_closed: bool,
    counter: TokenCounter,
    at: datetime,
    look: Look | None = None,
) -> ChosenReferences:
    """Choose excerpts of a branch that its prompt leaves out, within `room` tokens.

    The best excerpts are chosen and returned in chat order. `sent`: seqs of the messages that the
    prompt contains in full; `cut`: those that it shortens. Only messages of the branch with a seq
    below `before` are used. Messages of up to `LONGEST` characters are used whole. Longer ones are
    reduced to the sentences that best match the question, or used whole if room is left at the end.
    If the text is a question, messages near the matches are considered too. `is_closed`: the chat
    excludes its messages from search. The returned `note` is as in `references.choose_references`.
    """
    if is_closed or is_greeting(question):
        return ChosenReferences(note="none")
    matches = match_texts(
        branch.chat.owner_id,
        parse_question(question, at=convert_to_account_zone(branch.chat.owner_id, at)),
        scope=Scope("chat", branch.chat_id),
        look=look,
    )
    late = "late" if matches.is_late else ""
    found = list(select_on_branch(matches, branch=branch, before=before, sent=sent))
    if not found:
        return ChosenReferences(note="none", by_words=late)
    asks = is_question_or_request(question)
    floor = values.reference_floor if asks else max(values.reference_floor, STATED_FLOOR)
    telling = [each for each in found if each.strength >= floor]
    zone = get_branch_zone(branch) if values.dates else ""
    filling = Filling(
        asked=matches.asked,
        weights=matches.weigh_stems(),
        texts=PathTexts(branch, before=before, sent=sent, cut=cut, values=values, zone=zone),
        room=room,
        counter=counter,
        most=values.reference_count if asks else min(values.reference_count, STATED_COUNT),
    )
    filling.add_matches(order_with_neighbours(telling) if asks else telling)
    filling.complete_cut_messages()
    if not filling.chosen:
        return ChosenReferences(note="below_floor", by_words=late)
    ordered = [filling.chosen[seq] for seq in sorted(filling.chosen)]
    return ChosenReferences(ordered, by_words=late, chat_ids=frozenset({branch.chat_id}))


def select_on_branch(
    matches: Matches, *, branch: Branch, before: int, sent: Collection[int]
) -> Iterator[MatchingMessage]:
    """Yield the matches that are messages of a branch's path and not in its prompt, best first."""
    pieces = history.list_path_pieces(branch, after=0, before=before)
    ranges = {branch_id: (above, last) for branch_id, above, last in pieces}
    of_place = {
        place: ranges[branch_id]
        for branch_id in ranges
        for (place,) in PLACES.tuples(branch=branch_id)
    }
    # Many texts share the same words with the question.
    known: dict[tuple[bool, tuple[str, ...]], int] = {}
    for text in matches.texts:
        place, seq = text.id >> SEQ_BITS, text.id & SUMMARY_SEQ
        above, last = of_place.get(place, (0, 0))
        if above < seq <= last and seq not in sent:
            words = (text.is_in_days, (*text.shared, *text.cited))
            strength = known.get(words)
            if strength is None or matches.alike is not None:
                strength = known[words] = matches.strength(text)
            yield MatchingMessage(seq, strength, text.mark)


@dataclass(slots=True)
class Filling:
    """Collects excerpts by seq, within a token limit and a maximum number.

    `weights` maps the stems of the question to their weights.
    """

    asked: ParsedQuestion
    weights: Mapping[str, float]
    texts: PathTexts
    room: int
    counter: TokenCounter
    most: int
    chosen: dict[int, Reference] = field(default_factory=dict)
    days: set[str] = field(default_factory=set)
    # Tokens of the excerpts that are shorter than their message, by seq, the best first.
    shortened: dict[int, int] = field(default_factory=dict)
    # Tokens of speakers' names.
    names: dict[str, int] = field(default_factory=dict)

    def add_matches(self, found: Sequence[MatchingMessage]) -> None:
        """Add messages in order. Stops after `MOST_MISFITS` messages that did not fit."""
        misfits = 0
        for start in range(0, len(found), TOGETHER):
            some = found[start : start + TOGETHER]
            self.texts.read(each.seq for each in some)
            for each in some:
                misfits += not self.add_match(each)
                if misfits >= MOST_MISFITS or len(self.chosen) >= self.most:
                    return

    def add_match(self, found: MatchingMessage) -> bool:
        """Add a message. Return False if it does not fit.

        A message that is missing or too short to be useful is skipped, which also returns True.
        """
        text = self.texts.get(found.seq)
        if text is None or not text.text:
            return True
        if text.hidden is not None:
            return self.add_hidden_part(found, text, *text.hidden)
        if not found.strength and len(text.text) < SHORTEST and not self.asks(found.seq - 1):
            return True
        indexed = text.text[: searchable_text.MOST_CHARACTERS]
        part = select_best_sentences(indexed, weights=self.weights, most=LONGEST)
        return self.add(found, text, *part)

    def add_hidden_part(self, found: MatchingMessage, text: PathText, start: int, end: int) -> bool:
        """Add an excerpt of the part that the prompt lacks. Return False if it does not fit.

        The part is skipped, which returns True, if only the sent text matches the question.
        """
        part = text.text[start : min(end, searchable_text.MOST_CHARACTERS)]
        if not part.strip():
            return True
        shown = f"{text.text[:start]}\n{text.text[end:]}"
        is_elsewhere = not find_question_matches(part, self.asked) and bool(
            find_question_matches(shown[: searchable_text.MOST_CHARACTERS], self.asked)
        )
        if is_elsewhere and not found.near:
            return True
        first, last = select_best_sentences(part, weights=self.weights, most=LONGEST)
        return self.add(found, text, start + first, start + last)

    def asks(self, seq: int) -> bool:
        """Return True if the message with this seq was read and is a question."""
        text = self.texts.get(seq)
        return text is not None and is_question_or_request(text.text)

    def add(self, found: MatchingMessage, said: PathText, start: int, end: int) -> bool:
        """Add an excerpt; return False if it does not fit."""
        is_whole = start == 0 and end == len(said.text)
        tokens = said.tokens if is_whole else None
        if tokens is None:
            tokens = self.counter.count(format_excerpt(said.text, start, end))
        needed = tokens + self.count_heading(said)
        fits = needed <= self.room and len(self.chosen) < self.most
        if fits:
            self.room -= needed
            score = round(found.score, 4)
            self.chosen[found.seq] = Reference(
                said.message_id, start, end, score=score, match_seq=found.near or found.seq
            )
            self.days.add(said.day)
            if not is_whole and said.hidden is None:
                self.shortened[found.seq] = tokens
        return fits

    def complete_cut_messages(self) -> None:
        """Replace shortened excerpts with their whole messages where there is room, best first."""
        for seq, tokens in self.shortened.items():
            said = self.texts.get(seq)
            if said is None or len(said.text) > (self.room + tokens) * MOST_PER_TOKEN:
                continue
            whole = said.tokens if said.tokens is not None else self.counter.count(said.text)
            if whole - tokens <= self.room:
                self.room -= whole - tokens
                self.chosen[seq] = replace(self.chosen[seq], start=0, end=len(said.text))

    def count_heading(self, said: PathText) -> int:
        """Return the token count of an excerpt's heading: its speaker, and its day if new."""
        if said.speaker not in self.names:
            name = f" ({said.speaker})" if said.speaker else ""
            self.names[said.speaker] = self.counter.count(name) if name else 0
        day = 0 if said.day in self.days else DAY_TOKENS
        return ENTRY_TOKENS + self.names[said.speaker] + day
