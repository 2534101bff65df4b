"""A team's chat from the perspective of one of its agents.

The agent's own replies have the role `assistant`. All other messages carry their speaker's name.
Stored data is unchanged. Prompts, pages and the router derive their view of a reply here, by pure
functions of its text and of the names in the team.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from contextpolicy.engine.history.truncation import advance_code_fence
from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    extract_message_text,
    format_file_content,
)
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.team.markers import INLINE_CODE, parse_next_names, strip_markers
from contextpolicy.engine.team.team import Speaker, format_recipients
from contextpolicy.engine.text.names import build_combining_marks, is_allowed_name
from contextpolicy.engine.text.phrases import Phrase, gettext_noop

# Names with a special meaning.
RESERVED = ("all", "user", "system")
EVERYBODY, PERSON = "all", "user"
LONGEST_MEMBER_NAME = 60
_FORBIDDEN = frozenset(',][@:"`，、')
NameFault = Literal["missing", "too_long", "invisible", "routing", "reserved"]
NAME_PROBLEMS: Mapping[NameFault, str] = {
    "missing": gettext_noop("Give each member a name."),
    "too_long": gettext_noop("A name has more than {most} characters. Shorten it."),
    "invisible": gettext_noop(
        "The name {name!r} begins or ends with a space, or has an invisible character. Remove "
        "these characters."
    ),
    "routing": gettext_noop(
        "The name {name} contains {found}, which is reserved for addressing agents. Choose "
        "another name."
    ),
    "reserved": gettext_noop(
        "The name {name} is reserved in a team. Choose another name. Reserved names: {reserved}."
    ),
}
# The line of the instructions about speakers, for a prompt that is one text.
SPEAKERS_NAMED = (
    "The conversation names the speaker of each message. Write your reply alone, without a name "
    "before it, and never speak for anybody else."
)
_APART = re.compile(r"[\s_\u200c\u200d-]+")
# Letters of scripts without spaces between words: Thai, Lao, Japanese, Chinese, Korean.
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_LABEL_OPENING = re.compile(r"\[(?=\s*FROM\s*:)", re.IGNORECASE | re.ASCII)
_FROM_LINE = re.compile(r"[ \t]*\[FROM:([^\]\n]+)\]", re.IGNORECASE | re.ASCII)
_QUOTED = re.compile(
    r"\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|「[^「」]*」"
    r"|['‘]\s*[\[［【]NEXT[:：][^]］】'‘’]*[]］】]\s*['’]",
    re.IGNORECASE | re.ASCII,
)


class Said(NamedTuple):
    """A reply, split into the speaker's own words and words written as another member."""

    own: str
    for_others: str = ""


def fold_member_name(name: str) -> str:
    """Return a comparison key of a name, which ignores case, spaces, hyphens and underscores."""
    return _APART.sub("", unicodedata.normalize("NFKC", name).casefold())


def find_name_fault(name: str) -> NameFault | None:
    """Return the reason code if a name is not allowed for a team member, else None."""
    if not name.strip():
        return "missing"
    if len(name) > LONGEST_MEMBER_NAME:
        return "too_long"
    if not is_allowed_name(name) or name != name.strip():
        return "invisible"
    if _FORBIDDEN & set(name):
        return "routing"
    if fold_member_name(name) in RESERVED or not fold_member_name(name):
        return "reserved"
    return None


def find_name_problem(name: str) -> Phrase | None:
    """Return a sentence that explains why a name is not allowed for a team member, or None."""
    fault = find_name_fault(name)
    if fault is None:
        return None
    return Phrase(
        NAME_PROBLEMS[fault],
        name=name,
        most=LONGEST_MEMBER_NAME,
        found=" ".join(sorted(_FORBIDDEN & set(name))),
        reserved=", ".join(RESERVED),
    )


def split_reply_speakers(text: str, *, name: str) -> Said:
    """Split a reply into its speaker's words and words that it writes as another member.

    A label with the speaker's own name at the start is removed (`[FROM:X]`, `X:`, in bold
    too), because models copy the labels of their prompt. If a line begins with another
    member's `[FROM:…]`, the text from there on is that member's part. Code, and a list such
    as `Critic: kitchen`, are not split.
    """
    own = _own_label(name).sub("", text, count=1)
    place, fence = 0, ""
    for line in own.split("\n"):
        following = advance_code_fence(fence, line)
        labelled = None if fence or following else _FROM_LINE.match(line)
        if labelled and fold_member_name(labelled[1]) != fold_member_name(name):
            return Said(own[:place].rstrip(), own[place:])
        place, fence = place + len(line) + 1, following
    return Said(own)


