"""Loads a prompt's history with the policy's history provider, or with the built-in one."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chats.models import Branch
from chats.record.history import (
    Loaded,
    build_engine_message,
    iter_newest_first,
    load_newest_messages,
    measure_loading_cost,
)
from contextpolicy.engine.compose.partition import Range, split_range_around
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.history_providers import (
    HistoryProvider,
    HistoryQuery,
    ProviderRefused,
    find_provider,
)

logger = logging.getLogger(__name__)

# Notes in receipts.
MISSING, FAILED = "history_provider:missing", "history_provider:failed"


@dataclass(frozen=True, slots=True)
class ProvidedHistory:
    """A loaded history. `skipped` has the ranges that a plug-in provider left out."""

    loaded: Loaded
    skipped: tuple[Range, ...] = ()
    notes: tuple[str, ...] = ()


def load_provided(
    branch: Branch,
    *,
    after: int,
    before: int,
    values: PolicyValues,
    counter: TokenCounter,
    tokens: int,
    most: int | None,
    zone: str = "",
    keep: str = "",
) -> ProvidedHistory:
    """Load the messages with `after` < seq < `before` that the policy's provider selects.

    `zone` is the time zone of the messages' dates. `keep` is the id of the newest message if it
    must be included. The built-in provider is used if the policy's provider is missing, fails, or
    returns messages that are changed, out of order or not on the branch.
    """

    def built_in(*notes: str) -> ProvidedHistory:
        found = load_newest_messages(
            branch,
            after=after,
            before=before,
            values=values,
            counter=counter,
            tokens=tokens,
            most=most,
            zone=zone,
        )
        return ProvidedHistory(found, notes=notes)

    if not values.history_provider:
        return built_in()
    provider = find_provider(values.history_provider)
    if provider is None:
        return built_in(MISSING)
    read: dict[int, engine.Message] = {}

    def newest() -> Iterator[engine.Message]:
        for row in iter_newest_first(branch, after=after, before=before):
            message = build_engine_message(row, counter=counter, zone=zone)
            yield read.setdefault(message.seq, message)

    query = HistoryQuery(
        chat_id=str(branch.chat_id),
        after=after,
        before=before,
        tokens=tokens,
        most=most,
        newest=newest,
    )
    try:
        chosen = query_provider(provider, query, read=read)
    except Exception as error:  # noqa: BLE001  # plug-in code may fail in any way
        logger.warning("History provider %s failed: %s", provider.name, type(error).__name__)
        return built_in(FAILED)
    if keep and not any(message.id == keep for message in chosen):
        chosen += [message for message in newest() if message.id == keep][:1]
    fitting = trim_to_newest(chosen, values=values, tokens=tokens, most=most)
    first = fitting[0].seq if fitting else before
    is_cut = len(fitting) < len(chosen)
    unloaded = (after + 1, first - 1) if is_cut and first > after + 1 else None
    start = first if is_cut else after + 1
    skipped = split_range_around((start, before - 1), [message.seq for message in fitting])
    return ProvidedHistory(Loaded(tuple(fitting), unloaded), tuple(skipped))


def query_provider(
    provider: HistoryProvider, query: HistoryQuery, *, read: dict[int, engine.Message]
) -> list[engine.Message]:
    """Return the provider's messages.

    Raises `ProviderRefused` if messages are changed, out of order or not on the branch.
    """
    chosen = list(provider.get_history(query))
    seqs = [message.seq for message in chosen]
    if seqs != sorted(set(seqs)):
        raise ProviderRefused("the messages are not in order")
    if any(read.get(message.seq) != message for message in chosen):
        raise ProviderRefused("a message is not on the branch, or was changed")
    return chosen


def trim_to_newest(
    messages: Sequence[engine.Message], *, values: PolicyValues, tokens: int, most: int | None
) -> list[engine.Message]:
    """Return the newest messages that a prompt can hold, oldest first."""
    fitting: list[engine.Message] = []
    room = tokens
    for message in reversed(messages):
        if room <= 0 or (most is not None and len(fitting) >= most):
            break
        fitting.append(message)
        room -= measure_loading_cost(message, values=values, tokens=tokens)
    return fitting[::-1]
