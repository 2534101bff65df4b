"""The tools a model may call: which are offered in a chat, and what a call answers.

A call to a tool that was not offered is answered in words, and nothing runs. `use` puts another
source in place: a replay answers recorded calls with their recorded results.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chats.models import Branch
from chats.tools import history_search
from contextpolicy.engine.messages import ToolCallPart, ToolSpec
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

UNAVAILABLE = "This tool is not available in this chat."


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call answered; None when it has no answer, then the prompt says so.

    `read` is what the ledger says about it: ids and numbers. Empty when nothing ran.
    """

    content: str | None
    read: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """Where tools come from."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]:
        """The tools whose definitions go to the model."""
        ...

    def answer(
        self, call: ToolCallPart, *, branch: Branch, offered: Collection[str], counter: TokenCounter
    ) -> Answer:
        """The result of a call; `offered` are the names that its prompt offered."""
        ...


class OwnTools:
    """The product's own: the search in the archive, where there is one."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]:
        """The search, for a model that takes tools and a policy that keeps the archive open.

        Offered from the first compaction on: the prompt's beginning changes then in any case.
        """
        has_archive = branch.active_compaction_id is not None and values.archive
        return (history_search.SPEC,) if has_archive and model.supports_tools else ()

    def answer(
        self, call: ToolCallPart, *, branch: Branch, offered: Collection[str], counter: TokenCounter
    ) -> Answer:
        """Search, or tell the model that the tool is not there."""
        if call.name not in offered or call.name != history_search.SPEC.name:
            return Answer(UNAVAILABLE)
        content, read = history_search.answer(call.arguments, branch=branch, counter=counter)
        return Answer(content, read)


_source: Source = OwnTools()


def use(source: Source) -> None:
    """Take tools from another source, in this process."""
    global _source  # one source per process, chosen at its start
    _source = source


def offered(*, branch: Branch, values: PolicyValues, model: ModelSpec) -> tuple[ToolSpec, ...]:
    """The tools whose definitions go to the model."""
    return _source.offered(branch=branch, values=values, model=model)


def answer(
    call: ToolCallPart, *, branch: Branch, offered: Collection[str], counter: TokenCounter
) -> Answer:
    """The result of a call."""
    return _source.answer(call, branch=branch, offered=offered, counter=counter)
