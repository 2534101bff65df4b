"""Checks a summary before it may replace messages. A rejected summary changes nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contextpolicy.engine.messages.messages import (
    Message,
    Summary,
    extract_message_text,
    serialize_parts,
)
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.prompts import (
    EXAMPLE_FACT,
    SECTIONS,
    TEMPLATE_MARK,
    list_instruction_texts,
    neutralise_template_marks,
    select_summary_headings,
    strip_heading_signs,
)
from contextpolicy.engine.summaries.summary_content import ContentFault, find_content_fault
from contextpolicy.engine.text.claims import strip_summary_labels
from contextpolicy.engine.text.fact_scanner import KINDS, simplify_url
from contextpolicy.engine.text.facts import compare_summary_facts, extract_facts
from contextpolicy.engine.text.language import is_foreign_to_chat

SHORTEST_SUMMARY = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the check: accepted, or rejected with every reason as a stable code.

    `lost`: the facts of the policy's pinned kinds that the summary does not contain. `unknown`: its
    URLs that no source contains.
    """

    accepted: bool
    reasons: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def check_generated_summary(
    summary_text: str,
    *,
    sources: Sequence[Message],
    previous: Summary | None,
    finish: str,
    has_tool_calls: bool,
    reasoning_only: bool,
    values: PolicyValues,
    counter: TokenCounter,
    by_model: bool = True,
) -> Verdict:
    """Check the text that a summariser returned.

    `finish` is its finish reason, normally `stop`. `by_model` is False for the built-in
    extractor, whose small summaries have no headings.

    Reasons: `empty`, `too_short`, `cut_by_length`, `not_finished`, `reasoning_only`,
    `tool_call`, `refusal`, `error_text`, `no_content` (nothing about the sources), `echo` (only
    copied instructions, or one bullet over and over), `missing_sections`,
    `role_headers`, `not_smaller` (than the sources and the previous summary), `too_long`
    (over `summary_max_tokens`), `wrong_language` (clearly not a language of the chat),
    `unknown_url` (a URL that no source contains), `lost_facts` (of the policy's
    `pinned_kinds`).
    """
    text = summary_text.strip()
    told = [extract_message_text(message) for message in sources]
    read = "\n".join([strip_summary_labels(previous.text), *told] if previous else told)
    lost = _find_lost_facts(read, text, values)
    unknown = find_unknown_urls(text, sources=sources, previous=previous)
    tokens = counter.count(text)
    source = sum(message.tokens for message in sources) + (previous.tokens if previous else 0)
    fault = _find_fault(text, sources, previous, values) if by_model else ""
    checks = {
        "empty": not text,
        "too_short": 0 < len(text) < SHORTEST_SUMMARY,
        "cut_by_length": finish == "length",
        "not_finished": finish not in ("stop", "length"),
        "reasoning_only": reasoning_only,
        "tool_call": has_tool_calls,
        "refusal": bool(_REFUSAL.match(text)) or fault == "refusal",
        "error_text": bool(_ERROR.match(text)),
        "no_content": fault == "no_content" or (bool(text) and not _HEADING.sub("", text).strip()),
        "echo": fault == "echo",
        "missing_sections": by_model
        and bool(text)
        and bool(find_missing_sections(text, select_summary_headings(values))),
        "role_headers": bool(_ROLE_HEADER.search(text) or TEMPLATE_MARK.search(text)),
        "not_smaller": bool(text) and tokens >= source,
        "too_long": tokens > values.summary_max_tokens,
        "wrong_language": _is_foreign(text, sources),
        "unknown_url": bool(unknown),
        "lost_facts": bool(text) and bool(lost),
    }
    reasons = tuple(reason for reason, found in checks.items() if found)
    return Verdict(not reasons, reasons, lost, unknown)


def _is_foreign(text: str, sources: Sequence[Message]) -> bool:
    """Return True if a summary is in a language that neither its user nor its sources use."""
    by_user: dict[bool, list[str]] = {True: [], False: []}
    for message in sources:
        by_user[message.role == "user"].append(extract_message_text(message))
    return is_foreign_to_chat(text, user_texts=by_user[True], other_texts=by_user[False])


def _find_fault(
    text: str, sources: Sequence[Message], previous: Summary | None, values: PolicyValues
) -> ContentFault:
    """Return why a summary says nothing about its sources. A text without headings has one."""
    if not _HEADING.search(text):
        return ""
    told = [_everything(message) for message in sources]
    return find_content_fault(
        text,
        sources_text="\n".join([strip_summary_labels(previous.text), *told] if previous else told),
        instructions=list_instruction_texts(values),
        example=EXAMPLE_FACT,
    )


def append_lost_facts(
    summary_text: str, lost: Sequence[str], *, max_tokens: int, counter: TokenCounter
) -> str:
    """Add facts that a summary lost, verbatim and as bullets, while they fit `max_tokens`.

    The bullets are below the first heading, or at the beginning without one.
    """
    lines = summary_text.strip().split("\n")
    place = next((n for n, line in enumerate(lines, start=1) if _HEADING.match(line)), 0)
    for fact in lost:
        added = [*lines[:place], f"- Also mentioned: {fact}", *lines[place:]]
        if counter.count("\n".join(added)) > max_tokens:
            break
        lines, place = added, place + 1
    return "\n".join(lines)


