"""Emphasis next to letters and punctuation of scripts without spaces.

In CommonMark, `**` can close after punctuation only before a space or more punctuation.
Chinese, Japanese and Korean text has neither there, so `**「大事」**です` would
show its asterisks. Next to wide characters, marks may open and close; elsewhere
CommonMark's rule applies.
"""

import unicodedata

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline.state_inline import Scanned, StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType


def install_emphasis_rules(md: MarkdownIt) -> None:
    """Install these rules in a parser. Other rules are unchanged."""
    inline = WideInline()
    inline.ruler, inline.ruler2 = md.inline.ruler, md.inline.ruler2
    md.inline = inline


class WideInline(ParserInline):
    """An inline parser whose emphasis supports wide characters."""

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        """Return the tokens of a paragraph, with emphasis next to wide characters."""
        state = WideState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class WideState(StateInline):
    """The state of a paragraph being parsed."""

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: FBT001, N802, N803 - markdown-it's names
        """Return whether a delimiter run can open or close emphasis, and its length."""
        marker, end = self.src[start], start
        while end < self.posMax and self.src[end] == marker:
            end += 1
        before = self.src[start - 1] if start > 0 else " "
        after = self.src[end] if end < self.posMax else " "
        is_left = is_flanking_mark(after, other=before)
        is_right = is_flanking_mark(before, other=after)
        if canSplitWord:
            return Scanned(is_left, is_right, end - start)
        can_open = is_left and (not is_right or is_word_boundary(before, inner=after))
        can_close = is_right and (not is_left or is_word_boundary(after, inner=before))
        return Scanned(can_open, can_close, end - start)


def is_flanking_mark(inner: str, *, other: str) -> bool:
    """Return True if a run of marks attaches to the inner character."""
    if isWhiteSpace(ord(inner)):
        return False
    if not is_punctuation(inner) or is_wide(inner):
        return True
    return isWhiteSpace(ord(other)) or is_punctuation(other) or is_wide(other)


def is_word_boundary(outer: str, *, inner: str) -> bool:
    """Return True if an emphasis mark such as `_` may open or close between two characters."""
    return is_punctuation(outer) or (is_wide(outer) and is_wide(inner) and is_punctuation(inner))


def is_punctuation(char: str) -> bool:
    """Return True if CommonMark treats a character as punctuation."""
    return isMdAsciiPunct(ord(char)) or isPunctChar(char)


def is_wide(char: str) -> bool:
    """Return True for wide characters, such as Chinese and Japanese ones, and Hangul letters."""
    return not char.isascii() and (
        unicodedata.east_asian_width(char) in "WF" or "\u1100" <= char <= "\u11ff"
    )
