"""Compares composing one prompt with two libraries: `python -m benchmarks.peers` (group `bench`).

All use the same history, counter and limit, but their input differs, as the table states. This
product gets the newest messages up to the limit. Each call reads them from the stored list, with
stored token counts, as the product reads its database. The others get or keep what their interface
needs. They store no counts, so each is measured twice: with the plain counter, and with a counter
that caches every text.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version

from contextpolicy.engine.messages.messages import Message, TextPart
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.policy.policy import INSTANCE_DEFAULTS

SIZES = (1_000, 10_000, 100_000)
LIMIT = 12_000
# An approach that takes longer than this at one size is skipped at the next.
PATIENCE = 5.0
ROUNDS, SECONDS = 30, 3.0
TEXT = "Message {}: " + "some words about it " * 12
Composer = Callable[[], object]
Make = Callable[[int, TokenCounter], Composer]


class RememberingCounter:
    """The product's counter, which counts each text once."""

    def __init__(self) -> None:
        from chats.prompt.tokenizer import O200kCounter

        self.version = O200kCounter.version
        self.count: Callable[[str], int] = cache(O200kCounter().count)


def ours(size: int, counter: TokenCounter) -> Composer:
    """The engine with its loader."""
    from replay.in_memory import PlayedChat, Tally

    parts = [(TextPart(TEXT.format(seq)),) for seq in range(1, size + 2)]
    tokens = count_uncut_tokens(parts[0], "user", counter)
    messages = [
        Message(f"m{seq}", seq, "user" if seq % 2 else "assistant", said, tokens)
        for seq, said in enumerate(parts, start=1)
    ]
    values = replace(
        INSTANCE_DEFAULTS["sliding_window"], token_budget=LIMIT + 4_000, reserve_tokens=4_000
    )
    chat = PlayedChat(values, counter, Tally())
    chat.messages = messages[:-1]
    question = replace(messages[-1], role="user")
    return lambda: chat.composed(question, ())


def langchain(size: int, counter: TokenCounter) -> Composer:
    """`trim_messages`, which gets the whole list."""
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages

    history: list[BaseMessage] = [
        (HumanMessage if seq % 2 else AIMessage)(TEXT.format(seq)) for seq in range(1, size + 2)
    ]

    def count(messages: Sequence[BaseMessage]) -> int:
        return sum(4 + counter.count(str(message.content)) for message in messages)

    return lambda: trim_messages(
        history, max_tokens=LIMIT, token_counter=count, strategy="last", start_on="human"
    )


def llama_index_buffer(size: int, counter: TokenCounter) -> Composer:
    """`ChatMemoryBuffer`, which keeps the whole list."""
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    memory = ChatMemoryBuffer.from_defaults(
        chat_history=[
            ChatMessage(role="user" if seq % 2 else "assistant", content=TEXT.format(seq))
            for seq in range(1, size + 2)
        ],
        token_limit=LIMIT,
        tokenizer_fn=lambda text: range(counter.count(text)),
    )
    return lambda: memory.get()


def llama_index_memory(size: int, counter: TokenCounter) -> Composer:
    """`Memory`, which archives old messages as they are added; it gets the newest 2,000."""
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import Memory

    memory = Memory.from_defaults(
        session_id=str(size),
        token_limit=LIMIT,
        chat_history_token_ratio=1.0,
        tokenizer_fn=lambda text: range(counter.count(text)),
    )
    loop = asyncio.new_event_loop()
    newest = range(max(1, size - 2_000), size + 2)
    loop.run_until_complete(
        memory.aput_messages(
            [
                ChatMessage(role="user" if seq % 2 else "assistant", content=TEXT.format(seq))
                for seq in newest
            ]
        )
    )
    return lambda: loop.run_until_complete(memory.aget())


def seconds(compose: Composer) -> float:
    """Median seconds of one call, after a warm-up call."""
    begun = time.perf_counter()
    compose()
    first = time.perf_counter() - begun
    if first > PATIENCE:
        return first
    taken: list[float] = []
    while len(taken) < ROUNDS and sum(taken) < SECONDS:
        begun = time.perf_counter()
        compose()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALIMPSEST_DATA"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()
        show()


def show() -> None:
    """The table: milliseconds, and the ratio to this product."""
    from chats.prompt.tokenizer import O200kCounter

    chain = f"langchain-core {version('langchain-core')} trim_messages"
    llama = f"llama-index-core {version('llama-index-core')}"
    plain, remembering = O200kCounter, RememberingCounter
    rows: list[tuple[str, str, Make, Callable[[], TokenCounter]]] = [
        ("Palimpsest engine, counts stored", "window", ours, plain),
        (chain, "all", langchain, plain),
        (f"{chain}, remembered", "all", langchain, remembering),
        (f"{llama} ChatMemoryBuffer, remembered", "all", llama_index_buffer, remembering),
        (f"{llama} Memory", "window", llama_index_memory, plain),
        (f"{llama} Memory, remembered", "window", llama_index_memory, remembering),
    ]
    sys.stdout.write(
        f"{'one prompt of at most 12,000 tokens, ms':58} {'gets':8}"
        + "".join(f"{f'{size:,} messages':>24}" for size in SIZES)
        + "\n"
    )
    base: dict[int, float] = {}
    for name, gets, make, counting in rows:
        cells, last = [], 0.0
        for size in SIZES:
            if last > PATIENCE:
                cells.append("not tried")
                continue
            last = seconds(make(size, counting()))
            base.setdefault(size, last)
            cells.append(f"{last * 1000:,.2f} ({last / base[size]:,.1f} x)")
        sys.stdout.write(f"{name:58} {gets:8}" + "".join(f"{cell:>24}" for cell in cells) + "\n")
    sys.stdout.write(f"ours, longest to shortest history: {base[SIZES[-1]] / base[SIZES[0]]:.2f}\n")


if __name__ == "__main__":
    main()
