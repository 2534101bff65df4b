"""Infers the names of speakers from the way they address each other.

Imported conversations often have roles but no names. A question about *Caroline* then matches only
the messages that say "Hey Caroline", which are not hers. Nothing is stored, so an
erased message leaves no name behind.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Q

from chats.memory.search import fulltext, searchable_text
from chats.memory.search.fulltext import Within
from chats.memory.search.question import ParsedQuestion, strip_possessive
from chats.memory.search.ranking import AddressedName
from chats.memory.search.words import Word, find_words, load_stop_words
from chats.models import Message, SearchPlace, SearchText
from contextpolicy.engine.summaries.sentence_scores import find_addressed_names
from contextpolicy.engine.summaries.sentence_splitting import split_sentences

# Maximum numbers of words of a question that may be names, of the newest messages with each, and of
# those that are read. They are spread over the chat: many questions about a person mention the name
# without addressing anyone.
MOST_NAMES = 3
MOST_HOLDERS = 200
MOST_READ = 40
# Characters of a message that are read: people are addressed at the beginning or the end.
READ_AT_EACH_END = 300
# A name counts if at least this many messages address a role by it, and this multiple of the
# messages that address the other role by it.
FEWEST = 2
MULTIPLE = 4
OTHER_SIDE = {Message.Role.USER: Message.Role.ASSISTANT, Message.Role.ASSISTANT: Message.Role.USER}
_CAPITAL = re.compile(r"[^\W\d_a-zà-öø-ÿ]")


@dataclass(frozen=True, slots=True)
class AddressedNames:
    """The names in a question that refer to the speaker of a role in one chat.

    `places` are the positions of the chat's branches in the index.
    """

    by_role: Mapping[str, AddressedName] = field(default_factory=dict)
    places: Sequence[SearchPlace] = ()

    @property
    def texts_per_role(self) -> int:
        """Return the approximate number of texts per role: half of the longest branch.

        This assumes that user and model take turns.
        """
        return max((place.to_seq for place in self.places), default=0) // 2

    def list_newest_texts(self, role: str, *, most: int) -> list[int]:
        """Return the ids of the newest texts of a role that do not name a speaker."""
        ranges = Q()
        for place in self.places:
            ranges |= Q(pk__gte=place.id_at(0), pk__lte=place.id_at(place.to_seq))
        suffix = fulltext.KEY + searchable_text.build_role_key(role)
        rows = SearchText.objects.filter(ranges, speaker="", keys__endswith=suffix)
        return list(rows.order_by("-pk").values_list("pk", flat=True)[:most])


NO_NAMES = AddressedNames()


def infer_addressed_names(
    asked: ParsedQuestion, counts: Mapping[str, int], *, chat_id: uuid.UUID, within: Within
) -> AddressedNames:
    """Return the names in a question by which a chat addresses the user or the model.

    `within` selects the chat's indexed texts; `counts` gives the number of texts per word. Messages
    that name their speaker do not count. Empty if the others do not clearly address one role by a
    name in the question.
    """
    names = [
        AddressedName(word.stem, strip_possessive(word, asked.text))
        for word in list_possible_names(asked)
        if counts.get(word.stem, 0) >= FEWEST
    ]
    by_role: dict[str, AddressedName] = {}
    for name, role in find_addressed_roles(names[:MOST_NAMES], within=within):
        by_role.setdefault(role, name)
    if not by_role:
        return NO_NAMES
    return AddressedNames(by_role, list(SearchPlace.objects.filter(branch__chat=chat_id)))


def list_possible_names(asked: ParsedQuestion) -> list[Word]:
    """Return the significant words of a question that begin with a capital letter.

    Each letter that is not a Latin small letter counts as a capital. If the whole question has no
    capitals, all its significant words are returned.
    """
    found: dict[str, Word] = {}
    for word in find_words(asked.text):
        if word.full and word.stem in asked.telling and word.stem not in load_stop_words():
            found.setdefault(word.stem, word)
    words = list(found.values())
    capitals = [word for word in words if _CAPITAL.match(asked.text[word.start : word.end])]
    return capitals or ([] if _CAPITAL.search(asked.text) else words)


def find_addressed_roles(
    names: Sequence[AddressedName], *, within: Within
) -> Iterator[tuple[AddressedName, str]]:
    """Yield the names by which one role addresses the other, with the addressed role."""
    holders = {
        name: spread_texts(
            fulltext.find_texts_with_word(name.stem, within=within, most=MOST_HOLDERS)
        )
        for name in names
    }
    keys = {key for found in holders.values() for key in found}
    if not keys:
        return
    rows = SearchText.objects.filter(
        pk__in=keys, speaker="", message__erased_at=None, message__excluded=False
    )
    texts = {
        key: (role, " ".join(searchable_text.collect_searchable_texts(parts)))
        for key, role, parts in rows.values_list("pk", "message__role", "message__parts")
    }
    for name, found in holders.items():
        speaking = Counter(
            role
            for role, text in (texts[key] for key in found if key in texts)
            if is_addressed(name.full, text)
        )
        for role, other in OTHER_SIDE.items():
            if speaking[role] >= max(FEWEST, MULTIPLE * speaking[other]):
                yield name, other


def spread_texts(keys: Sequence[int]) -> list[int]:
    """Return at most `MOST_READ` of the texts, evenly spaced from the first to the last."""
    if len(keys) <= MOST_READ:
        return list(keys)
    step = (len(keys) - 1) / (MOST_READ - 1)
    return [keys[round(place * step)] for place in range(MOST_READ)]


def is_addressed(name: str, text: str) -> bool:
    """Return True if a text addresses someone by this name near its beginning or end.

    `name` is in lower case.
    """
    ends = [text]
    if len(text) > 2 * READ_AT_EACH_END:
        ends = [text[:READ_AT_EACH_END], text[-READ_AT_EACH_END:]]
    return any(
        find_addressed_names(sentence).get(name, False)
        for part in ends
        for sentence in split_sentences(part)
    )
