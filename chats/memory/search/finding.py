"""Finds a person's texts that match a question: selects, reads and ranks candidates.

Candidates are selected by the rarest words until there are enough. Frequent words add weight, and
select candidates only if rarer words matched few texts. The number of texts to read is limited.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from chats.memory.search import fulltext, searchable_text
from chats.memory.search.addressed_names import (
    NO_NAMES,
    AddressedNames,
    infer_addressed_names,
)
from chats.memory.search.citing import Cited, score_cited_texts
from chats.memory.search.fulltext import Within
from chats.memory.search.grammar import select_topic_words
from chats.memory.search.greetings import mask_greetings
from chats.memory.search.meaning import TextLikeness
from chats.memory.search.question import ParsedQuestion
from chats.memory.search.ranking import (
    REACH,
    RankedText,
    SearchTerms,
    calculate_word_weight,
    rank_texts,
    select_best_texts,
)
from chats.memory.search.words import find_words
from chats.memory.search.words import list_search_stems as stems_of
from chats.models import SearchCount
from chats.models.search import SEQ_BITS
from speed import prepared

# Maximum number of words that select candidates, and of texts that they select.
MOST_CHOOSING = 12
MOST_CHOSEN = 2_000
# Share of texts above which a word only adds weight, once there are enough candidates.
COMMON = 0.2
ENOUGH = 100
# Maximum number of candidates that are read, and of the best ones whose neighbours are read too.
MOST_COMPARED = 300
MOST_WITH_NEIGHBOURS = 60
# Lower limits while a person types, because the question changes quickly.
QUICKLY_COMPARED = 100
QUICKLY_WITH_NEIGHBOURS = 20
# With at least this many texts, a word in a larger share of them than `EVERYDAY` says nothing.
FEWEST_TEXTS = 50
EVERYDAY = 0.2
# A word in at most one of this many texts is specific enough alone.
RARE = 100

# Maximum number of candidates of the dates in a question: half of them are the newest ones.
MOST_DATED = 100
# A question of fewer topic words asks for everything that was said at a time.
FEWEST_TOPICS = 2
# The largest score of a text that only has its date in common with such a question.
DATED = 0.1

# The end of the keys of user messages.
OWN_KEY = fulltext.KEY + searchable_text.build_role_key("user")

Place = Callable[[int], int | None]
# The number of a person's texts with each of some words.
WORD_COUNTS = prepared.Select(
    lambda at: SearchCount.objects.filter(
        owner=at("owner"), word__in=fulltext.unpack_texts(at("words")), texts__gt=0
    ).values_list("word", "texts")
)


class FoundText(NamedTuple):
    """A matching text: its id, its score, and the words it shares.

    `cited`: shared words of summaries or preferences that cite it. `alike`: its similarity to the
    question, if they were compared. `is_in_days`: it is of a time that the question mentions.
    """

    id: int
    mark: float
    shared: Sequence[str]
    cited: Sequence[str] = ()
    alike: float = -1.0
    is_in_days: bool = False


@dataclass(frozen=True, slots=True)
class TextOrder:
    """The order of neighbouring texts: maps ids to positions and back.

    Consecutive texts of a branch have consecutive ids, so by default an id is its position.
    `summaries`: ids of summaries that are always searched for citations, regardless of their words.
    """

    place_of: Place = lambda key: key
    id_at: Place = lambda place: place
    summaries: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class WordCounts:
    """The number of a person's texts, in total and by word."""

    total: int
    words: Mapping[str, int]
    # Stems of names that stand for a role, so that many texts have them.
    names: frozenset[str] = frozenset()

    def share(self, word: str) -> float:
        """Return the share of texts that contain a word."""
        return self.words.get(word, 0) / max(self.total, 1)

    def add_names(self, names: AddressedNames) -> "WordCounts":
        """Return counts that include a role's messages for each name that stands for the role."""
        more = {
            name.stem: names.texts_per_role + self.words.get(name.stem, 0)
            for name in names.by_role.values()
        }
        return replace(self, words={**self.words, **more}, names=frozenset(more))

    def select_telling(self, stems: Collection[str]) -> set[str]:
        """Return the stems that do not occur in many texts.

        All of them if no other one occurs at all.
        """
        if self.total < FEWEST_TEXTS:
            return set(stems)
        telling = {stem for stem in stems if stem in self.names or self.share(stem) <= EVERYDAY}
        return telling if any(self.words.get(stem) for stem in telling) else set(stems)

    def is_rare(self, word: str) -> bool:
        """Return True if matching this word alone is sufficient."""
        return 0 < self.words.get(word, 0) <= max(self.total // RARE, 1)


def find_texts(
    owner_id: int,
    asked: ParsedQuestion,
    *,
    within: Within,
    chat_id: uuid.UUID | None = None,
    line: TextOrder | None = None,
    alike: TextLikeness | None = None,
    is_quick: bool = False,
) -> tuple[list[FoundText], WordCounts]:
    """Return the texts that match a question, best first, and the word counts for weights.

    `within` must restrict the texts to the owner. The texts most similar by embedding (`alike`) and
    those cited by matching texts are candidates regardless of their words. In a single chat, names
    can stand for the messages of a role. `is_quick` compares fewer texts.
    """
    line = line or TextOrder()
    most = QUICKLY_COMPARED if is_quick else MOST_COMPARED
    counts = load_word_counts(owner_id, asked)
    names = NO_NAMES
    if chat_id and not is_quick:
        names = infer_addressed_names(asked, counts.words, chat_id=chat_id, within=within)
        counts = counts.add_names(names)
    wanted, chosen = choose_candidates(asked, within=within, counts=counts, most=most, names=names)
    led_to = score_cited_texts(owner_id, [*line.summaries, *chosen], stems=wanted.stems)
    dated = list_dated_texts(asked, within=within) if asked.asks_about_days and not is_quick else []
    wanted = add_date_scores(wanted, dated, asked=asked, line=line)
    chosen = list(dict.fromkeys([*chosen, *led_to, *(alike.nearest if alike else ()), *dated]))
    wanted = add_similarity_scores(
        add_citation_scores(wanted, led_to, line=line), chosen, alike=alike
    )
    read = read_texts(chosen, wanted=wanted, line=line)
    with_neighbours = QUICKLY_WITH_NEIGHBOURS if is_quick else MOST_WITH_NEIGHBOURS
    best = select_best_texts(read, wanted=wanted, most=with_neighbours)
    read = sorted(
        [*read, *read_neighbours(best, read, wanted=wanted, line=line)], key=lambda t: t.place
    )
    wanted = add_similarity_scores(wanted, [text.place for text in read], alike=alike)
    ranked = rank_texts(read, wanted=wanted)
    likeness = alike.of([place for place, _ in ranked]) if alike else {}
    shared = {text.place: text.counts for text in read}
    in_days = (
        {text.place for text in read if wanted.is_in_days(text.written_at)}
        if asked.asks_about_days
        else frozenset[int]()
    )
    found = []
    for place, mark in ranked:
        key = line.id_at(place)
        if key is not None:
            about = led_to[key].shared if key in led_to else ()
            texts = list(shared.get(place, ()))
            is_in_days = place in in_days
            found.append(FoundText(key, mark, texts, about, likeness.get(key, -1.0), is_in_days))
    return found, counts


def list_dated_texts(asked: ParsedQuestion, *, within: Within) -> list[int]:
    """Return texts of the dates in a question: the newest ones, then evenly spread ones."""
    found = fulltext.find_texts_in_times(asked.days, within=within, most=MOST_CHOSEN)
    newest, older = found[: MOST_DATED // 2], found[MOST_DATED // 2 :]
    step = max(len(older) / (MOST_DATED // 2), 1.0)
    spread = [older[int(number * step)] for number in range(int(len(older) / step))]
    return [*newest, *spread]


def add_date_scores(
    wanted: SearchTerms, dated: Sequence[int], *, asked: ParsedQuestion, line: TextOrder
) -> SearchTerms:
    """Add the scores of texts that are found by their date alone, best first."""
    if asked.topics >= FEWEST_TOPICS:
        return wanted
    places = [place for key in dated if (place := line.place_of(key)) is not None]
    return replace(
        wanted,
        dated={place: DATED * (1 - at / MOST_DATED) for at, place in enumerate(places)},
    )


def add_citation_scores(
    wanted: SearchTerms, led_to: Mapping[int, Cited], *, line: TextOrder
) -> SearchTerms:
    places = {line.place_of(key): about.mark for key, about in led_to.items()}
    return replace(
        wanted, cited={place: mark for place, mark in places.items() if place is not None}
    )


def add_similarity_scores(
    wanted: SearchTerms, ids: Sequence[int], *, alike: TextLikeness | None
) -> SearchTerms:
    """Add the similarities of the texts with these ids to the search terms."""
    return wanted if alike is None else replace(wanted, meaning=alike.scaled(ids))


def load_word_counts(owner_id: int, asked: ParsedQuestion) -> WordCounts:
    """Return the number of a person's texts that contain each word of a question."""
    words = {*asked.telling, *(stem for full in asked.full for stem in stems_of(full)[:1]), ""}
    words |= {word for pair in asked.pairs for word in pair}
    known = dict(WORD_COUNTS.tuples(owner=owner_id, words=fulltext.pack_values(words)))
    return WordCounts(known.pop("", 0), known)


def choose_candidates(
    asked: ParsedQuestion,
    *,
    within: Within,
    counts: WordCounts,
    most: int,
    names: AddressedNames,
) -> tuple[SearchTerms, list[int]]:
    """Select candidates by the rarest words. Return the search terms and the best candidates."""
    roles = {name.stem: role for role, name in names.by_role.items()}
    present = {word: counts.words[word] for word in asked.telling if word in counts.words}
    rising = sorted(present, key=lambda word: present[word])
    marks: dict[int, float] = {}
    room = MOST_CHOSEN
    for word in rising[:MOST_CHOOSING]:
        share = counts.share(word)
        is_filler = bool(marks) and share > COMMON
        if room <= 0 or (is_filler and len(marks) >= ENOUGH):
            break
        # A common word only fills up the candidates of rarer ones.
        limit = min(room, most) if is_filler else room
        found = fulltext.find_texts_with_word(word, within=within, most=limit, share=share)
        if word in roles:
            theirs = names.list_newest_texts(roles[word], most=limit)
            found = sorted({*found, *theirs}, reverse=True)[:limit]
        room -= len(found)
        add_word_weight(marks, found, calculate_word_weight(present[word], total=counts.total))
    stems = {
        word: calculate_word_weight(number, total=counts.total) for word, number in present.items()
    }
    if asked.beginning and room > 0:
        found = fulltext.find_texts_with_word(
            asked.beginning, within=within, most=room, is_beginning=True
        )
        begun = calculate_word_weight(len(found), total=counts.total)
        add_word_weight(marks, found, begun)
        if found:
            stems.setdefault(asked.beginning, begun)
    best = sorted(marks, key=lambda key: (-round(marks[key], 9), -key))[:most]
    return build_search_terms(asked, stems=stems, counts=counts, names=names), best


def add_word_weight(marks: dict[int, float], found: Sequence[int], value: float) -> None:
    for key in found:
        marks[key] = marks.get(key, 0.0) + value


def build_search_terms(
    asked: ParsedQuestion,
    *,
    stems: Mapping[str, float],
    counts: WordCounts,
    names: AddressedNames = NO_NAMES,
) -> SearchTerms:
    def weigh(stem: str) -> float:
        return calculate_word_weight(counts.words.get(stem, 0), total=counts.total)

    return SearchTerms(
        stems=stems,
        full={full: weigh((stems_of(full) or [full])[0]) for full in asked.full},
        pairs={pair: max(weigh(pair[0]), weigh(pair[1])) for pair in asked.pairs},
        beginning=asked.beginning if asked.beginning in stems else "",
        names=asked.names,
        addressed={
            searchable_text.build_role_key(role): name for role, name in names.by_role.items()
        },
        own=asked.is_of_oneself,
        days=asked.days,
    )


def read_texts(keys: Sequence[int], *, wanted: SearchTerms, line: TextOrder) -> list[RankedText]:
    found = []
    for text in fulltext.load_texts(keys, with_times=bool(wanted.days)):
        place = line.place_of(text.id)
        if place is not None:
            named = None if text.speaker else wanted.get_addressed_name(text.keys)
            full = text.full.replace(fulltext.FULL, "")
            found.append(
                RankedText.of(
                    place,
                    words=f"{named.stem} {text.words}" if named else text.words,
                    full=f"{named.full} {full}" if named else full,
                    wanted=wanted,
                    session=(text.id >> SEQ_BITS, text.session),
                    speaker=named.full if named else text.speaker,
                    is_own=text.keys.endswith(OWN_KEY),
                    written_at=text.written_at,
                )
            )
    return sorted(found, key=lambda text: text.place)


def read_neighbours(
    best: Sequence[RankedText], read: Sequence[RankedText], *, wanted: SearchTerms, line: TextOrder
) -> list[RankedText]:
    """Read the neighbours of the best texts that were not read before."""
    steps = range(-REACH, REACH + 1)
    near = {text.place + step for text in best for step in steps}
    near -= {text.place for text in read}
    keys = [key for place in sorted(near) if (key := line.id_at(place)) is not None]
    return read_texts(keys, wanted=wanted, line=line)


def is_above_floor(
    asked: ParsedQuestion, found: FoundText, *, telling: Collection[str], counts: WordCounts
) -> bool:
    """Return True if a text shares two significant words with a question, or a rare one.

    `telling`: the question's significant stems. Words of texts that cite it count too. A date in
    the question counts as one word. It is enough alone for a question about the conversation that
    has at most one topic word: others ask about a day to come, or about nothing in the chats.
    """
    telling = counts.select_telling(telling)
    shared = [word for word in dict.fromkeys([*found.shared, *found.cited]) if word in telling]
    if found.is_in_days and asked.asks_about_talk and asked.topics < FEWEST_TOPICS:
        return True
    number = len(asked.units(shared)) + found.is_in_days
    return number > 1 or any(counts.is_rare(word) for word in shared)


def extract_significant_stems(asked: ParsedQuestion) -> set[str]:
    """Return the significant stems of a question; empty for a greeting."""
    plain = mask_greetings(asked.text)
    return {word.stem for word in select_topic_words(find_words(plain), plain)}
