"""Weighs the facts, names and topics of each candidate sentence of a summary."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from contextpolicy.engine.messages.messages import Message, extract_message_text
from contextpolicy.engine.summaries.sentence_candidates import BY_MODEL, Candidate
from contextpolicy.engine.summaries.sentence_scores import ScoredSentence, extract_code_terms

# The weight of a user's fact in the model's wording, such as a name from the user's code.
TAKEN_UP = 0.8
# The weights of names and clauses in an answered question, and of a name that only addresses the
# other side: neither states anything.
ASKED, ADDRESSED = 0.25, 0.1
# The number of sentences that speak to a person before its name counts as an address elsewhere.
FEWEST_ADDRESSES = 2
# The weights of a word that the chat repeats and of a word that occurs once.
TOPIC, WORD = 0.04, 0.03
# Later questions often use names. In scripts without capitals each clause may contain one.
NAME = 2.0
CLAUSE = NAME
# A word in more than this share of the messages is too common to be a topic.
EVERYDAY = 0.08


def weigh_candidates(
    lines: Sequence[Candidate], messages: Sequence[Message], cited: Sequence[Message]
) -> list[Candidate]:
    """Add weighted facts to each line. Names and topics are found in the whole chat."""
    names = _find_names(line.sentence for line in lines)
    people = [line.sentence for line in lines if line.share > BY_MODEL]
    standing = Counter(word for said in people for word in said.words)
    everyday = max(3, int(len(messages) * EVERYDAY))
    words = {word: _weigh_topic(times) for word, times in standing.items() if times <= everyday}
    theirs = {thing for said in people for thing in _weigh_things(said, names)}
    for message in messages:
        if message.role == "user":
            theirs.update(extract_code_terms(extract_message_text(message)))
    speakers = {message.speaker for message in (*messages, *cited)}
    called = _find_addressees(lines) | {word.casefold() for one in speakers for word in one.split()}
    return [
        replace(line, weights=_weigh_candidate(line, names, words, theirs, called))
        for line in lines
    ]


def _weigh_candidate(
    line: Candidate,
    names: Collection[str],
    words: Mapping[str, float],
    theirs: Collection[str],
    called: Collection[str],
) -> dict[str, float]:
    """Return the topics, names and facts of a line, with their weights."""
    taken_up = TAKEN_UP if line.share <= BY_MODEL else line.share
    weights = {
        word: words[word] * line.share for word in sorted(line.sentence.words) if word in words
    }
    for thing, weight in _weigh_things(line.sentence, names).items():
        weights[thing] = weight * (taken_up if thing in theirs else line.share)
        if line.sentence.addressed.get(thing) or (
            thing in line.sentence.addressed and thing in called
        ):
            weights[thing] *= ADDRESSED
        elif line.sentence.is_asked and thing not in line.sentence.facts:
            weights[thing] *= ASKED
    return weights


def _find_addressees(lines: Iterable[Candidate]) -> set[str]:
    """Return the names of people whom several sentences address."""
    times = Counter(
        name
        for line in lines
        for name, is_spoken_to in line.sentence.addressed.items()
        if is_spoken_to
    )
    return {name for name, count in times.items() if count >= FEWEST_ADDRESSES}


def _weigh_things(said: ScoredSentence, names: Collection[str]) -> dict[str, float]:
    named = (name.casefold() for name in said.names)
    clauses = dict.fromkeys(said.clauses, CLAUSE)
    return {**clauses, **{name: NAME for name in named if name in names}, **said.facts}


def _weigh_topic(times: int) -> float:
    """Return the weight of a word by the number of users' sentences that contain it."""
    return WORD if times == 1 else TOPIC * math.log2(times)


def _find_names(said: Iterable[ScoredSentence]) -> set[str]:
    """Return the words that are names: capitalised within sentences, rarely in lower case."""
    inside: Counter[str] = Counter()
    small: Counter[str] = Counter()
    for one in said:
        inside.update(word.casefold() for word, opens in one.names.items() if not opens)
        small.update(one.small)
    return {word for word, times in inside.items() if times >= small[word]}
