"""Keeps the text of link definitions, `[name]: https://…`, that no link uses.

CommonMark removes every definition, so a list of sources at the end of a reply would vanish.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from chats.rendering.links import build_text_token

DEFINITION = "definition"


class WatchedDefinitions(dict[str, Any]):
    """Definitions by label. `used` contains the labels that links have looked up."""

    def __init__(self, known: dict[str, Any]) -> None:
        super().__init__(known)
        self.used: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a definition, and remember that a link uses it."""
        if key in self:
            self.used.add(key)
        return super().get(key, default)


def install_reference_rules(md: MarkdownIt) -> None:
    md.block.ruler.at("reference", parse_definition)
    md.core.ruler.before("inline", "definition_lookups", watch_lookups)
    md.core.ruler.after("inline", "unused_definitions", keep_unused_definitions)


def parse_definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Apply the rule of markdown-it, and add a token with the text of the definition.

    The token has the label, or none if an earlier definition has the same label.
    """
    before = len(state.env.get("references", ()))
    if not reference(state, start, end, silent):
        return False
    if not silent:
        known = state.env["references"]
        token = state.push(DEFINITION, "", 0)
        token.map = [start, state.line]
        token.content = state.getLines(start, state.line, state.blkIndent, False).strip()  # noqa: FBT003 - markdown-it's signature
        token.info = next(reversed(known)) if len(known) > before else ""
    return True


def watch_lookups(state: StateCore) -> None:
    """Record which definitions the links use."""
    if "references" in state.env:
        state.env["references"] = WatchedDefinitions(state.env["references"])


def keep_unused_definitions(state: StateCore) -> None:
    """Replace definitions without a link by paragraphs, and remove the others."""
    if "references" in state.env:
        used = state.env["references"].used
        state.tokens = list(write_definitions(state.tokens, used))


def write_definitions(tokens: Sequence[Token], used: set[str]) -> Iterator[Token]:
    """Yield the tokens, with adjacent unused definitions as the lines of one paragraph."""
    lines: list[str] = []
    level = 0
    for token in tokens:
        if token.type == DEFINITION:
            if token.info not in used:
                lines += token.content.split("\n")
                level = token.level
            continue
        if lines:
            yield from build_paragraph(lines, level=level)
            lines = []
        yield token
    if lines:
        yield from build_paragraph(lines, level=level)


def build_paragraph(lines: Sequence[str], *, level: int) -> list[Token]:
    """Return the tokens of a paragraph with these lines."""
    children: list[Token] = []
    for line in lines:
        if children:
            children.append(Token("softbreak", "br", 0))
        children.append(build_text_token(line.strip()))
    words = "\n".join(lines)
    return [
        Token("paragraph_open", "p", 1, level=level, block=True),
        Token("inline", "", 0, level=level + 1, block=True, content=words, children=children),
        Token("paragraph_close", "p", -1, level=level, block=True),
    ]
