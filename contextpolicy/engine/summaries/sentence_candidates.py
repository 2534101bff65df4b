"""Collects the candidate sentences of a summary: from messages and from the previous summary."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from contextpolicy.engine.messages.messages import (
    Message,
    Summary,
    ToolCallPart,
    extract_message_text,
)
from contextpolicy.engine.summaries.prompts import (
    get_author_label,
    neutralise_template_marks,
    strip_heading_signs,
)
from contextpolicy.engine.summaries.sentence_scores import (
    ScoredSentence,
    extract_code_lines,
    is_question_sentence,
    is_small_talk,
    is_to_do,
    normalise_sentence,
    score_sentence,
    score_sentences,
)
from contextpolicy.engine.summaries.sentence_splitting import split_sentences
from contextpolicy.engine.team.markers import strip_display_markers
from contextpolicy.engine.text.claims import (
    ASSISTANT,
    USER,
    Claim,
    bracket_source_marks,
    read_label,
    split_bullet_claims,
    write_mark,
)

# Sentences that most messages of a role repeat ("Answer in one sentence.") are likely to be
# repeated again. They come last unless they contain a fact.
FEWEST_REFRAINS = 3
REFRAIN = -100.0
# The weight of a fact that only the model stated.
BY_MODEL = 0.1
# The highest weight of a fact stated by the other side of the chat, if its messages are as short as
# the user's. The other side may then be a person; a model usually writes much more than the user.
BY_PARTNER = 0.5
# From fewer messages of a side, their usual size cannot be estimated.
FEWEST_OF_SIDE = 5
# The weight of a fact in a line of a user's code: the user's sentences come first.
IN_CODE = 0.5
# The weight of a sentence carried over from the previous summary: an equal new one comes first.
CARRIED = 0.9
SMALL_TALK = -3.0
# Approximate characters per token.
PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate sentence.

    `author` and `day` are empty if unknown; `source` is its source mark as written. `order` and
    `place` are its position in the chat. `share` is the weight of its facts: 1 if a user stated
    them. `weights` maps its facts and topics to their weights.
    """

    sentence: ScoredSentence
    author: str
    day: str
    source: str
    order: int
    place: int
    share: float
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def length(self) -> float:
        return len(self.sentence.text.encode()) / PER_TOKEN


def get_reply_share(messages: Sequence[Message]) -> float:
    """Return the weight of facts from messages with the role `assistant`.

    The weight depends on the mean size of these messages. If they are no longer than the user's
    messages, they may be written by a second person, or by a model that converses like one. The
    longer they are, the more of their text only explains.
    """
    sizes: dict[str, list[int]] = {"user": [], "assistant": []}
    for message in messages:
        text = extract_message_text(message)
        if message.role in sizes and text.strip():
            sizes[message.role].append(len(text.encode()))
    if min(map(len, sizes.values())) < FEWEST_OF_SIDE:
        return BY_MODEL
    asked, answered = (fmean(sizes[role]) for role in ("user", "assistant"))
    return max(BY_MODEL, min(BY_PARTNER, BY_PARTNER * (asked / answered) ** 2))


def match_section(name: str, sections: Sequence[str]) -> str:
    known = {strip_heading_signs(section).casefold(): section for section in sections}
    return known.get(name.casefold(), sections[0])


