"""A prompt with each kind of part before its history."""

from typing import Any

from contextpolicy.engine.compose.assembly import AssembledContext, compose_context
from contextpolicy.engine.messages.messages import Summary, ToolSpec
from contextpolicy.engine.messages.transcript import Background
from tests.engine.engine_builders import chat, given, message

SUMMARY = Summary("s1", "## Facts\n- Ann lives in Oslo [#2]", 1, 6, (3,), 12)
TOOLS = (ToolSpec("look_up", "Looks things up.", {"type": "object"}),)


def assemble(*args: Any, **facts: Any) -> AssembledContext:
    """Compose a context that needs no move of the window."""
    made = compose_context(given(*args, **facts))
    assert isinstance(made, AssembledContext)
    return made


def assemble_full_prompt(**facts: Any) -> AssembledContext:
    """Compose a context with summary, pin, tools and background."""
    return assemble(
        chat(12)[6:],
        summary=SUMMARY,
        pins=(message(3, "pin me", pinned=True),),
        tools=TOOLS,
        background=Background(date="2026-11-20"),
        **facts,
    )
