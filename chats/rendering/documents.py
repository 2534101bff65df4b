"""Renders the pages of `docs/` as HTML for `/help/`.

They ship with the product and are trusted, unlike messages: headings get ids, and links lead to
other help pages. Raw HTML is shown as text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from chats.rendering.markdown import render_code, render_table_close, render_table_open

_WORD = re.compile(r"[^\w\- ]")
# Returns the address for a link or a picture of a document. Empty: only the text of the link is
# shown, and the picture is left out.
Resolve = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """A heading with the text below it, up to the next heading.

    `level` is 1 for the title. `anchor` is the id of the heading; the title has none. `text` has
    no Markdown and no diagrams.
    """

    level: int
    title: str
    anchor: str
    text: str


def build_document_parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables. Line breaks become spaces."""
    md = MarkdownIt("commonmark", {"html": False, "breaks": False}).enable("table")
    md.disable(["html_block", "html_inline"])
    for name in ("fence", "code_block"):
        md.add_render_rule(name, render_code)
    md.add_render_rule("table_open", render_table_open)
    md.add_render_rule("table_close", render_table_close)
    return md


PARSER = build_document_parser()


def build_heading_anchor(title: str) -> str:
    """Return the id of a heading, formed as on GitHub: "Lost keys?" becomes "lost-keys"."""
    return _WORD.sub("", title.casefold()).strip().replace(" ", "-")


def parse_document_sections(text: str) -> list[DocumentSection]:
    """Return the sections of a document in their order; the first has the title."""
    sections: list[DocumentSection] = []
    tokens = PARSER.parse(text)
    starts: list[tuple[int, int, str]] = [
        (int(token.tag[1]), token.map[0], extract_plain_text(tokens[place + 1]))
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.map and token.level == 0
    ]
    ends = [line for _, line, _ in starts[1:]] + [text.count("\n") + 1]
    for (level, line, title), end in zip(starts, ends, strict=True):
        anchor = build_heading_anchor(title) if level > 1 else ""
        sections.append(DocumentSection(level, title, anchor, join_texts(tokens, line + 1, end)))
    return sections


def join_texts(tokens: Sequence[Token], start: int, end: int) -> str:
    """Return the text of a range of lines: paragraphs, lists, cells and code, without diagrams."""
    texts: list[str] = []
    for token in tokens:
        if token.map is None or not start <= token.map[0] < end:
            continue
        if token.type == "inline":
            texts.append(extract_plain_text(token))
        elif token.type in ("fence", "code_block") and token.info.strip() != "mermaid":
            texts.append(token.content)
    return "\n".join(texts).strip()


def extract_plain_text(token: Token) -> str:
    """Return the text of an inline token without Markdown markup."""
    children = token.children or []
    return "".join(child.content or " " * (child.type == "softbreak") for child in children)


def leave_out_picture(_path: str) -> str:
    """Return an empty path, so that the picture is left out."""
    return ""


def render_document(
    text: str,
    *,
    resolve: Resolve,
    resolve_picture: Resolve = leave_out_picture,
    anchors: Mapping[str, str] | None = None,
) -> SafeString:
    """Return a document as HTML for templates, without its title.

    `anchors` maps the generated anchor of a heading to the anchor that is used instead.
    """
    ids = anchors or {}
    tokens = PARSER.parse(text)
    kept: list[Token] = []
    is_title = False
    for place, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h1":
            is_title = True
        elif token.type == "heading_close" and token.tag == "h1":
            is_title = False
        elif not is_title:
            if token.type == "heading_open":
                anchor = build_heading_anchor(extract_plain_text(tokens[place + 1]))
                token.attrSet("id", ids.get(anchor, anchor))
            if token.type == "th_open":
                token.attrSet("scope", "col")
            if token.children:
                token.children = resolve_links(token.children, resolve, resolve_picture)
            kept.append(token)
    # The documents ship with the product, and the parser shows raw HTML as text.
    return mark_safe(str(PARSER.renderer.render(kept, PARSER.options, {})))  # noqa: S308 - see above


def resolve_links(
    children: Sequence[Token], resolve: Resolve, resolve_picture: Resolve
) -> list[Token]:
    """Return inline tokens with each link and picture resolved.

    A link without a URL becomes text. A picture without a URL is left out.
    """
    made: list[Token] = []
    is_dropped = False
    for child in children:
        if child.type == "link_open":
            address = resolve(str(child.attrs.get("href", "")))
            is_dropped = not address
            if address:
                child.attrSet("href", address)
        if child.type == "image":
            address = resolve_picture(str(child.attrs.get("src", "")))
            child.attrSet("src", address)
            if not address:
                continue
        if is_dropped and child.type in ("link_open", "link_close"):
            continue
        made.append(child)
    return made


def extract_match_excerpt(text: str, question: str, *, around: int = 90) -> list[tuple[str, bool]]:
    """Return the part of the text around the first match, as pieces (text, is_match).

    Without a match, return the beginning of the text.
    """
    flat = " ".join(text.split())
    at = flat.casefold().find(question.casefold())
    if at < 0:
        return [(flat[: 2 * around] + ("…" if len(flat) > 2 * around else ""), False)]
    start, end = max(at - around, 0), at + len(question)
    stop = min(end + around, len(flat))
    before = ("…" if start else "") + flat[start:at]
    after = flat[end:stop] + ("…" if stop < len(flat) else "")
    return [(before, False), (flat[at:end], True), (after, False)]