def find_refrains(messages: Sequence[Message]) -> dict[str, set[str]]:
    """Return, by role, the sentences that occur in more than half of its messages."""
    refrains: dict[str, set[str]] = {}
    for role in ("user", "assistant"):
        texts = [extract_message_text(message) for message in messages if message.role == role]
        said = Counter(
            one
            for text in texts
            for one in {normalise_sentence(found) for found in split_sentences(text)}
        )
        fewest = max(FEWEST_REFRAINS, len(texts) // 2 + 1)
        refrains[role] = {one for one, times in said.items() if times >= fewest}
    return refrains


_HEADING = re.compile(r"^\s*#{1,6}\s+(\S.*)$")
_MARK = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


def parse_previous_summary(
    previous: Summary | None,
    refrains: Mapping[str, Collection[str]],
    sections: Sequence[str],
    messages: Sequence[Message],
    cited: Sequence[Message],
    by_reply: float,
) -> Iterator[Candidate]:
    """Parse the sentences of a summary by any writer.

    A line under an unknown heading is a fact. A line above all headings is classified by its words.
    """
    if previous is None:
        return
    by_seq = {message.seq: message for message in cited}
    has_reply = any(message.role == "assistant" for message in messages)
    section = ""
    for line in previous.text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            section = match_section(strip_heading_signs(heading.group(1)), sections)
            continue
        for claim in split_bullet_claims(
            neutralise_template_marks(" ".join(_MARK.sub("", line).split()))
        ):
            sources = [by_seq[seq] for seq in claim.sources if seq in by_seq]
            order = max(claim.sources, default=previous.from_seq)
            for place, sentence in enumerate(split_sentences(claim.text)):
                origin = _find_origin(sentence, claim, sources, by_reply)
                is_answered = origin.is_quote and has_reply
                said = score_sentence(sentence, by_person=origin.by_person, is_answered=is_answered)
                if not (is_answered and is_question_sentence(sentence) and not is_to_do(sentence)):
                    said = replace(said, section=section or match_section(said.section, sections))
                said = replace(said, section=match_section(said.section, sections))
                if not said.facts and any(
                    normalise_sentence(sentence) in one for one in refrains.values()
                ):
                    said = replace(said, weight=REFRAIN)
                mark = write_mark(claim.sources)
                yield Candidate(said, origin.author, origin.day, mark, order, place, origin.share)


class _Origin(NamedTuple):
    """The author and day of a carried-over sentence, and the share of its facts."""

    author: str
    day: str
    share: float
    by_person: bool
    is_quote: bool


def _find_origin(
    sentence: str, claim: Claim, sources: Sequence[Message], by_reply: float
) -> _Origin:
    """Find the author of a carried-over sentence.

    A sentence that is found in one of its sources gets the author and day of that source.
    Any other sentence is a claim that a user or a model wrote about its sources. It has the
    weight of a user's sentence and the day of its sources.
    """
    quoted = next(
        (m for m in sources if _remove_marks(sentence) in _remove_marks(_read_text(m))), None
    )
    if quoted is not None:
        by_person = quoted.role == "user"
        is_code = sentence[:1] == sentence[-1:] == "`"
        share = CARRIED * (1 if by_person else by_reply) * (IN_CODE if is_code else 1)
        return _Origin(get_author_label(quoted), quoted.day, share, by_person, is_quote=True)
    author, day = read_label(claim.label)
    days = {message.day for message in sources}
    day = day or (days.pop() if len(days) == 1 else "")
    by_person = author != ASSISTANT
    share = CARRIED * (1 if by_person else by_reply)
    return _Origin(author, day, share, by_person, is_quote=author in (USER, ASSISTANT))


def _remove_marks(text: str) -> str:
    """Return a text without the characters that quoting changes: spaces, Markdown, an ellipsis."""
    return re.sub(r"[\s*`…]+", "", neutralise_template_marks(text))


def _read_text(message: Message) -> str:
    """Return the text to quote, without routing markers of a team and without source marks.

    A "[#12]" that a person writes becomes "(#12)", because it does not refer to a message.
    """
    text = strip_display_markers(extract_message_text(message))
    return bracket_source_marks(text)


def extract_candidates(
    messages: Sequence[Message], refrains: Mapping[str, Collection[str]], by_reply: float
) -> Iterator[Candidate]:
    """Yield the candidate sentences of messages and of their tool calls."""
    last = [get_author_label(message) for message in messages]
    # Messages after the last change of author have no reply yet.
    waiting = len(last) - next(
        (n for n, one in enumerate(last[::-1]) if one != last[-1]), len(last)
    )
    for number, message in enumerate(messages):
        author, source = get_author_label(message), write_mark([message.seq])
        shares = _score_message(
            message, refrains[message.role], by_reply, is_answered=number < waiting
        )
        for place, (said, share) in enumerate(shares, start=1):
            yield Candidate(said, author, message.day, source, message.seq, place, share)


def _score_message(
    message: Message, refrains: Collection[str], by_reply: float, *, is_answered: bool
) -> Iterator[tuple[ScoredSentence, float]]:
    """Yield the sentences of a message, each with the weight of its facts."""
    by_person = message.role == "user"
    text = _read_text(message)
    for said in score_sentences(text, by_person=by_person, is_answered=is_answered):
        if not said.facts and normalise_sentence(said.text) in refrains:
            said = replace(said, weight=REFRAIN)
        elif is_small_talk(said):
            said = replace(said, weight=SMALL_TALK, clauses=frozenset())
        yield said, 1.0 if by_person else by_reply
    if by_person:
        yield from ((line, IN_CODE) for line in extract_code_lines(text))
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            called = score_sentence(f"{part.name}({part.arguments})", by_person=False)
            yield replace(called, section="Done items"), BY_MODEL
