"""The prompt of one agent of a team, in the format that its client expects.

Each format has a title or a tag for every part. Message texts cannot imitate them: matching lines
are indented by a space, and matching tags are escaped. The formats are defined by this project,
because the clients accept free text.
"""

import logging
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from contextpolicy.engine.messages.transcript import (
    SECTION_JOINT,
    compile_imitation_pattern,
    indent_matching_lines,
)
from contextpolicy.engine.team.team import AgentContext, ContextMessage, count_utf8_bytes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """The prompt for an agent's client, and the text for its system option, if it has one.

    `omitted` counts the oldest context messages that were removed to fit `max_bytes`.
    """

    prompt: str
    system_flag: str | None = None
    omitted: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the prompt as a JSON object for the API.

        Without a system text, `systemFlag` is left out.
        """
        written: dict[str, object] = {"prompt": self.prompt}
        if self.system_flag is not None:
            written["systemFlag"] = self.system_flag
        return written


class AgentPromptTooLarge(Exception):
    """An agent's prompt exceeds its byte limit even without earlier messages."""

    code = "agent_prompt_too_large"


@dataclass(frozen=True, slots=True)
class PromptForm:
    """The prompt format of one agent type.

    `titles`: the section titles (the text above each section, or its tag). `line` formats one
    message of the conversation; a tagged format has a tag for it. With `has_system_option` the
    instructions go to the client's system option instead of a section.
    """

    titles: Mapping[str, str]
    line: str = ""
    is_tagged: bool = False
    has_system_option: bool = False

    def borders(self, section: str) -> tuple[str, str]:
        """Return the texts that precede and follow the content of a section."""
        title = self.titles[section]
        return (f"<{title}>\n", f"\n</{title}>") if self.is_tagged else (f"{title}\n", "")

    def section(self, section: str, text: str) -> str:
        """Format a section. Returns an empty string if the section is empty."""
        before, after = self.borders(section)
        return f"{before}{text}{after}" if text else ""

    def entry(self, sender: str, to: str, text: str) -> str:
        """Format a message in the conversation. Its text must already be guarded."""
        if self.is_tagged:
            opening = f'<message from="{_attribute(sender)}" to="{_attribute(to)}">'
            return f"{opening}\n{text}\n</message>"
        return self.line.format(sender=_flat(sender), to=_flat(to), content=text)

    def guard(self, text: str, *, sections: Sequence[str]) -> str:
        """Escape lines or tags of a text that imitate those of the `sections`."""
        titles = tuple(self.titles[name] for name in sections if name in self.titles)
        if self.is_tagged:
            return _tags((*titles, "message")).sub("&lt;", text)
        return indent_matching_lines(text, _title_lines(titles))


def assemble_prompt(agent_type: str, context: AgentContext) -> AgentPrompt:
    """Build the prompt for an agent type; an unknown type gets plain text.

    If the prompt and the system text together exceed `max_bytes`, the oldest context is removed
    first. The newest message is never cut. Raises AgentPromptTooLarge if the rest is still too
    large.
    """
    normalized = normalise_agent_type(agent_type)
    form = FORMS.get(normalized)
    if form is None:
        logger.warning(
            '[ContextManager] Unknown agentType "%s" (normalized: "%s"), using PlainTextAssembler',
            agent_type,
            normalized,
        )
        form = PLAIN_TEXT
    return _fitting(form, context)


def normalise_agent_type(agent_type: str) -> str:
    """Return the canonical name of an agent type, ignoring case; unknown types are unchanged."""
    return _FULL_NAMES.get(agent_type.lower(), agent_type)


