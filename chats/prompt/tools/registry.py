"""The tools a model may call: those offered in a chat, and the result of a call.

The product's own tools run here. `turns.server_tools` calls the tools of tool servers.

A call to a tool that was not offered returns an explanation and runs nothing.
`set_tool_source` replaces the source: a replay returns recorded results.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chats.memory.search.meaning import Look
from chats.models import Branch
from chats.prompt.tools import file_read, history_search, output_read, skill_load
from chats.prompt.tools.skill_load import SkillFacts
from contextpolicy.engine.messages.messages import ToolCallPart, ToolSpec
from contextpolicy.engine.messages.skills import SKILL_LOAD, SKILL_LOAD_SPEC
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.tool_outputs import (
    OUTPUT_READ,
    OUTPUT_READ_SPEC,
    is_server_tool,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ModelSpec
from contextpolicy.tool_servers import build_tool_spec, load_allowed_tools

NO_SKILLS = SkillFacts()
UNAVAILABLE = "This tool is not available in this chat."


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool call. `content` is None if a replay has no result for the call.

    `read`: ids and numbers for the ledger; empty if nothing ran.
    """

    content: str | None
    read: Mapping[str, Any] = field(default_factory=dict)


class ToolSource(Protocol):
    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec, lists_skills: bool
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
        skills: SkillFacts,
    ) -> ToolAnswer:
        """Return the result of a call.

        The other arguments describe the prompt in which the model made the call: `offered` has
        the names of its tools, `sent` the `seq`s of its messages, and `skills` its skills.
        `look` is the vector search for the query.
        """
        ...


class OwnTools:
    """The product's tools: search in the chat, reading of files and results, loading of skills."""

    def offered(
        self, *, branch: Branch, values: PolicyValues, model: ModelSpec, lists_skills: bool
    ) -> tuple[ToolSpec, ...]:
        """Return the tools that the model can use in a chat; empty if it does not support tools.

        Includes the tools of tool servers that the policy allows. If there are any, the tool
        that reads long results is offered too. The search is offered from the first prompt that
        leaves out a message, if the policy allows the archive. It stays in each later prompt,
        because a changed tool list would invalidate the provider's cache.
        """
        leaves_out = branch.active_compaction_id is not None or branch.search_offered
        is_allowed = values.archive and model.supports_tools
        found = (
            (history_search.build_search_spec(branch.chat),) if leaves_out and is_allowed else ()
        )
        # For the same reason, this tool is offered from the first prompt on that does not contain
        # the whole text of a document.
        reads = branch.chat.has_cut_files and model.supports_tools
        servers = load_allowed_tools(values.tools) if model.supports_tools else []
        return (
            *found,
            *((file_read.SPEC,) if reads else ()),
            *((SKILL_LOAD_SPEC,) if lists_skills and model.supports_tools else ()),
            *map(build_tool_spec, servers),
            *((OUTPUT_READ_SPEC,) if servers else ()),
        )

    def answer(
        self,
        call: ToolCallPart,
        *,
        branch: Branch,
        offered: Collection[str],
        counter: TokenCounter,
        sent: Collection[int],
        look: Look | None,
        skills: SkillFacts,
    ) -> ToolAnswer:
        """Run a tool and return its result.

        If the tool is unknown or was not offered, the result says that it is not available.
        """
        if call.name in offered and call.name == SKILL_LOAD:
            return ToolAnswer(
                *skill_load.run_skill_load(call.arguments, branch=branch, facts=skills)
            )
        if call.name in offered and call.name == file_read.SPEC.name:
            return ToolAnswer(*file_read.run_file_read(call.arguments, branch=branch))
        if call.name in offered and call.name == OUTPUT_READ:
            return ToolAnswer(*output_read.run_output_read(call.arguments, branch=branch))
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
    *, branch: Branch, values: PolicyValues, model: ModelSpec, lists_skills: bool = False
) -> tuple[ToolSpec, ...]:
    """Return the tools whose definitions are sent to the model.

    `lists_skills`: True if the system text lists on-demand skills. The tool that loads them is then
    offered, if the model supports tools.
    """
    return _source.offered(branch=branch, values=values, model=model, lists_skills=lists_skills)


def has_search(offered: Collection[ToolSpec]) -> bool:
    """Return True if tools include the search in the chat."""
    return any(tool.name == history_search.SPEC.name for tool in offered)


def has_file_read(offered: Collection[ToolSpec]) -> bool:
    """Return True if tools include the one that reads documents."""
    return any(tool.name == file_read.SPEC.name for tool in offered)


def has_skill_load(offered: Collection[ToolSpec]) -> bool:
    """Return True if tools include the one that loads skills."""
    return any(tool.name == SKILL_LOAD for tool in offered)


def is_server_call(name: str, *, offered: Collection[str]) -> bool:
    """Return True if a call is to a tool of a tool server, which runs outside the database.

    Always False in a replay, because its source has the results.
    """
    return isinstance(_source, OwnTools) and is_server_tool(name) and name in offered


def run_tool_call(
    call: ToolCallPart,
    *,
    branch: Branch,
    offered: Collection[str],
    counter: TokenCounter,
    sent: Collection[int] = (),
    look: Look | None = None,
    skills: SkillFacts = NO_SKILLS,
) -> ToolAnswer:
    """Run a tool call of the model and return its result, or a result that describes the error."""
    return _source.answer(
        call,
        branch=branch,
        offered=offered,
        counter=counter,
        sent=sent,
        look=look,
        skills=skills,
    )
