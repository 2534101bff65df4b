"""Writes a summary without a model.

The summary consists of whole sentences of the chat, with author, day and source. The extractor
selects and quotes sentences; it does not rephrase them. From users' code it quotes whole lines. It
is deterministic, costs nothing, and writes in the language of the chat. It is used if a policy has
no summarising model.

It selects the sentences with the most facts for their length. A fact (a date, a price, a name, a
word that the chat repeats) counts only for the first selected sentence that contains it.
"""

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from contextpolicy.engine.history.truncation import find_border_before
from contextpolicy.engine.messages.messages import (
    Message,
    Summary,
    ToolCallPart,
    extract_message_text,
)
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.summaries.prompts import (
    SECTIONS,
    get_author_label,
    neutralise_template_marks,
    strip_heading_signs,
)
from contextpolicy.engine.summaries.sentence_scores import (
    Saying,
    extract_code_lines,
    extract_code_terms,
    is_question_sentence,
    is_sentence,
    is_small_talk,
    is_to_do,
    normalise_sentence,
    score_sentence,
    score_sentences,
    split_sentences,
)
from contextpolicy.engine.team.markers import strip_display_markers
from contextpolicy.engine.text.claims import (
    ASSISTANT,
    USER,
    Claim,
    bracket_source_marks,
    read_label,
    split_bullet_claims,
    strip_summary_labels,
    write_label,
    write_mark,
    write_next_day,
)

EXTRACTIVE_V9 = "extractive-v9"
# In characters; the shorter limits are tried if no sentence fits.
SENTENCE_LENGTHS = (400, 120, 50)
# Maximum size of a summary as a share of the messages it replaces; a larger one would gain little.
LARGEST_SHARE = 0.6
# Sentences that most messages of a role repeat ("Answer in one sentence.") are likely to be
# repeated again. They come last unless they contain a fact.
FEWEST_REFRAINS = 3
REFRAIN = -100.0
# In summaries of fewer tokens than this, the five headings take too much room.
SMALL_SUMMARY = 80
# Headings that would take more than this share of a summary are omitted. In scripts without
# capitals, which are dense, a heading displaces more content.
HEADINGS_SHARE, DENSE_HEADINGS_SHARE = 0.25, 0.1
# Without headings, days are omitted from labels that would take more than this share.
LABELS_SHARE = 0.1
# The weight of a fact that only the model stated, and of a user's fact in the model's wording,
# such as a name from the user's code.
BY_MODEL, TAKEN_UP = 0.1, 0.8
# The highest weight of a fact stated by the other side of the chat, if its messages are as short as
# the user's. The other side may then be a person; a model usually writes much more than the user.
BY_PARTNER = 0.5
# From fewer messages of a side, their usual size cannot be estimated.
FEWEST_OF_SIDE = 5
# The weights of names and clauses in an answered question, and of a name that only addresses the
# other side: neither states anything.
ASKED, ADDRESSED = 0.25, 0.1
# The number of sentences that speak to a person before its name counts as an address elsewhere.
FEWEST_ADDRESSES = 2
# The weight of a fact in a line of a user's code: the user's sentences come first.
IN_CODE = 0.5
# The weight of a sentence carried over from the previous summary: an equal new one comes first.
CARRIED = 0.9
# The weights of a word that the chat repeats and of a word that occurs once.
TOPIC, WORD = 0.04, 0.03
# A word in more than this share of the messages is too common to be a topic.
EVERYDAY = 0.08
SMALL_TALK = -3.0
# Differences of float sums are rarely exactly zero.
NOTHING = 1e-9
# In characters: the maximum length of a bullet of several messages. Wide scripts need fewer.
LONGEST_BULLET, LONGEST_WIDE_BULLET = 320, 200
# Approximate characters per token; then tokens for the label and the mark of a sentence, and for
# the mark alone in a summary without headings, where more sentences share a label.
PER_TOKEN, MARKS, SMALL_MARKS = 4, 8, 5
# After this many consecutive sentences that do not fit, the search ends.
MOST_MISFITS = 60


