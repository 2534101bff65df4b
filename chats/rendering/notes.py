"""Renders footnotes, `[^1]` and `[^1]: …`: numbers in the text, the notes at its end.

The stored HTML has no ids or links, because a page may contain the same text twice.
`link_footnotes` adds them for one message after sanitising, so that they lead to that message's
notes.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from django.utils.html import escape
from django.utils.translation import gettext
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.footnote.index import footnote_def, footnote_ref

from chats.rendering.links import build_text_token

LONGEST_NAME = 60
OPEN, CLOSE = "footnote_reference_open", "footnote_reference_close"

# The form in which the sanitizer writes numbers. It escapes "<" in text, so text cannot match.
NUMBER = re.compile(r'<sup class="note (first)?">([0-9]{1,5})</sup>')
NOTE = re.compile(r'<li class="note" value="([0-9]{1,5})"')
BACK = re.compile(r'<span class="note__back">([0-9]{1,5})</span>')


def install_footnote_rules(md: MarkdownIt) -> None:
    footnote_plugin(md, inline=False)
    md.block.ruler.at("footnote_def", parse_outermost_note, {"alt": ["paragraph", "reference"]})
    md.inline.ruler.at("footnote_ref", parse_short_reference)
    md.core.ruler.before("footnote_tail", "unused_notes", keep_unused)
    md.add_render_rule("footnote_ref", render_number)
    md.add_render_rule("footnote_block_open", render_notes_open)
    md.add_render_rule("footnote_block_close", render_notes_close)
    md.add_render_rule("footnote_open", render_note_open)
    md.add_render_rule("footnote_anchor", render_back)


def link_footnotes(html: str, *, key: str) -> str:
    """Return the HTML with ids and links between numbers and notes. `key` is unique per message."""

    def number(found: re.Match[str]) -> str:
        place = f' id="{key}-from-{found[2]}"' if found[1] else ""
        return f'<sup class="note"><a href="#{key}-note-{found[2]}"{place}>{found[2]}</a></sup>'

    def note(found: re.Match[str]) -> str:
        return f'<li class="note" id="{key}-note-{found[1]}" value="{found[1]}"'

    def back(found: re.Match[str]) -> str:
        words = escape(gettext("Back to the text, {n}").format(n=found[1]))
        return f'<a class="note__back" href="#{key}-from-{found[1]}" aria-label="{words}">↩</a>'

    return BACK.sub(back, NOTE.sub(note, NUMBER.sub(number, html)))


def parse_outermost_note(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Apply the plugin's rule to unindented notes only.

    For a note within a note, the rule loses text. In silent mode, which asks whether a
    paragraph ends here, the plugin's result is always right.
    """
    return (silent or state.level == 0) and footnote_def(state, start, end, silent)


def parse_short_reference(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Apply the plugin's rule to names of at most 60 characters.

    The rule itself has no limit for its search.
    """
    start = state.pos + 2
    if (
        state.src.startswith("[^", state.pos)
        and state.src.find("]", start, start + LONGEST_NAME) > 0
    ):
        return footnote_ref(state, silent)
    return False


def keep_unused(state: StateCore) -> None:
    """Keep notes without a reference in place, because the plugin would drop their text."""
    found = state.env.get("footnotes", {})
    used = {note["label"] for note in found.get("list", {}).values()}
    kept: dict[str, int] = {}
    for place, token in enumerate(state.tokens):
        if token.type == OPEN and token.meta["label"] in used:
            kept.setdefault(token.meta["label"], place)
    if found:
        state.tokens = list(unwrap_unused_notes(state.tokens, set(kept.values())))


def unwrap_unused_notes(tokens: Sequence[Token], kept: Collection[int]) -> Iterator[Token]:
    """Yield the tokens, with each unused note as plain blocks that begin with its name.

    `kept`: positions of the notes that stay footnotes.
    """
    name, is_unused = "", False
    for place, token in enumerate(tokens):
        if token.type == OPEN and place not in kept:
            name, is_unused = f"[^{token.meta['label']}]: ", True
            if tokens[place + 1].type != "paragraph_open":
                yield from build_paragraph_tokens(name)
                name = ""
        elif token.type == CLOSE and is_unused:
            is_unused = False
        else:
            token.level -= is_unused
            if name and token.type == "inline":
                token.children = [build_text_token(name), *(token.children or [])]
                name = ""
            yield token


def build_paragraph_tokens(words: str) -> list[Token]:
    inline = Token("inline", "", 0, content=words, children=[build_text_token(words)])
    return [Token("paragraph_open", "p", 1), inline, Token("paragraph_close", "p", -1)]


def get_note_number(token: Token) -> int:
    """Return the number of a note. Notes are numbered from 1 in the order of their references."""
    return int(token.meta["id"]) + 1


def render_number(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Render the number of a note. Its first occurrence is the target of the back link."""
    first = "" if tokens[index].meta.get("subId") else "first"
    return f'<sup class="note {first}">{get_note_number(tokens[index])}</sup>'


def render_notes_open(
    _renderer: RendererHTML,
    _tokens: Sequence[Token],
    _index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    return '<ol class="notes">\n'


def render_notes_close(
    _renderer: RendererHTML,
    _tokens: Sequence[Token],
    _index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    return "</ol>\n"


def render_note_open(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    return f'<li class="note" value="{get_note_number(tokens[index])}" dir="auto">'


def render_back(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Render the placeholder of the back link, once per note."""
    if tokens[index].meta.get("subId"):
        return ""
    return f' <span class="note__back">{get_note_number(tokens[index])}</span>'
