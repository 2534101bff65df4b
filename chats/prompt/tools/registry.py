"""The tools a model may call: which are offered in a chat, and what a call returns.

A call to a tool that was not offered gets an explanation in words, and nothing runs. `use` puts
another source in place: a replay returns the recorded results of recorded calls.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chats.memory.meaning import Look
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
        self,
        call: ToolCallPart,
        *,
        branch: Branch,
        offered: Collection[str],
        counter: TokenCounter,
        sent: Collection[int],
        look: Look | None,
    ) -> ToolAnswer:
        """Return the result of a call.

        `offered`, `sent`: the names of the tools and the seqs of the messages in its prompt. `look`
        compares the query by meaning.
        """
        ...


class OwnTools:
    """The product's own tools: the search in a chat whose prompts leave messages out."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]:
        """Offer the search to a model that takes tools, if the policy keeps the archive open.

        It is offered from the first prompt on that leaves a message out, and in each later one: a
        list of tools that changes would reset the provider's cache.
        """
        leaves_out = branch.active_compaction_id is not None or branch.search_offered
        is_allowed = values.archive and model.supports_tools
        return (history_search.spec_for(branch.chat),) if leaves_out and is_allowed else ()

    def answer(
        self,
        call: ToolCallPart,
        *,
        branch: Branch,
        offered: Collection[str],
        counter: TokenCounter,
        sent: Collection[int],
        look: Look | None,
    ) -> ToolAnswer:
        """Search, or tell the model that the tool is not there."""
        if call.name not in offered or call.name != history_search.SPEC.name:
            return ToolAnswer(UNAVAILABLE)
        content, read = history_search.answer(
            call.arguments, branch=branch, counter=counter, sent=sent, look=look
        )
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
    call: ToolCallPart,
    *,
    branch: Branch,
    offered: Collection[str],
    counter: TokenCounter,
    sent: Collection[int] = (),
    look: Look | None = None,
) -> ToolAnswer:
    """Return the result of a call."""
    return _source.answer(
        call, branch=branch, offered=offered, counter=counter, sent=sent, look=look
    )
