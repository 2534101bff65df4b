"""Finds messages by texts that cite them, in addition to their own words.

The lines of a model's summary name their sources, and preferences name their evidence. Both
describe a message in other words, so a question that matches them leads to the message. They are
read at query time, so erased or undone texts have no effect and nothing is indexed twice.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q

from chats.memory.search import fulltext
from chats.memory.search.words import list_search_stems as stems_of
from chats.models import Compaction, Preference, PreferenceEvidence, SearchText
from chats.models.compactions import EXTRACTIVE
from chats.models.search import SUMMARY_SEQ
from speed import prepared

# Maximum summaries read for one question, and messages they lead to.
MOST_SUMMARIES = 5
MOST_LED_TO = 60
# A line that cites more messages than this is not specific to any of them.
MOST_SOURCES = 8

# A text and the messages it cites.
Said = tuple[str, Sequence[uuid.UUID]]


@dataclass(frozen=True, slots=True)
class Cited:
    """A match through texts that cite a message: its score, and the matching words."""

    mark: float
    shared: Sequence[str]


def score_cited_texts(
    owner_id: int, keys: Sequence[int], *, stems: Mapping[str, float]
) -> Mapping[int, Cited]:
    """Score the texts cited by matching summary lines and preferences. Return scores by id.

    `keys`: ids of texts that share words with the question, best first; the summaries and
    preferences among them are read. `stems`: the words of the question with their weights.
    """
    whole = sum(stems.values())
    if not whole:
        return {}
    found: dict[uuid.UUID, Cited] = {}
    for text, sources in (
        *load_summary_lines(owner_id, keys),
        *load_preference_evidence(owner_id, keys),
    ):
        there = set(stems_of(text))
        shared = [stem for stem in stems if stem in there]
        mark = sum(stems[stem] for stem in shared) / whole
        for source in sources if mark else ():
            if source not in found or found[source].mark < mark:
                found[source] = Cited(mark, shared)
    if not found:
        return {}
    best = sorted(found, key=lambda source: (-found[source].mark, source))[:MOST_LED_TO]
    rows = SearchText.objects.filter(message__in=best).values_list("message", "pk")
    return {key: found[message_id] for message_id, key in rows}


def load_summary_lines(owner_id: int, keys: Collection[int]) -> Iterator[Said]:
    """Yield the lines of active model-written summaries, with the messages they cite."""
    summaries = [key for key in keys if key & SUMMARY_SEQ == SUMMARY_SEQ][:MOST_SUMMARIES]
    if not summaries:
        return
    for (sections,) in SUMMARIES.tuples(owner=owner_id, texts=fulltext.pack_values(summaries)):
        yield from select_cited_lines(sections)


def select_cited_lines(sections: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    """Yield the lines of a summary that cite only a few messages."""
    for section in sections:
        for line in section.get("bullets", ()):
            sources = line.get("source_ids", ())
            if 0 < len(sources) <= MOST_SOURCES:
                yield line["text"], [uuid.UUID(source) for source in sources]


def load_preference_evidence(owner_id: int, keys: Collection[int]) -> Iterator[Said]:
    """Yield active preferences whose evidence is among the texts, with the message."""
    among = frozenset(keys)
    for text, message_id, key in EVIDENCE.tuples(owner=owner_id):
        if key in among:
            yield text, [message_id]


# The sections of active summaries that a model wrote, by their texts in the index.
SUMMARIES = prepared.Select(
    lambda at: (
        Compaction.objects.filter(
            Q(branch__active_compaction=F("pk")) | Q(branch__active_compaction__base=F("pk")),
            search_texts__in=fulltext.unpack_numbers(at("texts")),
            branch__chat__owner=at("owner"),
            erased_at=None,
        )
        .exclude(model_name=EXTRACTIVE)
        .values_list("sections")
    )
)


# The active preferences of a user, with the messages that are their evidence and their texts. A
# user has few; texts in the statement would be hundreds.
EVIDENCE = prepared.Select(
    lambda at: PreferenceEvidence.objects.filter(
        preference__owner=at("owner"),
        preference__status=Preference.Status.CURRENT,
        message__search_text__isnull=False,
    ).values_list("preference__text", "message", "message__search_text")
)
