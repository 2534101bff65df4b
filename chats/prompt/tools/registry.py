"""The tools a model may call: those offered in a chat, and the result of a call.

A call to a tool that was not offered returns an explanation and runs nothing. `set_tool_source`
replaces the source: a replay returns recorded results.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chats.memory.search.meaning import Look
from chats.models import Branch
from chats.prompt.tools import file_read, history_search
from contextpolicy.engine.messages.messages import ToolCallPart, ToolSpec
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ModelSpec

UNAVAILABLE = "This tool is not available in this chat."


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call. None: the call had no result, and the prompt says so.

    `read`: ids and numbers for the ledger; empty if nothing ran.
    """

    content: str | None
    read: Mapping[str, Any] = field(default_factory=dict)


class ToolSource(Protocol):
    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]: ...

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

        `offered` has the names of the tools in its prompt, `sent` the `seq`s of its
        messages. `look` is the vector search for the query.
        """
        ...


class OwnTools:
    """The built-in tools: search in a chat whose prompts leave out messages, and file reading."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec
    ) -> tuple[ToolSpec, ...]:
        """Offer the search if the model supports tools and the policy allows the archive.

        Offered from the first prompt that leaves out a message, and in each later one: a changed
        tool list would invalidate the provider's cache.
        """
        leaves_out = branch.active_compaction_id is not None or branch.search_offered
        is_allowed = values.archive and model.supports_tools
        found = (
            (history_search.build_search_spec(branch.chat),) if leaves_out and is_allowed else ()
        )
        # From the first document whose text is cut, for the same reason.
        reads = branch.chat.has_cut_files and model.supports_tools
        return (*found, file_read.SPEC) if reads else found

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
        """Run the search or read a file. For an unknown tool, return a text that says so."""
        if call.name in offered and call.name == file_read.SPEC.name:
            return ToolAnswer(*file_read.run_file_read(call.arguments, branch=branch))
        if call.name not in offered or call.name != history_search.SPEC.name:
            return ToolAnswer(UNAVAILABLE)
        content, read = history_search.run_history_search(
            call.arguments, branch=branch, counter=counter, sent=sent, look=look
        )
        return ToolAnswer(content, read)


_source: ToolSource = OwnTools()


def set_tool_source(source: ToolSource) -> None:
    """Replace the tool source for this process."""
    global _source  # One source per process, chosen at startup.
    _source = source


def list_offered_tools(
    *, branch: Branch, values: PolicyValues, model: ModelSpec
) -> tuple[ToolSpec, ...]:
    """Return the tools whose definitions are sent to the model."""
    return _source.offered(branch=branch, values=values, model=model)


def has_search(offered: Collection[ToolSpec]) -> bool:
    """Return True if tools include the search in the chat."""
    return any(tool.name == history_search.SPEC.name for tool in offered)


def run_tool_call(
    call: ToolCallPart,
    *,
    branch: Branch,
    offered: Collection[str],
    counter: TokenCounter,
    sent: Collection[int] = (),
    look: Look | None = None,
) -> ToolAnswer:
    """Run a tool call of the model and return its result, or a result that describes the error."""
    return _source.answer(
        call, branch=branch, offered=offered, counter=counter, sent=sent, look=look
    )
