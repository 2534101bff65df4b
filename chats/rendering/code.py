"""Renders fenced code as a figure with its language, a copy button and colours by class."""

import re
from collections.abc import Iterator

from django.utils.html import escape
from pygments import lex  # type: ignore[import-untyped]  # ships no types
from pygments.lexer import Lexer  # type: ignore[import-untyped]  # ships no types
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # ships no types
from pygments.token import (  # type: ignore[import-untyped]  # ships no types
    Comment,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    _TokenType,
)
from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # ships no types

# Lexers use regular expressions, and most are quadratic in the length of a line or gap. Code beyond
# these limits is not coloured, so that no block takes more than a fraction of a second.
HIGHLIGHT_LIMIT = 12_000
UNSUITED = re.compile(r"[^\n]{501}|\s{201}")

# Only languages whose lexers were timed with hostile input. Others are shown without colours.
LANGUAGE_NAMES = """
    bash c console cpp css diff docker dockerfile go graphql html http ini javascript
    js json jsx kotlin lua nginx php powershell properties py python python3 r rb ruby rs
    rust scala sh shell sql swift toml ts tsx typescript xml yaml yml zsh
"""
LANGUAGES = frozenset(LANGUAGE_NAMES.split())

# The design has five colours and two backgrounds. Each token kind maps to one of them.
CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Tag, "k"),
    (Name.Attribute, "f"),
    (Generic.Inserted, "gi"),
    (Generic.Deleted, "gd"),
)


def render_code_figure(code: str, language: str) -> str:
    """Return the HTML figure of one code block. `language`: as in the fence, in any case."""
    name = language.lower()
    body = highlight_code(code, name) if is_suited(code, name) else escape(code)
    return (
        '<figure class="code"><figcaption class="code__head">'
        f"<span>{escape(language[:30]) or 'text'}</span>"
        '<button type="button" class="btn btn--quiet btn--s end code__copy">Copy</button>'
        '</figcaption><pre class="code__body" tabindex="0" aria-label="Code">'
        f"<code>{body}</code></pre></figure>\n"
    )


def is_suited(code: str, language: str) -> bool:
    """Return True if the code can be highlighted.

    Its language must be known, and the code within the limits.
    """
    return language in LANGUAGES and len(code) <= HIGHLIGHT_LIMIT and UNSUITED.search(code) is None


def highlight_code(code: str, language: str) -> str:
    """Return the escaped code with class spans. The text itself is unchanged."""
    lexer = find_lexer(language)
    if lexer is None:
        return str(escape(code))
    return "".join(
        f'<span class="{name}">{escape(text)}</span>' if name else escape(text)
        for name, text in merge_adjacent_tokens(code, lexer)
    )


def find_lexer(language: str) -> Lexer | None:
    """Return the lexer of a language, set to preserve leading and final line breaks.

    None if unknown.
    """
    try:
        lexer: Lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer


def merge_adjacent_tokens(code: str, lexer: Lexer) -> Iterator[tuple[str, str]]:
    """Yield (class, text) for the code's tokens; adjacent tokens of one class are joined.

    The class may be "".
    """
    current, text = "", ""
    for kind, value in lex(code, lexer):
        name = next((name for group, name in CLASSES if kind in group), "")
        if name != current and text:
            yield current, text
            text = ""
        current = name
        text += value
    if text:
        yield current, text