@dataclass(frozen=True, slots=True)
class _Line:
    """A candidate sentence.

    `author` and `day` are empty if unknown; `source` is its source mark as written. `order` and
    `place` are its position in the chat. `share` is the weight of its facts: 1 if a user stated
    them. `told` maps its facts and topics to their weights.
    """

    said: Saying
    author: str
    day: str
    source: str
    order: int
    place: int
    share: float
    told: Mapping[str, float] = field(default_factory=dict)

    @property
    def length(self) -> float:
        return len(self.said.text.encode()) / PER_TOKEN


def build_extractive_summary(
    messages: Sequence[Message],
    previous: Summary | None,
    *,
    max_tokens: int,
    counter: TokenCounter,
    unquoted: int = 0,
    sections: Sequence[str] = SECTIONS,
    cited: Sequence[Message] = (),
) -> str:
    """Summarise `previous` and `messages` in sections of bullets with labels and source marks.

    The format is that of `claims`. Sentences of the previous summary compete with the new ones.
    `cited`: the messages that the previous summary cites, which provide the author and day of its
    sentences. The new summary has at most `max_tokens` and is smaller than the text it replaces. A
    small summary has no headings. If no sentence fits, only the headings remain. `unquoted`: tokens
    of messages that are covered but not quoted. A sentence that fits none of the `sections` is
    placed in the first one.
    """
    new = sum(message.tokens for message in messages) + unquoted
    old = previous.tokens if previous else 0
    shared = old + int(new * LARGEST_SHARE)
    limit = min(max_tokens, max(shared, min(old + new - 1, SMALL_SUMMARY)))
    refrains = _refrains(messages)
    by_reply = get_reply_share([*cited, *messages])
    found = [
        *_carried_over(previous, refrains, sections, messages, cited, by_reply),
        *(_under(line, sections) for line in _said_in(messages, refrains, by_reply)),
    ]
    lines = _weighed(_distinct(found), messages, cited)
    telling = [line.said for line in lines if line.said.weight > SMALL_TALK]
    is_dense = sum(bool(said.clauses) for said in telling) > len(telling) / 2
    share = DENSE_HEADINGS_SHARE if is_dense else HEADINGS_SHARE
    is_plain = counter.count(_written([], sections)) > share * limit
    headings = () if is_plain else sections
    for longest in SENTENCE_LENGTHS:
        short = [_cut(line, longest) for line in lines]
        chosen = _chosen(short, limit, counter, headings)
        if not chosen:
            continue
        text = _written(chosen, headings)
        labels = counter.count(text) - counter.count(strip_summary_labels(text))
        if not headings and labels > LABELS_SHARE * limit:
            undated = [replace(line, day="") for line in short]
            text = _written(_chosen(undated, limit, counter, headings), headings)
        return text
    return _written([], sections)


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


def _under(line: _Line, sections: Sequence[str]) -> _Line:
    """Move a line to the requested section of the same name, otherwise to the first section."""
    return replace(line, said=replace(line.said, section=_named(line.said.section, sections)))


def _named(name: str, sections: Sequence[str]) -> str:
    known = {strip_heading_signs(section).casefold(): section for section in sections}
    return known.get(name.casefold(), sections[0])


