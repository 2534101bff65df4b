"""Plans a summary in several calls, if the text is too long for one.

Each call summarises one chunk of the text, and the results are merged. Every source is in exactly
one chunk, so the merged summary covers only messages that were read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextpolicy.engine.messages.messages import Message
from contextpolicy.engine.messages.turn_groups import find_turn_starts

# A message too large for one call is cut in the transcript. In texts that long, a token has at
# least three characters.
CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages that one call reads. `max_chars` truncates each of them in the transcript."""

    messages: tuple[Message, ...]
    tokens: int
    max_chars: int | None = None


@dataclass(frozen=True, slots=True)
class MapReduce:
    """The calls of a chunked summary.

    One call summarises each chunk. Each round then merges neighbouring summaries: its pairs are
    (from, to) indexes into the previous round, end exclusive. The last round has one pair.
    `before` are the messages before the first chunk, which no call reads. A text that already
    covers them is the first input of the merge.
    """

    chunks: tuple[Chunk, ...]
    rounds: tuple[tuple[tuple[int, int], ...], ...]
    before: tuple[Message, ...] = ()

    @property
    def calls(self) -> int:
        return len(self.chunks) + sum(len(merges) for merges in self.rounds)


def _get_stored_tokens(message: Message) -> int:
    return message.tokens


def map_reduce(
    sources: Sequence[Message],
    *,
    source_limit: int,
    summary_max_tokens: int,
    cost: Callable[[Message], int] = _get_stored_tokens,
    most_chunks: int | None = None,
) -> MapReduce:
    """Plan the calls for `sources`, if one call can read `source_limit` tokens.

    Chunks end between turns wherever a turn fits; a longer turn is split between messages. `cost`
    returns the tokens that a message takes in a call; by default its stored count. If there would
    be more than `most_chunks`, only the newest are read.
    """
    chunks = _chunks(sources, [cost(message) for message in sources], source_limit)
    fan_in = max(2, source_limit // max(1, summary_max_tokens))
    rounds: list[tuple[tuple[int, int], ...]] = []
    unread = chunks[: -(most_chunks or len(chunks))]
    chunks = chunks[len(unread) :]
    before = tuple(message for chunk in unread for message in chunk.messages)
    width = len(chunks) + bool(before)
    while width > 1:
        merges = tuple((start, min(width, start + fan_in)) for start in range(0, width, fan_in))
        rounds.append(merges)
        width = len(merges)
    return MapReduce(tuple(chunks), tuple(rounds), before)


def _chunks(sources: Sequence[Message], costs: Sequence[int], source_limit: int) -> list[Chunk]:
    cuts = {*find_turn_starts(sources)}
    chunks: list[Chunk] = []
    start = 0
    while start < len(sources):
        end, tokens = start, 0
        while end < len(sources) and (end == start or tokens + costs[end] <= source_limit):
            tokens += costs[end]
            end += 1
        whole = [cut for cut in range(start + 1, end) if cut in cuts]
        if end < len(sources) and end not in cuts and whole:
            end = whole[-1]
        messages = tuple(sources[start:end])
        tokens = sum(costs[start:end])
        is_over = tokens > source_limit
        most = source_limit * CHARACTERS_PER_TOKEN if is_over else None
        chunks.append(Chunk(messages, min(tokens, source_limit), most))
        start = end
    return chunks
