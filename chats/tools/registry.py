"""The tools a model may call. None is offered yet; a call to any other is answered in words."""

from contextpolicy.engine.messages import ToolCallPart, ToolSpec

UNAVAILABLE = "This tool is not available in this chat."


def offered() -> tuple[ToolSpec, ...]:
    """The tools whose definitions go to the model."""
    return ()


async def answer(_call: ToolCallPart) -> str:
    """The result of a call. Nothing runs for a tool that was not offered."""
    return UNAVAILABLE
