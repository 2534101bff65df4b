"""The tools a model may call.

None is offered yet; a call to any other is answered in words, and nothing runs. `use` puts another
source in place: a replay answers recorded calls with their recorded results.
"""

from typing import Protocol

from contextpolicy.engine.messages import ToolCallPart, ToolSpec

UNAVAILABLE = "This tool is not available in this chat."


class Source(Protocol):
    """Where tools come from."""

    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools whose definitions go to the model."""
        ...

    async def answer(self, call: ToolCallPart) -> str | None:
        """The result of a call; None when it has none, then the prompt says so."""
        ...


class NoTools:
    """Offers nothing and runs nothing."""

    def offered(self) -> tuple[ToolSpec, ...]:
        """No tool."""
        return ()

    async def answer(self, call: ToolCallPart) -> str | None:
        """Tell the model that the tool is not there."""
        del call
        return UNAVAILABLE


_source: Source = NoTools()


def use(source: Source) -> None:
    """Take tools from another source, in this process."""
    global _source  # one source per process, chosen at its start
    _source = source


def offered() -> tuple[ToolSpec, ...]:
    """The tools whose definitions go to the model."""
    return _source.offered()


async def answer(call: ToolCallPart) -> str | None:
    """The result of a call."""
    return await _source.answer(call)