def _cut(line: _Line, longest: int) -> _Line:
    """Cut a long sentence after a word and mark the cut with an ellipsis."""
    if len(line.said.text) <= longest:
        return line
    head = line.said.text[: find_border_before(line.said.text, longest - 2)]
    words = head.rpartition(" ")[0] if " " in head[longest // 2 :] else head
    text = f"{words.rstrip(' ,;:')} …"
    told = {thing: weight for thing, weight in line.told.items() if thing in text.casefold()}
    return replace(line, said=replace(line.said, text=text), told=told)


class _Selection:
    """Greedy selection of lines by the value that each line adds per length.

    Each fact counts once. The value of a line only decreases, and only when one of its
    facts is selected. The total number of updates is therefore bounded by the number of
    facts.
    """

    def __init__(
        self, lines: Sequence[_Line], limit: int, counter: TokenCounter, sections: Sequence[str]
    ) -> None:
        self.lines = lines
        self.limit = limit
        self.counter = counter
        self.sections = sections
        self.holders: defaultdict[str, list[int]] = defaultdict(list)
        self.worth = [line.said.weight for line in lines]
        for number, line in enumerate(lines):
            for thing, weight in line.told.items():
                self.holders[thing].append(number)
                self.worth[number] += weight
        self.marks = MARKS if sections else SMALL_MARKS
        self.chosen: list[_Line] = []
        self.marked: set[tuple[str, ...]] = set()
        self.left = [*range(len(lines))]

    def fill(self, used: int) -> None:
        """Select lines until there is no room. `used`: tokens of the text so far."""
        heap = [self.rank(number) for number in self.left]
        heapq.heapify(heap)
        self.left = []
        misfits = 0
        while heap and misfits < MOST_MISFITS:
            rank = heapq.heappop(heap)
            number = rank[-1]
            # Outdated queue entry: the line was pushed again with its current value.
            if rank != self.rank(number):
                continue
            line = self.lines[number]
            cost = self.cost(line, used)
            # A line without new facts is selected only if the summary would be empty.
            if (self.worth[number] < NOTHING and self.chosen) or used + cost > self.limit:
                misfits += 1
                self.left.append(number)
                continue
            self.take(line)
            used, misfits = used + cost, 0
            for other in self.taken(line) - {number}:
                heapq.heappush(heap, self.rank(other))
        self.left += {rank[-1] for rank in heap if rank == self.rank(rank[-1])}

    def take(self, line: _Line) -> None:
        self.chosen.append(line)
        self.marked |= {_mark_of(line), _label_of(line)}

    def rank(self, number: int) -> tuple[float, int, int, int]:
        """Return the sort key of a line: the best first; among equals the newest."""
        line = self.lines[number]
        worth = self.worth[number]
        return (-worth / (line.length + self.marks), -line.order, line.place, number)

    def cost(self, line: _Line, used: int) -> int:
        """Return the number of tokens that one more line adds.

        Neighbouring sentences share a label and a mark, and neighbours are known only once all
        lines are selected. With headings, the result is therefore an estimate. Without
        headings, the text is short enough to be written and counted.
        """
        if not self.sections:
            return self.counter.count(_written([*self.chosen, line], ())) - used
        mark = "" if _mark_of(line) in self.marked else line.source
        label = "" if _label_of(line) in self.marked else f"- {line.day[5:]}: "
        return self.counter.count(f"{label}{line.said.text} {mark}") + 1

    def taken(self, line: _Line) -> set[int]:
        """Subtract the facts of a selected line from all others.

        Returns the lines whose value decreased.
        """
        touched: set[int] = set()
        for thing in line.told:
            for other in self.holders.pop(thing, ()):
                self.worth[other] -= self.lines[other].told[thing]
                touched.add(other)
        return touched


def _mark_of(line: _Line) -> tuple[str, ...]:
    return line.said.section, line.author, line.source


def _label_of(line: _Line) -> tuple[str, ...]:
    return line.said.section, line.author, line.day, ""


def _chosen(
    lines: Sequence[_Line], limit: int, counter: TokenCounter, sections: Sequence[str]
) -> list[_Line]:
    """Select the best lines whose combined text has at most `limit` tokens."""
    selection = _Selection(lines, limit, counter, sections)
    # Costs of single lines are estimates, so fill the remaining room once more.
    before = -1
    while before < len(selection.chosen):
        before = len(selection.chosen)
        used = counter.count(_written(selection.chosen, sections))
        if used <= limit:
            selection.fill(used)
    chosen = selection.chosen
    # The counts of single lines may not add up to the count of the text.
    while chosen and counter.count(_written(chosen, sections)) > limit:
        chosen.pop()
    return chosen


def _written(lines: Sequence[_Line], sections: Sequence[str]) -> str:
    """Write the sections; if there are none, write only the bullets."""
    if not sections:
        return "\n".join(_bullets(lines))
    written = []
    for section in sections:
        written.append(f"## {section}")
        written += _bullets(line for line in lines if line.said.section == section)
    return "\n".join(written)


def _bullets(lines: Iterable[_Line]) -> Iterator[str]:
    """Write bullets in the order of the chat.

    Neighbouring sentences of one author share a bullet. A line that does not end like a sentence
    gets its own bullet.
    """
    ordered = sorted(lines, key=lambda line: (line.order, line.place, line.said.text))
    for _, group in groupby(ordered, key=_bullet_of):
        for several in _in_lengths(group):
            label = write_label(several[0].author, several[0].day)
            said = _side_by_side(_marked(several))
            yield f"- {label}{neutralise_template_marks(' '.join(said.split()))}"


def _bullet_of(line: _Line) -> tuple[str, bool, tuple[int, int]]:
    """Return a key that is equal for lines that may share a bullet."""
    is_whole = is_sentence(line.said.text)
    return line.author, bool(line.day), (-1, -1) if is_whole else (line.order, line.place)


def _in_lengths(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """Split neighbours into groups of readable length, between messages."""
    several: list[_Line] = []
    length = 0
    for _, of_message in groupby(lines, key=lambda line: line.source):
        own = [*of_message]
        added = sum(len(line.said.text) for line in own)
        is_wide = own[0].said.text[-1:] in _WIDE
        most = LONGEST_WIDE_BULLET if is_wide else LONGEST_BULLET
        if several and length + added > most:
            yield several
            several, length = [], 0
        several += own
        length += added
    yield several


def _marked(lines: Sequence[_Line]) -> list[str]:
    """Return the sentences of a bullet with their source marks.

    A mark follows the last sentence of its message. A new day precedes the sentence where it
    begins.
    """
    marked = []
    day = lines[0].day
    for (source, following), group in groupby(lines, key=lambda line: (line.source, line.day)):
        said = _side_by_side([line.said.text for line in group])
        gap = "" if said[-1:] in _WIDE or not source else " "
        change = write_next_day(following, before=day) if following != day else ""
        marked.append(f"{change}{said}{gap}{source}")
        day = following
    return marked


def _side_by_side(texts: Sequence[str]) -> str:
    """Join sentences with a space, or without one after wide scripts such as Chinese."""
    made = ""
    for text in texts:
        is_wide = made.rstrip("]0123456789#, [")[-1:] in _WIDE
        made += text if is_wide else f" {text}"
    return made.strip()


# The last character of a sentence in Chinese or Japanese.
_WIDE = frozenset("。！？」』”）》")


def _distinct(lines: Iterable[_Line]) -> list[_Line]:
    """Keep the newest line of each wording."""
    by_wording: dict[str, _Line] = {}
    for line in lines:
        said = normalise_sentence(line.said.text)
        share = max(line.share, by_wording[said].share if said in by_wording else 0.0)
        by_wording[said] = replace(line, share=share)
    return list(by_wording.values())


def _weighed(
    lines: Sequence[_Line], messages: Sequence[Message], cited: Sequence[Message]
) -> list[_Line]:
    """Add weighted facts to each line. Names and topics are found in the whole chat."""
    names = _names_of(line.said for line in lines)
    people = [line.said for line in lines if line.share > BY_MODEL]
    standing = Counter(word for said in people for word in said.words)
    everyday = max(3, int(len(messages) * EVERYDAY))
    words = {word: _topic(times) for word, times in standing.items() if times <= everyday}
    theirs = {thing for said in people for thing in _things_of(said, names)}
    for message in messages:
        if message.role == "user":
            theirs.update(extract_code_terms(extract_message_text(message)))
    speakers = {message.speaker for message in (*messages, *cited)}
    called = _addressees(lines) | {word.casefold() for one in speakers for word in one.split()}
    return [replace(line, told=_told(line, names, words, theirs, called)) for line in lines]


def _told(
    line: _Line,
    names: Collection[str],
    words: Mapping[str, float],
    theirs: Collection[str],
    called: Collection[str],
) -> dict[str, float]:
    """Return the topics, names and facts of a line, with their weights."""
    taken_up = TAKEN_UP if line.share <= BY_MODEL else line.share
    told = {word: words[word] * line.share for word in sorted(line.said.words) if word in words}
    for thing, weight in _things_of(line.said, names).items():
        told[thing] = weight * (taken_up if thing in theirs else line.share)
        if line.said.addressed.get(thing) or (thing in line.said.addressed and thing in called):
            told[thing] *= ADDRESSED
        elif line.said.is_asked and thing not in line.said.facts:
            told[thing] *= ASKED
    return told


def _addressees(lines: Iterable[_Line]) -> set[str]:
    """Return the names of people whom several sentences address."""
    times = Counter(
        name for line in lines for name, is_spoken_to in line.said.addressed.items() if is_spoken_to
    )
    return {name for name, count in times.items() if count >= FEWEST_ADDRESSES}


def _things_of(said: Saying, names: Collection[str]) -> dict[str, float]:
    named = (name.casefold() for name in said.names)
    clauses = dict.fromkeys(said.clauses, CLAUSE)
    return {**clauses, **{name: NAME for name in named if name in names}, **said.facts}


# Later questions often use names. In scripts without capitals each clause may contain one.
NAME = 2.0
CLAUSE = NAME


def _topic(times: int) -> float:
    """Return the weight of a word by the number of users' sentences that contain it."""
    return WORD if times == 1 else TOPIC * math.log2(times)


def _names_of(said: Iterable[Saying]) -> set[str]:
    """Return the words that are names: capitalised within sentences, rarely in lower case."""
    inside: Counter[str] = Counter()
    small: Counter[str] = Counter()
    for one in said:
        inside.update(word.casefold() for word, opens in one.names.items() if not opens)
        small.update(one.small)
    return {word for word, times in inside.items() if times >= small[word]}


def _refrains(messages: Sequence[Message]) -> dict[str, set[str]]:
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


def _carried_over(
    previous: Summary | None,
    refrains: Mapping[str, Collection[str]],
    sections: Sequence[str],
    messages: Sequence[Message],
    cited: Sequence[Message],
    by_reply: float,
) -> Iterator[_Line]:
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
            section = _named(strip_heading_signs(heading.group(1)), sections)
            continue
        for claim in split_bullet_claims(
            neutralise_template_marks(" ".join(_MARK.sub("", line).split()))
        ):
            sources = [by_seq[seq] for seq in claim.sources if seq in by_seq]
            order = max(claim.sources, default=previous.from_seq)
            for place, sentence in enumerate(split_sentences(claim.text)):
                origin = _origin_of(sentence, claim, sources, by_reply)
                is_answered = origin.is_quote and has_reply
                said = score_sentence(sentence, by_person=origin.by_person, is_answered=is_answered)
                if not (is_answered and is_question_sentence(sentence) and not is_to_do(sentence)):
                    said = replace(said, section=section or _named(said.section, sections))
                said = replace(said, section=_named(said.section, sections))
                if not said.facts and any(
                    normalise_sentence(sentence) in one for one in refrains.values()
                ):
                    said = replace(said, weight=REFRAIN)
                mark = write_mark(claim.sources)
                yield _Line(said, origin.author, origin.day, mark, order, place, origin.share)


class _Origin(NamedTuple):
    """The author and day of a carried-over sentence, and the share of its facts."""

    author: str
    day: str
    share: float
    by_person: bool
    is_quote: bool


def _origin_of(sentence: str, claim: Claim, sources: Sequence[Message], by_reply: float) -> _Origin:
    """Find the author of a carried-over sentence.

    A sentence that is found in one of its sources gets the author and day of that source.
    Any other sentence is a claim that a user or a model wrote about its sources. It has the
    weight of a user's sentence and the day of its sources.
    """
    quoted = next((m for m in sources if _letters(sentence) in _letters(_read_text(m))), None)
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


def _letters(text: str) -> str:
    """Return a text without the characters that quoting changes: spaces, Markdown, an ellipsis."""
    return re.sub(r"[\s*`…]+", "", neutralise_template_marks(text))


def _read_text(message: Message) -> str:
    """Return the text to quote, without routing markers of a team and without source marks.

    A "[#12]" that a person writes becomes "(#12)", because it does not name a message.
    """
    text = strip_display_markers(extract_message_text(message))
    return bracket_source_marks(text)


def _said_in(
    messages: Sequence[Message], refrains: Mapping[str, Collection[str]], by_reply: float
) -> Iterator[_Line]:
    """Yield the candidate sentences of messages and of their tool calls."""
    last = [get_author_label(message) for message in messages]
    # Messages after the last change of author have no reply yet.
    waiting = len(last) - next(
        (n for n, one in enumerate(last[::-1]) if one != last[-1]), len(last)
    )
    for number, message in enumerate(messages):
        author, source = get_author_label(message), write_mark([message.seq])
        shares = _shares(message, refrains[message.role], by_reply, is_answered=number < waiting)
        for place, (said, share) in enumerate(shares, start=1):
            yield _Line(said, author, message.day, source, message.seq, place, share)


def _shares(
    message: Message, refrains: Collection[str], by_reply: float, *, is_answered: bool
) -> Iterator[tuple[Saying, float]]:
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
