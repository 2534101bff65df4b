"""A summary without a model: the sentences that carry facts, decisions, wishes and open questions.

Honest about what it is: it quotes and selects, it does not rephrase. Deterministic, in the
language of the chat by construction, and free; what a policy without a summarisation model uses.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from contextpolicy.engine.facts import facts_in, without_marks
from contextpolicy.engine.messages import Message, Summary, ToolCallPart, text_of
from contextpolicy.engine.prompts import SECTIONS, heading_of, neutral
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.truncation import cut

EXTRACTIVE_V1 = "extractive-v1"
# In characters; the shorter ones are tried if not even one bullet fits.
BULLET_LENGTHS = (280, 120, 50)
# In bytes of UTF-8, so that a Chinese sentence of nine characters counts as one.
SHORTEST_STATEMENT = 28
# Of the messages it folds; the rest would be gained only on paper.
LARGEST_SHARE = 0.6
# Said so often, and in most messages of a role, a sentence is a refrain ("Answer in one
# sentence."). It is said again after what is folded, so it goes behind everything else.
FEWEST_REFRAINS = 3
REFRAIN = -100.0
# In tokens: below this the five headings weigh too much for a share.
SMALL_SUMMARY = 80


@dataclass(frozen=True, slots=True)
class _Bullet:
    """One line of a summary: `order` places it in time, `score` says how much would be missed."""

    section: str
    text: str
    order: int
    score: float


def extractive_summary(
    messages: Sequence[Message],
    previous: Summary | None,
    *,
    max_tokens: int,
    counter: TokenCounter,
) -> str:
    """Fold `previous` and `messages` into five sections of bullets with their sources, [#12].

    Bullets of the previous summary compete with the new ones and are carried over, never nested.
    At most `max_tokens`, and less than what is folded: if not even one bullet fits that, the
    headings alone remain.
    """
    new, old = sum(message.tokens for message in messages), previous.tokens if previous else 0
    shared = old + int(new * LARGEST_SHARE)
    limit = min(max_tokens, max(shared, min(old + new - 1, SMALL_SUMMARY)))
    chosen: list[_Bullet] = []
    refrains = _refrains(messages)
    for longest in BULLET_LENGTHS:
        found = [*_carried_over(previous, refrains), *_found_in(messages, longest, refrains)]
        chosen = _fitting(_distinct(found), limit, counter)
        if chosen:
            break
    return _written(chosen)


def _fitting(candidates: Sequence[_Bullet], limit: int, counter: TokenCounter) -> list[_Bullet]:
    chosen: list[_Bullet] = []
    used = counter.count(_written(chosen))
    telling = [bullet for bullet in candidates if bullet.score > 0] or candidates
    for bullet in sorted(telling, key=lambda item: (-item.score, -item.order, item.text)):
        cost = counter.count(f"- {bullet.text}\n") + 1
        if used + cost <= limit:
            chosen.append(bullet)
            used += cost
    # Counts of lines need not add up to the count of the text with every tokenizer.
    while chosen and counter.count(_written(chosen)) > limit:
        chosen.pop()
    return chosen


def _written(bullets: Sequence[_Bullet]) -> str:
    lines = []
    for section in SECTIONS:
        lines.append(f"## {section}")
        inside = (bullet for bullet in bullets if bullet.section == section)
        lines += [f"- {bullet.text}" for bullet in sorted(inside, key=lambda b: (b.order, b.text))]
    return "\n".join(lines)


def _distinct(bullets: Iterable[_Bullet]) -> list[_Bullet]:
    """One bullet for each wording, the later one: what was said again still holds."""
    by_wording = {_wording(bullet.text): bullet for bullet in bullets}
    return list(by_wording.values())


def _refrains(messages: Sequence[Message]) -> set[str]:
    """The wordings that stand in more than half of the messages of a role, and often enough."""
    refrains: set[str] = set()
    for role in ("user", "assistant"):
        texts = [text_of(message) for message in messages if message.role == role]
        said = Counter(
            wording
            for text in texts
            for wording in {_wording(sentence) for sentence in _sentences(text)}
        )
        fewest = max(FEWEST_REFRAINS, len(texts) // 2 + 1)
        refrains |= {wording for wording, times in said.items() if times >= fewest}
    return refrains


def _worth(text: str, score: float, refrains: Collection[str]) -> float:
    """The score of a sentence; a refrain has one only if there is a number or the like in it."""
    if _wording(text) not in refrains:
        return score
    is_fact = any(found for kind, found in facts_in(text).items() if kind != "name")
    return score if is_fact else REFRAIN


def _wording(text: str) -> str:
    return " ".join(without_marks(text).casefold().split())


_HEADING = re.compile(r"^\s*#{1,6}\s+(\S.*)$")
_MARK = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


def _carried_over(previous: Summary | None, refrains: Collection[str]) -> Iterator[_Bullet]:
    """The lines of a summary, whoever wrote it; a line without a known section is a fact."""
    section = SECTIONS[0]
    names = {name.casefold(): name for name in SECTIONS}
    for line in (previous.text if previous else "").splitlines():
        heading = _HEADING.match(line)
        text = neutral(" ".join(_MARK.sub("", line).split()))
        if heading:
            section = names.get(heading_of(heading.group(1)).casefold(), SECTIONS[0])
        elif text and previous is not None:
            order = max((int(n) for n in re.findall(r"#(\d+)", text)), default=previous.from_seq)
            # It was worth a line before; what is new and says as much goes first.
            score = _worth(text, 1.0 + 0.75 * _weight(text), refrains)
            yield _Bullet(section, text, order, score)


def _found_in(
    messages: Sequence[Message], longest: int, refrains: Collection[str]
) -> Iterator[_Bullet]:
    for message in messages:
        who = f"{message.speaker}: " if message.speaker else ""
        for place, sentence in enumerate(_sentences(text_of(message))):
            section, score = _judged(sentence, message)
            score = _worth(sentence, score - 0.05 * min(place, 10), refrains)
            text = cut(sentence, limit=longest, style="head").text
            line = neutral(" ".join(f"{who}{text} [#{message.seq}]".split()))
            yield _Bullet(section, line, message.seq, score)
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                called = cut(f"{part.name}({part.arguments})", limit=longest, style="head").text
                line = neutral(" ".join(f"{called} [#{message.seq}]".split()))
                yield _Bullet("Done items", line, message.seq, 0.5 * _weight(called))


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a text; code blocks are no sentences and stay in the originals."""
    for line in _CODE_BLOCK.sub("\n", text).splitlines():
        plain = _MARK.sub("", line).strip().lstrip("#>| ").strip()
        for sentence in _BOUNDARY.split(plain):
            stripped = sentence.strip()
            if sum(character.isalnum() for character in stripped) >= 2:
                yield stripped


_CODE_BLOCK = re.compile(
    r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1[`~]*\s*$|\Z)", re.MULTILINE | re.DOTALL
)
_BOUNDARY = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])")

_DECIDED = re.compile(
    r"\b(?:decid\w+|decision|agreed|we(?:'ll| will) (?:go|use|take)|settled on|chose|chosen|"
    r"beschlossen|entschieden|einigen|décidé|decidid[oa]s?|acordad[oa])\b"
    r"|决定|同意|就用|确定|採用|决策",
    re.IGNORECASE,
)
_PREFERRED = re.compile(
    r"\b(?:prefer\w*|favou?rite|i (?:really )?(?:like|love|hate|dislike)|always|never|"
    r"don't like|lieber|bevorzug\w*|möchte|préfère|prefiero|me gusta)\b"
    r"|喜欢|偏好|不喜欢|讨厌",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:done|fixed|finished|completed|deployed|merged|shipped|solved|resolved|sent|booked|paid|"
    r"erledigt|fertig|terminé|hecho|listo)\b|完成|已经|解决了|修好|搞定",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"[?？]\s*$|\b(?:to-?do|open|pending|blocked|remind|still (?:need|have)|need(?:s)? to|have to|"
    r"next step|offen|noch|reste à|pendiente)\b|待办|还需要|需要|尚未|下一步",
    re.IGNORECASE,
)


def _judged(sentence: str, message: Message) -> tuple[str, float]:
    """The section of a sentence and how much it says; a user's words weigh more than a model's."""
    by_user = message.role == "user"
    score = _weight(sentence) + (1.0 if by_user else 0.0)
    if by_user and _OPEN.search(sentence):
        return "Open items", score + 0.5
    if _DECIDED.search(sentence):
        return "Decisions", score + 2.0
    if by_user and _PREFERRED.search(sentence):
        return "Preferences", score + 2.0
    if _DONE.search(sentence):
        return "Done items", score + 1.0
    return "Facts", score


def _weight(text: str) -> float:
    """Facts count, with less for each further one: ten numbers are a table, not ten facts.

    A few words with nothing but a name in them are a courtesy ("Thanks, Mel!").
    """
    weights = {"url": 1.5, "date": 1.5, "identifier": 1.0, "number": 1.0, "name": 0.6}
    plain = without_marks(text).strip()
    found = {kind: min(len(facts), 3) for kind, facts in facts_in(plain).items() if facts}
    weight = sum(weights[kind] * math.sqrt(count) for kind, count in found.items())
    is_courtesy = len(plain.encode()) < SHORTEST_STATEMENT and not found.keys() - {"name"}
    return weight - 2.0 if is_courtesy else weight
