"""The prompt of one agent of a team, in the form its program expects.

Each form has a title or a tag for every part; a text cannot imitate them: its lines are set in by a
space, its tags escaped. The forms are our own choice: the programs take free text.
"""

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contextpolicy.engine.team import AgentContext, ContextMessage, byte_count
from contextpolicy.engine.transcript import SECTION_JOINT, imitations, set_in

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """The prompt for an agent's program, and the text for its system option, if it has one.

    `omitted` counts the oldest context messages that gave way to `max_bytes`.
    """

    prompt: str
    system_flag: str | None = None
    omitted: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the form that integrators read; `systemFlag` only where there is one."""
        written: dict[str, object] = {"prompt": self.prompt}
        if self.system_flag is not None:
            written["systemFlag"] = self.system_flag
        return written


class AgentPromptTooLarge(Exception):
    """An agent's prompt is over its bytes even without any earlier message."""

    code = "agent_prompt_too_large"


Assembler = Callable[[AgentContext, Sequence[ContextMessage]], AgentPrompt]


def assemble_prompt(agent_type: str, context: AgentContext) -> AgentPrompt:
    """Write the prompt for a kind of agent; for an unknown kind as plain text.

    Over `max_bytes` (prompt and system text together) the oldest context goes first, the newest
    message is never cut. Raises AgentPromptTooLarge.
    """
    normalized = normalized_agent_type(agent_type)
    assembler = ASSEMBLERS.get(normalized)
    if assembler is None:
        logger.warning(
            '[ContextManager] Unknown agentType "%s" (normalized: "%s"), using PlainTextAssembler',
            agent_type,
            normalized,
        )
        assembler = plain_text
    return _fitting(assembler, context)


def normalized_agent_type(agent_type: str) -> str:
    """Return the full name of a known kind of agent, whatever its case; others come back equal."""
    return _FULL_NAMES.get(agent_type.lower(), agent_type)


def claude_code(context: AgentContext, messages: Sequence[ContextMessage]) -> AgentPrompt:
    """Write tags around the parts; the instructions go to the program's system option."""
    earlier = [
        f'<message from="{_attribute(item.sender)}" to="{_attribute(item.to)}">\n'
        f"{_untagged(item.content)}\n</message>"
        for item in messages
    ]
    parts = [
        _tagged("team_task", _untagged(context.team_task or "")),
        _tagged("conversation", "\n".join(earlier)),
        _tagged("current_message", _untagged(context.current_message)),
    ]
    instructions = SECTION_JOINT.join(_instructions(context))
    return AgentPrompt(SECTION_JOINT.join(filter(None, parts)), instructions or None)


def openai_codex(context: AgentContext, messages: Sequence[ContextMessage]) -> AgentPrompt:
    """Write Markdown headings above the parts; the instructions stand first."""
    titles = ("# Instructions", "# Team task", "# Conversation", "# Current message")
    return AgentPrompt(_titled(titles, context, messages, "**{sender}** to {to}: {content}"))


def google_gemini(context: AgentContext, messages: Sequence[ContextMessage]) -> AgentPrompt:
    """Write titles in capitals between rules; the instructions stand first."""
    titles = (
        "=== INSTRUCTIONS ===",
        "=== TEAM TASK ===",
        "=== CONVERSATION ===",
        "=== CURRENT MESSAGE ===",
    )
    return AgentPrompt(_titled(titles, context, messages, "{sender} -> {to}: {content}"))


def plain_text(context: AgentContext, messages: Sequence[ContextMessage]) -> AgentPrompt:
    """Write plain titles above the parts; the instructions stand first."""
    titles = ("Instructions:", "Team task:", "Conversation:", "Current message:")
    return AgentPrompt(_titled(titles, context, messages, "{sender} to {to}: {content}"))


ASSEMBLERS: Mapping[str, Assembler] = {
    "claude-code": claude_code,
    "openai-codex": openai_codex,
    "google-gemini": google_gemini,
}
_FULL_NAMES: Mapping[str, str] = {
    "claude": "claude-code",
    "claude-code": "claude-code",
    "codex": "openai-codex",
    "openai-codex": "openai-codex",
    "gemini": "google-gemini",
    "google-gemini": "google-gemini",
}


def _fitting(assembler: Assembler, context: AgentContext) -> AgentPrompt:
    messages = context.context_messages

    def fits(omitted: int) -> bool:
        return _size(assembler(context, messages[omitted:])) <= context.max_bytes

    omitted = bisect_left(range(len(messages)), x=True, key=fits)
    made = assembler(context, messages[omitted:])
    if _size(made) > context.max_bytes:
        raise AgentPromptTooLarge(
            f"The message with its instructions takes {_size(made):,} bytes; {context.max_bytes:,} "
            "are allowed. Shorten the message or the instructions, or allow more bytes."
        )
    return AgentPrompt(made.prompt, made.system_flag, omitted)


def _size(made: AgentPrompt) -> int:
    return byte_count(made.prompt) + byte_count(made.system_flag or "")


def _instructions(context: AgentContext) -> list[str]:
    return [text for text in (context.system_instruction, context.instruction_file_text) if text]


def _titled(
    titles: tuple[str, str, str, str],
    context: AgentContext,
    messages: Sequence[ContextMessage],
    line: str,
) -> str:
    pattern = imitations(titles)
    guarded = [
        line.format(
            sender=_flat(item.sender), to=_flat(item.to), content=set_in(item.content, pattern)
        )
        for item in messages
    ]
    texts = (
        SECTION_JOINT.join(_instructions(context)),
        set_in(context.team_task or "", pattern),
        "\n".join(guarded),
        set_in(context.current_message, pattern),
    )
    parts = [f"{title}\n{text}" for title, text in zip(titles, texts, strict=True) if text]
    return SECTION_JOINT.join(parts)


_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:team_task|conversation|message|current_message)\b)", re.IGNORECASE
)


def _tagged(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""


def _untagged(text: str) -> str:
    return _TAGS.sub("&lt;", text)


def _attribute(name: str) -> str:
    return _flat(name).replace('"', "'").replace("<", "(").replace(">", ")")


def _flat(name: str) -> str:
    return " ".join(name.split())
