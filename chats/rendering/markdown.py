"""Renders messages as safe HTML: Markdown with code and formulas, then the sanitizer.

Messages are parsed only here; pages show the stored result (`chats.rendering.store`). The worst
input of 32,000 characters takes well under 1.5 s.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from chats.rendering import emphasis, links, maths, notes, references, tasks
from chats.rendering.code import render_code_figure
from chats.rendering.sanitize import sanitize_html

# Part of the stored digest. Increase it with each change of the output.
RENDERER_VERSION = "6"
PLAIN_ABOVE = 64_000
MAX_NESTING = 20
MAX_COLUMNS = 100
BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)

CONTAINERS = frozenset({"blockquote_open", "list_item_open"})
DIRECTED = frozenset(
    {
        "paragraph_open",
        "heading_open",
        "blockquote_open",
        "bullet_list_open",
        "ordered_list_open",
    }
)


def render_markdown(text: str) -> str:
    """Return a message text as sanitised HTML.

    Text of more than 64,000 characters, or nested more than 20 levels deep, is returned as escaped
    plain text with a notice. Nothing is dropped. `localized.localise_html` fills in the words of
    the product.
    """
    # A lone surrogate cannot be encoded, neither for the sanitizer nor for the response.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) > PLAIN_ABOVE:
        return render_plain_text(text, characters=len(text))
    tokens = PARSER.parse(text)
    if any(token.type in CONTAINERS and token.level >= MAX_NESTING - 1 for token in tokens):
        return render_plain_text(text)
    return sanitize_html(PARSER.renderer.render(tokens, PARSER.options, {}))


def render_plain_text(text: str, *, characters: int | None = None) -> str:
    """Return the unformatted text below the placeholder of a notice, which gives the reason.

    `characters`: the length of a text that is too long; None: the text is nested too deeply.
    """
    note = f'<p class="plain__note">{characters or ""}</p>'
    return sanitize_html(f'{note}<div class="plain" dir="auto">{escape(text)}</div>')


def build_markdown_parser() -> MarkdownIt:
    """Return a CommonMark parser with tables, strikethrough, task lists, footnotes and formulas.

    A line feed in the text becomes a line break.
    """
    options = {"html": False, "linkify": False, "breaks": True, "maxNesting": MAX_NESTING}
    md = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    md.disable(["html_block", "html_inline"])
    md.block.ruler.at("table", narrow_table, {"alt": ["paragraph", "reference"]})
    # Runs before escaped characters are joined with the surrounding text.
    md.core.ruler.after("inline", "cell_breaks", break_cells)
    md.core.ruler.push("blocks", set_block_attributes)
    for name in ("fence", "code_block"):
        md.add_render_rule(name, render_code)
    md.add_render_rule("table_open", render_table_open)
    md.add_render_rule("table_close", render_table_close)
    emphasis.install_emphasis_rules(md)
    links.install_link_rules(md)
    references.install_reference_rules(md)
    tasks.install_task_list_rules(md)
    notes.install_footnote_rules(md)
    maths.install_formula_rules(md)
    return md


def narrow_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Apply the table rule to tables of at most 100 columns. Wider ones remain text."""
    if start + 1 < end:
        line = state.src[state.bMarks[start + 1] : state.eMarks[start + 1]]
        if line.count("|") > MAX_COLUMNS + 1:
            return False
    return table(state, start, end, silent)


def break_cells(state: StateCore) -> None:
    """Turn `<br>` in table cells into line breaks, because cells cannot contain line feeds."""
    for before, token in pairwise(state.tokens):
        if before.type not in {"td_open", "th_open"} or not token.children:
            continue
        token.children = [
            made
            for child in token.children
            for made in (split_at_breaks(child) if child.type == "text" else [child])
        ]


def split_at_breaks(token: Token) -> list[Token]:
    """Return a text token split at each `<br>`, with line breaks in between."""
    first, *rest = BREAK.split(token.content)
    made = [token.copy(content=first)]
    for piece in rest:
        made += [Token("hardbreak", "br", 0), token.copy(content=piece)]
    return made


def set_block_attributes(state: StateCore) -> None:
    """Set the direction of blocks, lower headings by two levels, align and scope cells."""
    for token in state.tokens:
        # Only outermost blocks: an inner `dir` is ignored when the outer one is determined.
        if token.level == 0 and token.type in DIRECTED:
            token.attrSet("dir", "auto")
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
        if token.type in {"th_open", "td_open"}:
            align = str(token.attrs.pop("style", ""))
            if "right" in align:
                token.attrSet("class", "n")
        if token.type == "th_open":
            token.attrSet("scope", "col")


def render_code(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Render a fenced or indented code block as a figure."""
    token = tokens[index]
    language = (token.info.split() or [""])[0]
    return render_code_figure(token.content, language)


def render_table_open(
    _renderer: RendererHTML,
    _tokens: Sequence[Token],
    _index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Open a table in a scrollable box, so that the page does not scroll sideways."""
    return (
        '<div class="table-wrap" tabindex="0" role="group" aria-label="Table" dir="auto">'
        '<table class="table">\n'
    )


def render_table_close(
    _renderer: RendererHTML,
    _tokens: Sequence[Token],
    _index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    return "</table></div>\n"


PARSER = build_markdown_parser()
