"""The tools a model may call: which are offered in a chat, and what a call returns.

A call to a tool that was not offered gets an explanation in words, and nothing runs. `use` puts
another source in place: a replay returns the recorded results of recorded calls.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chats.models import Branch
from chats.prompt.tools import history_search
from contextpolicy.engine.messages import ToolCallPart, ToolSpec
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

UNAVAILABLE = "This tool is not available in this chat."


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call; None when it has none, then the prompt says so.

    `read` is what the ledger records about it: ids and numbers. Empty when nothing ran.
    """

    content: str | None
    read: Mapping[str, Any] = field(default_factory=dict)


class ToolSource(Protocol):
    """A source of tools."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]:
        """Return the tools whose definitions go to the model."""
        ...

    def answer(
        self, call: ToolCallPart, *, branch: Branch, offered: Collection[str], counter: TokenCounter
    ) -> ToolAnswer:
        """Return the result of a call; `offered` are the names that its prompt offered."""
        ...


class OwnTools:
    """The product's own tools: the search in the archive, if there is one."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]:
        """Offer the search to a model that takes tools, if the policy keeps the archive open.

        It is offered from the first compaction on: the prompt's beginning changes then in any case.
        """
        has_archive = branch.active_compaction_id is not None and values.archive
        return (
            (history_search.spec_for(branch.chat),) if has_archive and model.supports_tools else ()
        )

    def answer(
        self, call: ToolCallPart, *, branch: Branch, offered: Collection[str], counter: TokenCounter
    ) -> ToolAnswer:
        """Search, or tell the model that the tool is not there."""
        if call.name not in offered or call.name != history_search.SPEC.name:
            return ToolAnswer(UNAVAILABLE)
        content, read = history_search.answer(call.arguments, branch=branch, counter=counter)
        return ToolAnswer(content, read)


_source: ToolSource = OwnTools()


def use(source: ToolSource) -> None:
    """Take tools from another source, in this process."""
    global _source  # one source per process, chosen at its start
    _source = source


def offered(*, branch: Branch, values: PolicyValues, model: ModelSpec) -> tuple[ToolSpec, ...]:
    """Return the tools whose definitions go to the model."""
    return _source.offered(branch=branch, values=values, model=model)


def answer(
    call: ToolCallPart, *, branch: Branch, offered: Collection[str], counter: TokenCounter
) -> ToolAnswer:
    """Return the result of a call."""
    return _source.answer(call, branch=branch, offered=offered, counter=counter)
