"""Writes a summary without a model: whole sentences that people said, with what they settle.

It quotes and selects; it does not rephrase. Of people's code it quotes whole lines. Deterministic,
in the language of the chat by construction, and free; a policy without a summarisation model uses
it.

Chosen are the sentences that together hold most of what would be missed. Each thing that is said (a
date, a price, a name, a word that the chat comes back to) counts once, for the sentence that is
chosen with it; what the others still add, for their length, says which is next.
"""

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from contextpolicy.engine.messages import Message, Summary, ToolCallPart, text_of
from contextpolicy.engine.prompts import SECTIONS, heading_of, neutral
from contextpolicy.engine.sayings import (
    Saying,
    is_small_talk,
    lines_of_code,
    saying,
    sayings_in,
    sentences,
    things_in_code,
    wording,
)
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.truncation import cut

EXTRACTIVE_V5 = "extractive-v5"
# In characters; the shorter ones are tried if not even one bullet fits.
BULLET_LENGTHS = (400, 120, 50)
# A summary takes at most this share of the messages it folds; a larger one would gain little.
LARGEST_SHARE = 0.6
# A sentence that stands so often, and in most messages of a role, is a refrain ("Answer in one
# sentence."). It is said again after what is folded, so every other sentence goes before it,
# unless it holds a number or the like.
FEWEST_REFRAINS = 3
REFRAIN = -100.0
# In tokens: below this the five headings weigh too much for a share.
SMALL_SUMMARY = 80
# Headings that would take more than this part of a summary are left out: in a small one they would
# stand in the place of what was said.
HEADINGS_SHARE = 0.25
# What a fact counts that only the model said, beside one of a person; and what one of a person does
# in the model's words, such as a name out of a person's code.
BY_MODEL, TAKEN_UP = 0.2, 0.8
# What a fact counts in a line of a person's code: their sentences go before it.
IN_CODE = 0.5
# A line of the summary before was worth one; a new line that says as much goes first.
CARRIED = 0.9
# What a word counts that the chat comes back to, and what one that stands once.
TOPIC, WORD = 0.12, 0.03
# In the share of the messages in which a word of everyday stands.
EVERYDAY = 0.08
# What a courtesy weighs: it needs to say something besides to be quoted.
SMALL_TALK = -3.0
# Differences of sums leave crumbs.
NOTHING = 1e-9
# In characters: without headings, bullets in Chinese or Japanese share one up to this length. The
# marks of one each would take a third of the summary.
SHARED_BULLET = 120
# In characters a token, about; in tokens for a bullet's own marks, and for those of a shared one.
PER_TOKEN, MARKS, SHARED_MARKS = 4, 8, 4
# So many lines that did not fit in a row say that there is no room for another.
MOST_MISFITS = 60


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence that may be chosen: `order` and `place` say where it was, `source` says it aloud.

    `share` is what its facts count: all of it if a person said them.
    """

    said: Saying
    who: str
    source: str
    order: int
    place: int
    share: float
    told: Mapping[str, float] = field(default_factory=dict)

    @property
    def length(self) -> float:
        """The tokens that it takes, about, without marks."""
        return len(self.said.text.encode()) / PER_TOKEN


def extractive_summary(
    messages: Sequence[Message],
    previous: Summary | None,
    *,
    max_tokens: int,
    counter: TokenCounter,
    unquoted: int = 0,
    sections: Sequence[str] = SECTIONS,
) -> str:
    """Fold `previous` and `messages` into sections of bullets with their sources, [#12].

    Bullets of the previous summary compete with the new ones and are carried over, never nested.
    At most `max_tokens`, and less than what is folded. A small summary is bullets in the order of
    the chat, without headings, of which Chinese and Japanese messages may share one: [#12, #15]; if
    not even one bullet fits, the headings alone remain. `unquoted`: the tokens of messages that are
    folded too and not quoted. What belongs under none of the `sections` stands under the first.
    """
    new = sum(message.tokens for message in messages) + unquoted
    old = previous.tokens if previous else 0
    shared = old + int(new * LARGEST_SHARE)
    limit = min(max_tokens, max(shared, min(old + new - 1, SMALL_SUMMARY)))
    refrains = _refrains(messages)
    found = [
        *_carried_over(previous, refrains, sections),
        *(_under(line, sections) for line in _said_in(messages, refrains)),
    ]
    lines = _weighed(_distinct(found), messages)
    is_plain = counter.count(_written([], sections)) > HEADINGS_SHARE * limit
    headings = () if is_plain else sections
    for longest in BULLET_LENGTHS:
        chosen = _chosen([_cut(line, longest) for line in lines], limit, counter, headings)
        if chosen:
            return _written(chosen, headings)
    return _written([], sections)


def _under(line: _Line, sections: Sequence[str]) -> _Line:
    """Put a line under the section of its name, else under the first."""
    return replace(line, said=replace(line.said, section=_named(line.said.section, sections)))


def _named(name: str, sections: Sequence[str]) -> str:
    known = {section.casefold(): section for section in sections}
    return known.get(name.casefold(), sections[0])


def _cut(line: _Line, longest: int) -> _Line:
    if len(line.said.text) <= longest:
        return line
    text = cut(line.said.text, limit=longest, style="head").text
    told = {thing: weight for thing, weight in line.told.items() if thing in text.casefold()}
    return replace(line, said=replace(line.said, text=text), told=told)


def _chosen(
    lines: Sequence[_Line], limit: int, counter: TokenCounter, sections: Sequence[str]
) -> list[_Line]:
    """Choose greedily by what a line still adds for its length; each thing counts once.

    A line's worth only falls, and only when one of its things is taken, so all updates together
    are as many as there are things.
    """
    holders: defaultdict[str, list[int]] = defaultdict(list)
    worth = [line.said.weight for line in lines]
    for number, line in enumerate(lines):
        for thing, weight in line.told.items():
            holders[thing].append(number)
            worth[number] += weight
    marks = MARKS if sections else SHARED_MARKS
    heap = [_rank(line, worth[number], number, marks) for number, line in enumerate(lines)]
    heapq.heapify(heap)
    chosen: list[_Line] = []
    marked: set[str] = set()
    used, misfits = counter.count(_written([], sections)), 0
    while heap and misfits < MOST_MISFITS:
        rank = heapq.heappop(heap)
        number = rank[-1]
        line = lines[number]
        # It was pushed again since, with what it is worth now.
        if rank != _rank(line, worth[number], number, marks):
            continue
        cost = (
            _cost(line, marked, counter)
            if sections
            # Only the whole tells which lines share a bullet, and it is short.
            else counter.count(_written([*chosen, line], ())) - used
        )
        # Nothing but what others said already: only a summary that would be empty has use for it.
        if (worth[number] < NOTHING and chosen) or used + cost > limit:
            misfits += 1
            continue
        chosen.append(line)
        marked.add(line.source)
        used, misfits = used + cost, 0
        for other in _taken(line, holders, lines, worth) - {number}:
            heapq.heappush(heap, _rank(lines[other], worth[other], other, marks))
    # Counts of lines need not add up to the count of the text with every tokenizer.
    while chosen and counter.count(_written(chosen, sections)) > limit:
        chosen.pop()
    return chosen


def _rank(line: _Line, worth: float, number: int, marks: int) -> tuple[float, int, int, int]:
    """Return what a heap orders lines by: the best first, of equals the newest."""
    return (-worth / (line.length + marks), -line.order, line.place, number)


def _cost(line: _Line, marked: Collection[str], counter: TokenCounter) -> int:
    """Return the tokens that one more line of a section takes.

    A bullet's marks stand once for all of a message's sentences; `marked` are those that have them.
    """
    marks = "" if line.source in marked else f"- {line.who}{line.source}\n"
    return counter.count(f"{line.said.text} {marks}") + 1


def _taken(
    line: _Line, holders: dict[str, list[int]], lines: Sequence[_Line], worth: list[float]
) -> set[int]:
    """Take what a chosen line says from the worth of all others; return those that lost by it."""
    touched: set[int] = set()
    for thing in line.told:
        for other in holders.pop(thing, ()):
            worth[other] -= lines[other].told[thing]
            touched.add(other)
    return touched


def _written(lines: Sequence[_Line], sections: Sequence[str]) -> str:
    """Write the sections, without any just the bullets."""
    if not sections:
        return "\n".join(_bullets(lines, shared=True))
    written = []
    for section in sections:
        written.append(f"## {section}")
        written += _bullets(line for line in lines if line.said.section == section)
    return "\n".join(written)


def _bullets(lines: Iterable[_Line], *, shared: bool = False) -> Iterator[str]:
    """Write bullets in the order of the chat; whole sentences of one message share one.

    Where they are `shared`, those of messages that follow each other do so too.
    """
    ordered = sorted(lines, key=lambda line: (line.order, line.place, line.said.text))
    bullets = [list(group) for _, group in groupby(ordered, key=_bullet_of)]
    for several in _joined(bullets) if shared else bullets:
        bullet = f"{several[0].who}{_side_by_side(several)}{_sources(several)}"
        yield f"- {neutral(' '.join(bullet.split()))}"


def _bullet_of(line: _Line) -> tuple[str, int]:
    """Return the same for sentences that may share a bullet: neither spoken by name, nor cut."""
    return line.source, -1 if _is_whole(line) else line.place


def _is_whole(line: _Line) -> bool:
    return not line.who and line.said.text[-1:] in _ENDS


def _joined(bullets: Iterable[list[_Line]]) -> list[list[_Line]]:
    """Join bullets of scripts without spaces that follow each other, up to a length.

    Only there, for in others the marks of sources are a small part of what is said.
    """
    joined: list[list[_Line]] = []
    length = 0
    for several in bullets:
        may_share = all(
            _is_whole(line) and line.said.text[-1] in _WIDE and _PLAIN.fullmatch(line.source)
            for line in several
        )
        own = sum(len(line.said.text) for line in several)
        if may_share and length > 0 and length + own <= SHARED_BULLET:
            joined[-1] += several
            length += own
        else:
            joined.append(several)
            length = own if may_share else 0
    return joined


def _side_by_side(lines: Sequence[_Line]) -> str:
    """Return sentences in a row; after a full-width stop stands no space."""
    texts = [line.said.text for line in lines]
    return "".join(text if text[-1:] in _WIDE else f"{text} " for text in texts).rstrip()


def _sources(lines: Sequence[_Line]) -> str:
    """Return the marks of some lines as one, each message once."""
    sources = list(dict.fromkeys(line.source for line in lines))
    if len(sources) == 1:
        return sources[0]
    named = dict.fromkeys(name for source in sources for name in re.findall(r"#\d+", source))
    return f" [{', '.join(named)}]"


_WIDE = "。！？"
_ENDS = f".!?…{_WIDE}`"
# Marks that name messages one by one.
_PLAIN = re.compile(r" \[#\d+(?:, #\d+)*\]")


def _distinct(lines: Iterable[_Line]) -> list[_Line]:
    """Keep one line for each wording, the later one: what was said again still holds."""
    by_wording: dict[str, _Line] = {}
    for line in lines:
        said = wording(line.said.text)
        share = max(line.share, by_wording[said].share if said in by_wording else 0.0)
        by_wording[said] = replace(line, share=share)
    return list(by_wording.values())


def _weighed(lines: Sequence[_Line], messages: Sequence[Message]) -> list[_Line]:
    """Give each line what it says, with its weight; only the whole chat tells names and topics."""
    names = _names_of(line.said for line in lines)
    people = [line.said for line in lines if line.share > BY_MODEL]
    standing = Counter(word for said in people for word in said.words)
    everyday = max(3, int(len(messages) * EVERYDAY))
    words = {word: _topic(times) for word, times in standing.items() if times <= everyday}
    theirs = {thing for said in people for thing in _things_of(said, names)}
    for message in messages:
        if message.role == "user":
            theirs.update(things_in_code(text_of(message)))
    return [replace(line, told=_told(line, names, words, theirs)) for line in lines]


def _told(
    line: _Line, names: Collection[str], words: Mapping[str, float], theirs: Collection[str]
) -> dict[str, float]:
    """Return what a line says: its topics, names and facts, each with what it counts there."""
    taken_up = TAKEN_UP if line.share <= BY_MODEL else line.share
    told = {word: words[word] * line.share for word in sorted(line.said.words) if word in words}
    for thing, weight in _things_of(line.said, names).items():
        told[thing] = weight * (taken_up if thing in theirs else line.share)
    return told


def _things_of(said: Saying, names: Collection[str]) -> dict[str, float]:
    named = (name.casefold() for name in said.names)
    clauses = dict.fromkeys(said.clauses, CLAUSE)
    return {**clauses, **{name: NAME for name in named if name in names}, **said.facts}


# A name is what later questions ask by, and seldom more than two words long. Where no capital tells
# names, each clause may hold one.
NAME = 1.5
CLAUSE = NAME


def _topic(times: int) -> float:
    """Return the weight of a word that stands in so many sentences of people."""
    return WORD if times == 1 else TOPIC * math.log2(times)


def _names_of(said: Iterable[Saying]) -> set[str]:
    """Return the words that are names: with a capital within sentences, seldom without one."""
    inside: Counter[str] = Counter()
    small: Counter[str] = Counter()
    for one in said:
        inside.update(word.casefold() for word, opens in one.names.items() if not opens)
        small.update(one.small)
    return {word for word, times in inside.items() if times >= small[word]}


def _refrains(messages: Sequence[Message]) -> dict[str, set[str]]:
    """Return by role the wordings that stand often, and in more than half of its messages."""
    refrains: dict[str, set[str]] = {}
    for role in ("user", "assistant"):
        texts = [text_of(message) for message in messages if message.role == role]
        said = Counter(
            one for text in texts for one in {wording(found) for found in sentences(text)}
        )
        fewest = max(FEWEST_REFRAINS, len(texts) // 2 + 1)
        refrains[role] = {one for one, times in said.items() if times >= fewest}
    return refrains


_HEADING = re.compile(r"^\s*#{1,6}\s+(\S.*)$")
_MARK = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_SOURCE = re.compile(r"\s*((?:\[#\d+(?:\s*[,;–-]\s*#?\d+)*\]\s*)+)$")


def _carried_over(
    previous: Summary | None, refrains: Mapping[str, Collection[str]], sections: Sequence[str]
) -> Iterator[_Line]:
    """Read the lines of a summary, whoever wrote it; a line under no known heading is a fact.

    One above all headings stands where its words belong.
    """
    section = ""
    for line in (previous.text if previous else "").splitlines():
        heading = _HEADING.match(line)
        text = neutral(" ".join(_MARK.sub("", line).split()))
        if heading:
            section = _named(heading_of(heading.group(1)), sections)
        elif text and previous is not None:
            marks = _SOURCE.search(text)
            source = f" {marks[1].strip()}" if marks else ""
            order = max((int(n) for n in re.findall(r"#(\d+)", text)), default=previous.from_seq)
            body = text[: marks.start()] if marks else text
            for place, sentence in enumerate(sentences(body)):
                said = saying(sentence, by_person=True)
                said = replace(said, section=section or _named(said.section, sections))
                if not said.facts and any(
                    wording(sentence) in known for known in refrains.values()
                ):
                    said = replace(said, weight=REFRAIN)
                yield _Line(said, "", source, order, place, CARRIED)


def _said_in(
    messages: Sequence[Message], refrains: Mapping[str, Collection[str]]
) -> Iterator[_Line]:
    """Read the messages' sentences, and the calls of their tools."""
    for message in messages:
        who = f"{message.speaker}: " if message.speaker else ""
        source = f" [#{message.seq}]"
        shares = _shares(message, refrains[message.role])
        for place, (said, share) in enumerate(shares, start=1):
            yield _Line(said, who, source, message.seq, place, share)


def _shares(message: Message, refrains: Collection[str]) -> Iterator[tuple[Saying, float]]:
    """Yield what a message says, each with what its facts count."""
    by_person = message.role == "user"
    for said in sayings_in(text_of(message), by_person=by_person):
        if not said.facts and wording(said.text) in refrains:
            said = replace(said, weight=REFRAIN)
        elif is_small_talk(said):
            said = replace(said, weight=SMALL_TALK)
        yield said, 1.0 if by_person else BY_MODEL
    if by_person:
        yield from ((line, IN_CODE) for line in lines_of_code(text_of(message)))
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            called = saying(f"{part.name}({part.arguments})", by_person=False)
            yield replace(called, section="Done items"), BY_MODEL