def write_prompt(
    form: PromptForm, context: AgentContext, messages: Sequence[ContextMessage]
) -> AgentPrompt:
    def guard(text: str) -> str:
        return form.guard(text, sections=SECTIONS)

    instructions = SECTION_JOINT.join(
        text for text in (context.system_instruction, context.instruction_file_text) if text
    )
    entries = [form.entry(item.sender, item.to, guard(item.content)) for item in messages]
    texts = {
        "instructions": "" if form.has_system_option else instructions,
        "task": guard(context.team_task or ""),
        "conversation": "\n".join(entries),
        "current": guard(context.current_message),
    }
    parts = [form.section(name, text) for name, text in texts.items() if text]
    flag = instructions if form.has_system_option else ""
    return AgentPrompt(SECTION_JOINT.join(parts), flag or None)


# The sections of a client's prompt, in order. Prompts of the server's own rounds have more.
SECTIONS = ("instructions", "task", "conversation", "current")
CLAUDE_CODE = PromptForm(
    titles={
        "task": "team_task",
        "summary": "summary",
        "pinned": "pinned_messages",
        "conversation": "conversation",
        "background": "background",
        "current": "current_message",
    },
    is_tagged=True,
    has_system_option=True,
)
OPENAI_CODEX = PromptForm(
    titles={
        "instructions": "# Instructions",
        "task": "# Team task",
        "summary": "# Summary",
        "pinned": "# Pinned messages",
        "conversation": "# Conversation",
        "background": "# Background",
        "current": "# Current message",
    },
    line="**{sender}** to {to}: {content}",
)
GOOGLE_GEMINI = PromptForm(
    titles={
        "instructions": "=== INSTRUCTIONS ===",
        "task": "=== TEAM TASK ===",
        "summary": "=== SUMMARY ===",
        "pinned": "=== PINNED MESSAGES ===",
        "conversation": "=== CONVERSATION ===",
        "background": "=== BACKGROUND ===",
        "current": "=== CURRENT MESSAGE ===",
    },
    line="{sender} -> {to}: {content}",
)
PLAIN_TEXT = PromptForm(
    titles={
        "instructions": "Instructions:",
        "task": "Team task:",
        "summary": "Summary:",
        "pinned": "Pinned messages:",
        "conversation": "Conversation:",
        "background": "Background:",
        "current": "Current message:",
    },
    line="{sender} to {to}: {content}",
)
FORMS: Mapping[str, PromptForm] = {
    "claude-code": CLAUDE_CODE,
    "openai-codex": OPENAI_CODEX,
    "google-gemini": GOOGLE_GEMINI,
}
_FULL_NAMES: Mapping[str, str] = {
    "claude": "claude-code",
    "claude-code": "claude-code",
    "codex": "openai-codex",
    "openai-codex": "openai-codex",
    "gemini": "google-gemini",
    "google-gemini": "google-gemini",
}


def _fitting(form: PromptForm, context: AgentContext) -> AgentPrompt:
    messages = context.context_messages

    def fits(omitted: int) -> bool:
        return _size(write_prompt(form, context, messages[omitted:])) <= context.max_bytes

    omitted = bisect_left(range(len(messages)), x=True, key=fits)
    made = write_prompt(form, context, messages[omitted:])
    if _size(made) > context.max_bytes:
        raise AgentPromptTooLarge(
            f"The message with its instructions takes {_size(made):,} bytes; the limit (maxBytes) "
            f"is {context.max_bytes:,}. Shorten the message or the instructions, or raise the "
            "team's byte limit."
        )
    return AgentPrompt(made.prompt, made.system_flag, omitted)


def _size(made: AgentPrompt) -> int:
    return count_utf8_bytes(made.prompt) + count_utf8_bytes(made.system_flag or "")


@lru_cache(maxsize=256)
def _tags(names: tuple[str, ...]) -> re.Pattern[str]:
    listed = "|".join(re.escape(name) for name in names)
    return re.compile(rf"<(?=\s*/?\s*(?:{listed})\b)", re.IGNORECASE)


@lru_cache(maxsize=256)
def _title_lines(titles: tuple[str, ...]) -> re.Pattern[str]:
    return compile_imitation_pattern(titles)


def _attribute(name: str) -> str:
    return _flat(name).replace('"', "'").replace("<", "(").replace(">", ")")


def _flat(name: str) -> str:
    return " ".join(name.split())
