"""Selects the sentences that add the most facts for their length."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from contextpolicy.engine.history.truncation import find_border_before
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.summaries.sentence_candidates import Candidate
from contextpolicy.engine.summaries.summary_text import write_sections

# Differences of float sums are rarely exactly zero.
NOTHING = 1e-9
# In tokens: the label and the mark of a sentence, and the mark alone in a summary without headings,
# where more sentences share a label.
MARKS, SMALL_MARKS = 8, 5
# After this many consecutive sentences that do not fit, the search ends.
MOST_MISFITS = 60


def shorten_candidate(line: Candidate, longest: int) -> Candidate:
    """Cut a long sentence after a word and mark the cut with an ellipsis."""
    if len(line.sentence.text) <= longest:
        return line
    head = line.sentence.text[: find_border_before(line.sentence.text, longest - 2)]
    words = head.rpartition(" ")[0] if " " in head[longest // 2 :] else head
    text = f"{words.rstrip(' ,;:')} …"
    weights = {thing: weight for thing, weight in line.weights.items() if thing in text.casefold()}
    return replace(line, sentence=replace(line.sentence, text=text), weights=weights)


class _Selection:
    """Greedy selection of lines by the value that each line adds per length.

    Each fact counts once. The value of a line only decreases, and only when one of its
    facts is selected. The total number of updates is therefore bounded by the number of
    facts.
    """

    def __init__(
        self, lines: Sequence[Candidate], limit: int, counter: TokenCounter, sections: Sequence[str]
    ) -> None:
        self.lines = lines
        self.limit = limit
        self.counter = counter
        self.sections = sections
        self.holders: defaultdict[str, list[int]] = defaultdict(list)
        self.worth = [line.sentence.weight for line in lines]
        for number, line in enumerate(lines):
            for thing, weight in line.weights.items():
                self.holders[thing].append(number)
                self.worth[number] += weight
        self.marks = MARKS if sections else SMALL_MARKS
        self.chosen: list[Candidate] = []
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
            for other in self.discount_facts(line) - {number}:
                heapq.heappush(heap, self.rank(other))
        self.left += {rank[-1] for rank in heap if rank == self.rank(rank[-1])}

    def take(self, line: Candidate) -> None:
        self.chosen.append(line)
        self.marked |= {_get_mark_key(line), _get_label_key(line)}

    def rank(self, number: int) -> tuple[float, int, int, int]:
        """Return the sort key of a line: the best first; among equals the newest."""
        line = self.lines[number]
        worth = self.worth[number]
        return (-worth / (line.length + self.marks), -line.order, line.place, number)

    def cost(self, line: Candidate, used: int) -> int:
        """Return the number of tokens that one more line adds.

        Neighbouring sentences share a label and a mark, and neighbours are known only once all
        lines are selected. With headings, the result is therefore an estimate. Without
        headings, the text is short enough to be written and counted.
        """
        if not self.sections:
            return self.counter.count(write_sections([*self.chosen, line], ())) - used
        mark = "" if _get_mark_key(line) in self.marked else line.source
        label = "" if _get_label_key(line) in self.marked else f"- {line.day[5:]}: "
        return self.counter.count(f"{label}{line.sentence.text} {mark}") + 1

    def discount_facts(self, line: Candidate) -> set[int]:
        """Subtract the facts of a selected line from all others.

        Returns the lines whose value decreased.
        """
        touched: set[int] = set()
        for thing in line.weights:
            for other in self.holders.pop(thing, ()):
                self.worth[other] -= self.lines[other].weights[thing]
                touched.add(other)
        return touched


def _get_mark_key(line: Candidate) -> tuple[str, ...]:
    return line.sentence.section, line.author, line.source


def _get_label_key(line: Candidate) -> tuple[str, ...]:
    return line.sentence.section, line.author, line.day, ""


def select_candidates(
    lines: Sequence[Candidate], limit: int, counter: TokenCounter, sections: Sequence[str]
) -> list[Candidate]:
    """Select the best lines whose combined text has at most `limit` tokens."""
    selection = _Selection(lines, limit, counter, sections)
    # Costs of single lines are estimates, so fill the remaining room once more.
    before = -1
    while before < len(selection.chosen):
        before = len(selection.chosen)
        used = counter.count(write_sections(selection.chosen, sections))
        if used <= limit:
            selection.fill(used)
    chosen = selection.chosen
    # The counts of single lines may not add up to the count of the text.
    while chosen and counter.count(write_sections(chosen, sections)) > limit:
        chosen.pop()
    return chosen