@lru_cache(maxsize=256)
def _own_label(name: str) -> re.Pattern[str]:
    spellings = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
    # Labels have one plain space where a name may have other white space.
    words = {r"\s+".join(map(re.escape, one.split())) for one in (*spellings, name)}
    word = f"(?:{'|'.join(sorted(words))})"
    # Models that write Chinese use a full-width colon.
    label = rf"\*\*{word}\*\*\s*[:：]|\*\*{word}\s*[:：]\*\*|{word}\s*[:：]"
    label = rf"\[FROM:\s*{word}\s*\][:：]?|{label}"
    return re.compile(rf"\A\s*(?:(?:{label})\s*)+", re.IGNORECASE)


def parse_called_names(text: str) -> tuple[str, ...]:
    """Return the next speakers that a reply names in markers outside code and quotations.

    A quotation may contain other text in addition to the marker. A quotation ends with its line.
    """
    return parse_next_names("\n".join(_QUOTED.sub(" ", line) for line in _iter_spoken_lines(text)))


def _iter_spoken_lines(text: str) -> Iterator[str]:
    fence = ""
    for line in text.split("\n"):
        following = advance_code_fence(fence, line)
        if not fence and not following and not line.lstrip().startswith(">"):
            yield INLINE_CODE.sub(" ", line)
        fence = following