def find_unknown_urls(
    summary_text: str, *, sources: Sequence[Message], previous: Summary | None
) -> tuple[str, ...]:
    """Return the URLs of a summary that are neither in its sources nor in `previous`.

    Tool calls and tool results are sources too. A truncated URL is matched by its beginning.
    """
    # A URL in code marks counts too.
    found = extract_facts(summary_text.replace("`", " "))["url"]
    if not found:
        return ()
    told = [_everything(message) for message in sources]
    read = "\n".join([previous.text, *told] if previous else told).casefold()
    # Chinese and Japanese text is often directly before a URL.
    return tuple(
        url
        for url in found
        if not re.search(rf"(?<![A-Za-z0-9_.@-]){re.escape(simplify_url(url))}", read)
    )


def _everything(message: Message) -> str:
    """Return the texts, calls and results of a message as the summariser reads them."""
    written = (value for part in serialize_parts(message.parts) for value in part.values())
    return "\n".join(written)


def _find_lost_facts(read: str, text: str, values: PolicyValues) -> tuple[str, ...]:
    if not values.pinned_kinds:
        return ()
    # A summary may quote a template mark only in escaped form, so both sides are compared escaped.
    lost = compare_summary_facts(
        neutralise_template_marks(read), neutralise_template_marks(text)
    ).lost
    return tuple(fact for kind in KINDS if kind in values.pinned_kinds for fact in lost[kind])


def keep_sections(text: str, sections: Sequence[str]) -> str:
    """Return a summary with only its requested sections.

    Removed are: text before the first requested section, sections with other headings, and text
    between a horizontal rule and the next requested section. A code fence or tag around the whole
    summary is removed with all text after it. After bullets, a last paragraph without a source
    ("Let me know …") is removed. Deeper headings inside a section are kept. A text without any
    requested heading is returned unchanged.
    """
    known = {strip_heading_signs(name).casefold() for name in sections}
    kept: list[str] = []
    level = 0
    is_code = False
    for line in _unwrap_summary(text.split("\n"), known):
        is_code ^= bool(_FENCE.match(line))
        heading = None if is_code else _HEADING.match(line)
        depth = line.strip().partition(" ")[0].count("#") if heading else 0
        if heading and _is_known(line, known):
            level = depth
        elif (heading and depth <= level) or (not is_code and _RULE.match(line)):
            level = 0
        if level:
            kept.append(line)
    return "\n".join(_without_last_words(kept)) if kept else text


def _without_last_words(lines: list[str]) -> list[str]:
    """Return the lines without a last paragraph that follows bullets and names no source."""
    place = len("\n".join(lines).rstrip().split("\n"))
    last = place
    while last and lines[last - 1].strip():
        last -= 1
    words = "\n".join(lines[last:place])
    above = next((line for line in reversed(lines[:last]) if line.strip()), "")
    is_apart = bool(_BULLET.match(above)) and not _STRUCTURE.search(words)
    return lines[:last] if is_apart else lines


def _unwrap_summary(lines: list[str], known: set[str]) -> list[str]:
    """Return the lines from the first requested heading on.

    The ends of code fences and tags that open directly before that heading are removed, with all
    text after them.
    """
    first = next((n for n, line in enumerate(lines) if _is_known(line, known)), 0)
    before = [line.strip() for line in lines[:first] if line.strip()]
    inner = lines[first:]
    closings = []
    while before and (closing := _get_closing(before.pop())):
        closings.append(closing)
    for closing in reversed(closings):
        ends = [n for n, line in enumerate(inner) if line.strip() == closing]
        # An even number of fences belongs to code blocks inside the sections.
        fences = sum(bool(_FENCE.match(line)) for line in inner)
        if ends and (closing.startswith("<") or fences % 2):
            inner = inner[: ends[-1]]
    return inner


def _get_closing(line: str) -> str:
    tag = _TAG.fullmatch(line)
    return f"</{tag[1]}>" if tag else line[:3] if _FENCE.match(line) else ""


def _is_known(line: str, known: set[str]) -> bool:
    heading = _HEADING.match(line)
    return heading is not None and strip_heading_signs(heading.group(1)).casefold() in known


def find_missing_sections(text: str, sections: Sequence[str] = SECTIONS) -> tuple[str, ...]:
    """Return the required sections that have no Markdown heading in the text."""
    found = {strip_heading_signs(match.group(1)).casefold() for match in _HEADING.finditer(text)}
    return tuple(name for name in sections if strip_heading_signs(name).casefold() not in found)


_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)")
_RULE = re.compile(r"^ {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s")
# A bullet, a heading, code, or the source of a statement.
_STRUCTURE = re.compile(r"^\s*(?:[-*•#|`~]|\d{1,3}[.)]\s)|#\d", re.MULTILINE)
_TAG = re.compile(r"<([A-Za-z_]{1,40})>")
# A summary that opens like this is about the model, not about the chat.
_REFUSAL = re.compile(
    r"(?:i['’]m sorry|sorry,|i (?:can(?:no|['’])t|am unable to|won['’]t)|as an ai\b|"
    r"unfortunately, i\b|抱歉|对不起|es tut mir leid|je suis désolé|lo siento)",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"(?:error\b|\{\s*[\"']error[\"']|traceback \(most recent|internal server error|bad gateway|"
    r"service unavailable|rate limit|too many requests|<!doctype|<html|[45]\d\d\b)",
    re.IGNORECASE,
)
# The model continued the transcript instead of summarising it.
_ROLE_HEADER = re.compile(
    r"^\s*(?:#{1,6}\s*)?\[?(?:user|assistant|human|system|tool)\]?\s*:",
    re.IGNORECASE | re.MULTILINE,
)
