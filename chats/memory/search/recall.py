"""Searches a user's chats. Only this module reads their index.

The owner is an argument and part of every query, so other people's texts are never compared,
counted or returned. `ranking` scores the matching words, together with embeddings if available.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from chats.memory.search import fulltext, index_progress, searchable_text
from chats.memory.search.finding import (
    MOST_CHOOSING,
    FoundText,
    WordCounts,
    extract_significant_stems,
    find_texts,
    is_above_floor,
)
from chats.memory.search.fulltext import Within
from chats.memory.search.marking import find_question_matches, select_match_excerpt
from chats.memory.search.meaning import Look, TextLikeness
from chats.memory.search.question import (
    ParsedQuestion,
    parse_question,
    select_significant_words,
    strip_possessive,
)
from chats.memory.search.ranking import calculate_word_weight, is_speaker_named
from chats.memory.search.recall_scope import (
    Scope,
    build_chats_condition,
    build_scope_condition,
    build_scope_filter,
    select_private_chats,
)
from chats.memory.search.visible_texts import PAGE, iterate_visible_texts
from chats.memory.search.words import find_words
from chats.models import Chat, SearchPlace, SearchText
from chats.record.zones import convert_to_account_zone

# Rows per query if hundreds of excerpts are requested.
LARGE_PAGE = 200


# The newest texts with a word of the question that are checked for speaker names.
SPEAKERS_LOOKED_FOR = 100


# The minimum strength of a result above the floor: one rare word counts like this many others.
RARE = 2


# Maximum chats that a query of the index names. More chats are a condition for the texts found.
MOST_NAMED_CHATS = 200


@dataclass(frozen=True, slots=True)
class FoundExcerpt:
    """A search result: a message or a summary.

    `message_id` is None for a summary, whose compaction is `summary_id`. `start` and `end` delimit
    the part of `text` around the first match. `marks` are the positions of matches in `text`.
    `why`: the significant words of the question that occur in the text, or in a summary or
    preference that quotes it, spelled as in the question. `above_floor`: True if two of them match,
    if one that is rare in the owner's chats matches, or if the embedding is similar.
    `undated`: the time of the message is unknown, and `written_at` only orders it.
    """

    message_id: uuid.UUID | None
    summary_id: uuid.UUID | None
    chat_id: uuid.UUID
    chat_title: str
    branch_id: uuid.UUID
    seq: int
    role: str
    speaker: str
    written_at: datetime
    undated: bool
    text: str
    start: int
    end: int
    marks: Sequence[tuple[int, int]]
    score: float
    why: Sequence[str]
    above_floor: bool

    @property
    def strength(self) -> int:
        """Number of significant shared words; at least 2 if the excerpt is above the floor."""
        return calculate_match_strength(self.why, is_above_floor=self.above_floor)


@dataclass(frozen=True, slots=True)
class Recalled:
    """The results for a question, best first.

    `ignored`: words of the question that were not used. `indexed_share`: share of the owner's
    messages that are indexed, from 0 to 1.
    """

    excerpts: Sequence[FoundExcerpt] = ()
    ignored: Sequence[str] = ()
    indexed_share: float = 1.0
    # Embeddings were requested but not ready in time.
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Matches:
    """The texts that match a question, best first, before their messages are loaded.

    `is_late`: embeddings were requested but not ready in time.
    """

    asked: ParsedQuestion
    texts: Sequence[FoundText]
    counts: WordCounts
    telling: Collection[str]
    alike: TextLikeness | None = None
    is_late: bool = False

    def is_above_floor(self, text: FoundText) -> bool:
        """Return True if a text shares enough words with the question, or resembles it enough."""
        if is_above_floor(self.asked, text, telling=self.telling, counts=self.counts):
            return True
        return self.alike is not None and text.alike >= self.alike.floor

    def strength(self, text: FoundText) -> int:
        """Return the number of significant words that a text shares with the question.

        At least 2 if the text is above the floor: one rare word or a similar embedding is enough.
        """
        return calculate_match_strength(
            self.shared_words(text), is_above_floor=self.is_above_floor(text)
        )

    def strength_among_chats(self, text: FoundText) -> int:
        """Return the strength of a text of any chat, as `strength` does.

        Words that many of the owner's texts contain do not count, if the question has others.
        """
        telling = self.counts.select_telling(self.asked.telling)
        words = self.asked.units([w for w in (*text.shared, *text.cited) if w in telling])
        return calculate_match_strength(words, is_above_floor=self.is_above_floor(text))

    def weigh_stems(self) -> dict[str, float]:
        """Return the weight of each stem of the question; rare stems weigh more."""
        return {
            stem: calculate_word_weight(self.counts.words.get(stem, 0), total=self.counts.total)
            for stem in self.asked.telling
        }

    def shared_words(self, text: FoundText) -> Sequence[str]:
        """Return the significant words of the question that also occur in a text, as written in it.

        Includes the words of summaries and preferences that cite the text.
        """
        return self.asked.units([*text.shared, *text.cited])


def calculate_match_strength(words: Sequence[str], *, is_above_floor: bool) -> int:
    return max(len(words), RARE if is_above_floor else 0)


def match_texts(
    owner_id: int,
    asked: ParsedQuestion,
    *,
    scope: Scope,
    leave_out: Collection[uuid.UUID] = (),
    is_quick: bool = False,
    look: Look | None = None,
) -> Matches:
    """Return the texts of a scope that match a question. Arguments as in `recall_excerpts`."""
    within = build_search_range(owner_id, scope)
    # A greeting resembles many texts, but asks for none of them.
    telling = extract_significant_stems(asked)
    if within is None or not (asked.telling or asked.beginning):
        return Matches(asked, (), WordCounts(0, {}), telling)
    look = look if telling else None
    alike = (
        compare_by_embedding(owner_id, scope=scope, leave_out=leave_out, look=look)
        if look
        else None
    )
    chat_id = scope.id if scope.kind == "chat" else scope.chat
    found, counts = find_texts(
        owner_id, asked, within=within, chat_id=chat_id, alike=alike, is_quick=is_quick
    )
    is_late = look is not None and alike is None
    return Matches(asked, found, counts, telling, alike, is_late)


def recall_excerpts(
    owner_id: int,
    question: str,
    *,
    scope: Scope,
    limit: int,
    at: datetime,
    leave_out: Collection[uuid.UUID] = (),
    is_typed: bool = False,
    is_quick: bool = False,
    look: Look | None = None,
) -> Recalled:
    """Return the excerpts of a user's chats that match a question, best first.

    `at`: time of the question, for phrases such as "last week". `leave_out`: ids of messages to
    skip. `is_typed`: the user is still typing, so the last word may be incomplete and neighbours
    are not returned. `is_quick`: compare fewer texts. `look` compares by embedding.
    """
    asked = parse_question(question, at=convert_to_account_zone(owner_id, at), is_typed=is_typed)
    every, behind = index_progress.count_searchable_messages(owner_id)
    share = 1.0 if not every else 1.0 - behind / every
    matches = match_texts(
        owner_id, asked, scope=scope, leave_out=leave_out, is_quick=is_quick, look=look
    )
    rows = iterate_visible_texts(
        owner_id,
        matches.texts,
        scope=scope,
        page=min(limit, PAGE) if limit < LARGE_PAGE else LARGE_PAGE,
        leave_out=leave_out,
        is_typed=is_typed,
    )
    excerpts = [
        build_found_excerpt(row, text, matches=matches) for row, text in islice(rows, limit)
    ]
    return Recalled(excerpts, asked.ignored, share, matches.is_late)


def remove_speaker_names(owner_id: int, question: str) -> str:
    """Return a question without the names of speakers in the user's chats.

    Speakers rarely use their own name, but others address them by it, so embeddings of the name
    find the wrong texts. `ranking` scores speaker names separately. A question that consists of
    names is returned unchanged.
    """
    found = [word for word in find_words(question) if word.full]
    names = {strip_possessive(word, question) for word in found}
    within = Within(keys=[searchable_text.build_owner_key(owner_id)])
    stems = list(dict.fromkeys(word.stem for word in select_significant_words(found, question)))[
        :MOST_CHOOSING
    ]
    newest = {
        key
        for stem in stems
        for key in fulltext.find_texts_with_word(stem, within=within, most=SPEAKERS_LOOKED_FOR)
    }
    texts = SearchText.objects.filter(pk__in=newest).exclude(speaker="").order_by()
    speakers = texts.values_list("speaker", flat=True).distinct()
    named = {
        word for speaker in speakers if is_speaker_named(speaker, names) for word in speaker.split()
    }
    left, end = [], 0
    for word in found:
        if strip_possessive(word, question) in named:
            left.append(question[end : word.start])
            end = word.end
    rest = " ".join("".join([*left, question[end:]]).split())
    return rest if any(word.full for word in find_words(rest)) else question


def compare_by_embedding(
    owner_id: int, *, scope: Scope, leave_out: Collection[uuid.UUID], look: Look
) -> TextLikeness | None:
    """Compare a question with the texts of a scope by embedding. None if time runs out."""
    places = None
    if scope.kind != "person" or scope.unfiled or scope.chat or scope.for_others:
        chats = Chat.objects.filter(build_scope_filter(owner_id, scope))
        places = list(
            SearchPlace.objects.filter(branch__chat__in=chats).values_list("pk", flat=True)
        )
    without = SearchText.objects.filter(message__in=leave_out) if leave_out else None
    keys = list(without.values_list("pk", flat=True)) if without is not None else []
    return look(owner_id=owner_id, places=places, without=keys)


def build_search_range(owner_id: int, scope: Scope) -> Within | None:
    """Return the range of texts that a search in a scope covers. None if it has no chats."""
    keys = [searchable_text.build_owner_key(owner_id)]
    if scope.role:
        keys.append(searchable_text.build_role_key(scope.role))
    chats = [key for key in (scope.id if scope.kind == "chat" else None, scope.chat) if key]
    keys += [searchable_text.build_chat_key(key) for key in chats]
    among: Sequence[str] = ()
    condition, values = build_scope_condition(scope)
    if (scope.kind == "folder" or scope.unfiled) and not chats:
        mine = Chat.objects.filter(build_scope_filter(owner_id, scope))
        found = list(mine.values_list("pk", flat=True)[: MOST_NAMED_CHATS + 1])
        if not found:
            return None
        if len(found) <= MOST_NAMED_CHATS:
            among = [searchable_text.build_chat_key(key) for key in found]
        else:
            more, theirs = build_chats_condition(mine)
            condition, values = condition + more, [*values, *theirs]
    elif scope.for_others and not chats and select_private_chats(owner_id).exists():
        more, theirs = build_chats_condition(select_private_chats(owner_id), is_without=True)
        condition, values = condition + more, [*values, *theirs]
    return Within(keys=keys, either=among, only=(condition, values))


def build_found_excerpt(row: SearchText, found: FoundText, *, matches: Matches) -> FoundExcerpt:
    """Return an indexed text as a search hit, with its matching words and score."""
    message, summary = row.message, row.summary
    if message is not None:
        branch, seq, role, speaker = message.branch, message.seq or 0, message.role, message.said_by
        text = "\n".join(searchable_text.collect_searchable_texts(message.parts))[
            : searchable_text.MOST_CHARACTERS
        ]
    elif summary is not None:
        branch, seq, role, speaker = summary.branch, summary.to_seq, "summary", ""
        text = summary.text[: searchable_text.MOST_CHARACTERS]
    else:
        raise AssertionError(row.pk)
    marks = find_question_matches(text, matches.asked)
    start, end = select_match_excerpt(text, marks)
    return FoundExcerpt(
        message_id=row.message_id,
        summary_id=row.summary_id,
        chat_id=branch.chat_id,
        chat_title=branch.chat.title,
        branch_id=branch.pk,
        seq=seq,
        role=role,
        speaker=speaker,
        written_at=row.written_at,
        undated=message is not None and bool(message.undated),
        text=text,
        start=start,
        end=end,
        marks=marks,
        score=found.mark,
        why=matches.shared_words(found),
        above_floor=matches.is_above_floor(found),
    )