def find_mentioned_members(
    text: str, *, names: Sequence[str], all_names: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the members that a user's message mentions by `@Name` or `@"Two words"`, in order.

    A full-width `＠` counts too. `@all` stands for `all_names`, or for all names if that is None.
    Case, spaces and hyphens are ignored, and the longest name wins. Mentions in code or inside a
    word do not count, so an email address mentions no member. Letters of scripts without spaces may
    be on both sides.
    """
    # Letters with accents have two spellings. Normalise both sides to the composed one.
    pattern = _mention_pattern(tuple(unicodedata.normalize("NFC", name) for name in names))
    known = {fold_member_name(name): name for name in names}
    found: dict[str, None] = {}
    for line in _iter_spoken_lines(unicodedata.normalize("NFC", text)):
        for match in pattern.finditer(line):
            wanted = fold_member_name(match["quoted"] or match["plain"])
            if wanted == EVERYBODY:
                found.update(dict.fromkeys(names if all_names is None else all_names))
            elif wanted in known:
                found[known[wanted]] = None
    return tuple(found)


# Joiners of Persian words and of emoji, and skin tones: the name continues there.
_JOINED = "[\u200c\u200d]\\S|[\U0001f3fb-\U0001f3ff]"


@lru_cache(maxsize=256)
def _mention_pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted({*names, EVERYBODY}, key=len, reverse=True)
    words = "|".join(
        rf"(?:{_APART.pattern})?".join(re.escape(piece) for piece in _APART.split(name))
        for name in longest_first
    )
    return re.compile(
        rf"(?<![^\W{_UNSPACED}])[@＠]"
        rf"(?:\"(?P<quoted>[^\"\n]+)\"|(?P<plain>{words})(?![{build_combining_marks()}]|{_JOINED}|[^\W{_UNSPACED}]))",
        re.IGNORECASE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The agent for which a prompt is built: its role's id and name, and its team mates' names.

    `only_ascii`: full-width markers stay in messages, as in prompts of versions up to 0.9.
    """

    role_id: str
    name: str
    mates: tuple[str, ...]
    only_ascii: bool = False


def rewrite_for_viewer(
    message: Message, *, speaker: Speaker, viewer: Viewer, counter: TokenCounter
) -> Message:
    """Return a team message as the agent sees it, with its tokens counted again.

    The agent's own replies have role `assistant`. All others have role `user`, after a line with
    the speaker's name. A message cannot forge that line: markers are removed first, and text that
    still looks like one loses its bracket. Tool calls by other members are one line each, without
    arguments and results. A message without content has no parts.
    """
    parts = _clean_parts(message.parts, speaker=speaker, viewer=viewer)
    if speaker.type == "ai" and speaker.role_id == viewer.role_id:
        return _count_message(replace(message, parts=parts, role="assistant"), counter)
    lines = [extract_message_text(replace(message, parts=parts)), *_tool_lines(parts)]
    body = "\n".join(line for line in lines if line)
    label = f"[FROM:{_flat(speaker.role_name)}]\n"
    told = (TextPart(label + body),) if body else ()
    return _count_message(replace(message, parts=told, role="user"), counter)


def rewrite_for_text_prompt(
    message: Message, *, speaker: Speaker, viewer: Viewer, counter: TokenCounter
) -> Message:
    """Return a message of the team with its speaker's name, for a prompt that is a single text.

    The agent's own messages keep all parts. Other messages keep only their text and files, as one
    text part. The tokens are those of a line with speaker and recipients.
    """
    parts = _clean_parts(message.parts, speaker=speaker, viewer=viewer)
    is_own = speaker.type == "ai" and speaker.role_id == viewer.role_id
    files = [
        format_file_content(replace(p, name=_flat(p.name)))
        for p in parts
        if isinstance(p, FilePart)
    ]
    body = "\n".join(filter(None, [extract_message_text(replace(message, parts=parts)), *files]))
    shown = parts if is_own else (TextPart(body),) if body else ()
    line = f"{speaker.role_name} to {format_recipients(message.addressees)}: {body}"
    counted = count_uncut_tokens((TextPart(line), *(shown if is_own else ())), "user", counter)
    return replace(
        message,
        parts=shown,
        role="assistant" if is_own else "user",
        speaker=speaker.role_name,
        tokens=counted,
    )


def _clean_parts(parts: Sequence[Part], *, speaker: Speaker, viewer: Viewer) -> tuple[Part, ...]:
    """Return the parts with only the speaker's own words, without routing markers."""
    made: list[Part] = []
    rest = ""
    for part in parts:
        if not isinstance(part, TextPart):
            made.append(part)
        elif not rest:
            own = part.text
            if speaker.type == "ai":
                own, rest = split_reply_speakers(own, name=speaker.role_name)
            if text := _LABEL_OPENING.sub("(", strip_markers(own, only_ascii=viewer.only_ascii)):
                made.append(TextPart(text))
    return tuple(made)


def _tool_lines(parts: Sequence[Part]) -> Iterator[str]:
    done = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    for part in parts:
        if isinstance(part, ToolCallPart):
            outcome = "done" if part.call_id in done else "no result"
            yield f"(used the tool {_flat(part.name)}: {outcome})"
        elif isinstance(part, FilePart):
            yield format_file_content(replace(part, name=_flat(part.name)))


def _count_message(message: Message, counter: TokenCounter) -> Message:
    return replace(message, tokens=count_uncut_tokens(message.parts, message.role, counter))


def _flat(name: str) -> str:
    return " ".join(name.replace("]", ")").replace("[", "(").split())


def compute_agent_window(seq: int, *, size: int) -> int:
    """Return the seq up to which an agent's window omits messages, before a question at `seq`.

    At most `size` earlier messages stay, and at least three quarters of that. The window moves in
    steps, so the prefix stays the same for several replies and the provider's cache applies.
    Returns 0 if all earlier messages stay. With `size` 0, no earlier message stays.
    """
    if size == 0:
        return seq - 1
    step = max(1, size // 4)
    over = seq - 1 - size
    return 0 if over <= 0 else -(-over // step) * step


def build_team_instructions(
    viewer: Viewer, *, humans: Collection[str] = (), is_text: bool = False
) -> str:
    """Return the instructions that name an agent and its team mates, and how to call one.

    `is_text`: the agent's prompt is a single text, in which each message has its speaker's name.
    """
    mates = [_flat(mate) + (" (a person)" if mate in humans else "") for mate in viewer.mates]
    lines = [f"You are {_flat(viewer.name)}, a member of a team that works in one chat."]
    if mates:
        lines.append(f"Your mates are {', '.join(mates)}.")
    lines.append(
        SPEAKERS_NAMED
        if is_text
        else "Messages of others begin with a line [FROM:name]. Do not write such a line, and "
        "never speak for anybody else."
    )
    if mates:
        lines.append(
            "To let a mate speak next, end your reply with [NEXT:name]; without it the team's "
            "order holds. [NEXT:user] hands back to the person after the mates whose turn is "
            "still to come. If you have nothing to add, reply only with [NEXT:]."
        )
    return "\n".join(lines)
