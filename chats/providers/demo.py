"""The demo model, which describes the context it received. Needs no server and no key.

It is not a language model, and says so. Its reply is a pure function of the request, so the effect
of a policy can be seen and tested without cost.
"""

import asyncio
import re
from collections.abc import AsyncIterator

from chats.providers.base import (
    ContextFacts,
    Finished,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    UsageReport,
)
from chats.providers.demo_state import build_demo_state

OPENING = "**Demo model** — no language model is connected."
QUESTION_WORDS = 12
LEFT_OUT_LINES = 8
SUMMARY_WITHOUT_RANGE = "replaces older messages"
_REASONS = {
    "window": "older than the window",
    "excluded": "excluded manually",
    "incomplete": "an incomplete reply",
    "empty": "empty",
    "covered": "covered by the summary",
    "state": "replaced by the chat state",
    "turn_split": "part of a turn that did not fit as a whole",
    "budget": "no room in the token budget",
    "tool_parts": "only tool calls, which the layout cannot show",
    "strategy": "left out by the strategy",
}


class DemoProvider:
    """Streams a description of the context, one word every `token_delay` seconds."""

    def __init__(self, *, token_delay: float = 0.015) -> None:
        self._token_delay = token_delay

    async def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Yield the reply word by word, then usage and the end. Never raises."""
        pieces = re.findall(r"\s*\S+|\s+$", build_demo_reply(request))
        allowed = request.max_output_tokens
        sent = pieces if allowed is None else pieces[:allowed]
        for piece in sent if request.stream else ["".join(sent)]:
            await asyncio.sleep(self._token_delay)
            yield TextDelta(piece)
        yield UsageReport(
            input_tokens=_prompt_tokens(request),
            output_tokens=len(sent),
            cached_tokens=0,
            written_tokens=0,
        )
        yield Finished("stop" if len(sent) == len(pieces) else "length")

    async def aclose(self) -> None:
        """Do nothing, because there is no connection."""


def build_demo_reply(request: ProviderRequest) -> str:
    """Return the whole reply: the state as JSON if one is requested, else Markdown."""
    if request.state is not None:
        return build_demo_state(request.state)
    opening = OPENING
    question = _first_words(_last_question(request))
    if question:
        opening += f" You asked: “{question}”"
    body = _about_context(request.facts) if request.facts else _without_facts(request)
    closing = "Connect a model server to send this context to a language model."
    return "\n\n".join([opening, *body, closing])


def is_own_account(text: str) -> bool:
    """Return True if the text is the demo model's description of its context."""
    return text.startswith(OPENING)


def _about_context(facts: ContextFacts) -> list[str]:
    lines = [
        f"- **Messages:** {facts.messages_sent} of {facts.messages_total} were sent"
        + (f", {facts.cut} of them shortened" if facts.cut else ""),
        f"- **Size:** about {facts.prompt_tokens:,} tokens of the {facts.prompt_limit:,} allowed",
        f"- **Policy:** {_plain(facts.policy)}, strategy `{facts.strategy}`"
        + (f", window of {facts.window} messages" if facts.window else ""),
        f"- **Summary:** {_summary_words(facts)}",
    ]
    if facts.has_state:
        lines.append("- **State:** replaces the dialogue before your message")
    return ["This is the context I received:", "\n".join(lines), _left_out_words(facts)]


def _summary_words(facts: ContextFacts) -> str:
    if not facts.summary_present:
        return "none"
    if facts.summary_range is None:
        return SUMMARY_WITHOUT_RANGE
    return f"replaces {_span(*facts.summary_range)}"


def _left_out_words(facts: ContextFacts) -> str:
    if not facts.left_out:
        return "Nothing was left out."
    lines = [
        f"- {_span(first, last)}: {_REASONS.get(reason, reason)}"
        for first, last, reason in facts.left_out[:LEFT_OUT_LINES]
    ]
    more = len(facts.left_out) - LEFT_OUT_LINES
    if more > 0:
        lines.append(f"- and {more} more ranges")
    return "Left out or replaced:\n\n" + "\n".join(lines)


def _without_facts(request: ProviderRequest) -> list[str]:
    count = len(request.messages)
    return [
        f"I received {count} message{'' if count == 1 else 's'}, "
        "without information on how they were selected."
    ]


def _span(first: int, last: int) -> str:
    return f"message {first}" if first == last else f"messages {first}–{last}"


# The text of an attached file, with its label.
_DOCUMENT = re.compile(r'\[Attached file: [^\]]*\]\n<file name="[^"]*">\n.*?\n</file>', re.DOTALL)
_SPEAKER_LINE = re.compile(r"^\[FROM:[^\]\n]+\]\n", re.MULTILINE)


def _last_question(request: ProviderRequest) -> str:
    asked = (m.content for m in reversed(request.messages) if m.role == "user" and m.content)
    # In a team, several members may have spoken since. The last one is answered.
    spoken = _SPEAKER_LINE.split(next(asked, ""))[-1]
    return _DOCUMENT.sub("", spoken).strip()


def _first_words(text: str) -> str:
    words = text.split(maxsplit=QUESTION_WORDS)
    quoted = " ".join(words[:QUESTION_WORDS])[:200]
    return _plain(quoted) + (" …" if len(words) > QUESTION_WORDS else "")


def _plain(text: str) -> str:
    """Escape Markdown characters.

    Only closing brackets are escaped, because a backslash before an opening bracket starts a
    formula.
    """
    return re.sub(r"([\\`*_\]<>#|!~$])", r"\\\1", text)


def _prompt_tokens(request: ProviderRequest) -> int:
    if request.facts is not None:
        return request.facts.prompt_tokens
    # Four characters per token, the usual estimate.
    return sum(len(m.content or "") for m in request.messages) // 4
