"""Renders links in untrusted Markdown: web and mail addresses only, with the host.

A reply could disguise a link's target, or leak a chat through an image URL that is fetched without
a click. Therefore the host is shown next to each link, and images become links.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from chats.rendering.url_ends import find_emphasis, find_link_text

ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})
HOST = re.compile(r"[^/?#]*")
# Escaped characters and entities in a URL. The text must be parsed before it is a URL.
ENCODED = re.compile(r"&#?\w+;")
SCHEME = re.compile(r"https?$", re.IGNORECASE)
BARE_URL = re.compile(r"https?://[^\s<>\"'`|\\]{3,2000}", re.IGNORECASE)


def install_link_rules(md: MarkdownIt) -> None:
    # markdown-it declares these methods, which it documents as replaceable.
    md.validateLink = is_allowed  # type: ignore[method-assign]
    md.inline.ruler.before("escape", "bare_url", parse_bare_url)
    md.core.ruler.push("bare_urls", link_bare_urls)
    md.core.ruler.push("hosts", show_hosts)
    md.add_render_rule("image", render_image)
    md.add_render_rule("link_host", render_host)


def is_allowed(url: str) -> bool:
    """Return True for absolute web addresses and mail addresses."""
    return bool(get_link_target(url))


def get_link_target(url: str) -> str:
    """Return a link's target: the host, or the mail address. Empty if it is not allowed."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme == "mailto":
        return parts.path
    return host if parts.scheme in ALLOWED_SCHEMES else ""


def parse_bare_url(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Turn a web URL into a link, before formulas and emphasis could split it.

    A search for the end of a link text is silent, and a URL must not hide that end.
    """
    if silent or state.linkLevel or not state.src.startswith("://", state.pos):
        return False
    scheme = SCHEME.search(state.pending[-5:])
    start = state.pos - len(scheme[0]) if scheme else 0
    match = BARE_URL.match(state.src, start, state.posMax) if scheme else None
    if match is None:
        return False
    end = find_emphasis(state, start, find_link_text(state, start, match.end()))
    text = match_address(state.src[start:end])
    if ENCODED.search(text) or state.src.startswith("\\", start + len(text)):
        return False
    address = strip_trailing_marks(text)
    href = state.md.normalizeLink(address)
    if len(address) <= state.pos - start + 3 or not is_allowed(href):
        return False
    state.pending = state.pending[: start - state.pos]
    state.push("link_open", "a", 1).attrSet("href", href)
    state.push("text", "", 0).content = address
    state.push("link_close", "a", -1)
    state.pos = start + len(address)
    return True


def link_bare_urls(state: StateCore) -> None:
    """Turn the web URLs that are left in plain text into links, such as those with escapes."""
    for block in state.tokens:
        if block.type == "inline" and block.children and "://" in block.content:
            block.children = list(linkify_tokens(state.md, block.children))


def linkify_tokens(md: MarkdownIt, tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens, with text outside of links split around URLs."""
    depth = 0
    for token in tokens:
        depth += token.nesting if token.type in {"link_open", "link_close"} else 0
        if token.type == "text" and depth == 0:
            yield from split_text(md, token.content)
        else:
            yield token


def split_text(md: MarkdownIt, text: str) -> Iterator[Token]:
    end = 0
    for match in BARE_URL.finditer(text):
        address = strip_trailing_marks(match_address(match.group()))
        href = md.normalizeLink(address)
        if not is_allowed(href):
            continue
        if match.start() > end:
            yield build_text_token(text[end : match.start()])
        yield Token("link_open", "a", 1, attrs={"href": href})
        yield build_text_token(address)
        yield Token("link_close", "a", -1)
        end = match.start() + len(address)
    if end < len(text):
        yield build_text_token(text[end:])


def match_address(text: str) -> str:
    """Return the web URL at the start of the text.

    It ends before wide punctuation and quotation marks other than ASCII. The host also ends before
    letters of another script, because Chinese and Japanese text has no space after a URL. A user
    name and a password before the host are part of the URL.
    """
    end = next((at for at, char in enumerate(text) if is_end(char)), len(text))
    start = text.index("://") + 3
    host = HOST.match(text, start, end)
    host_end = host.end() if host else start
    at_sign = text.rfind("@", start, host_end)
    if at_sign > 0 and text[start:at_sign].isascii():
        start = at_sign + 1
    before = ""
    for at in range(start, host_end):
        char = text[at]
        if char in ".:@":
            before = "digits" if char == ":" else ""
        elif char.isalpha():
            script = get_letter_script(char)
            if before and script != before:
                return text[:at]
            before = script
    return text[:end]


def is_end(char: str) -> bool:
    """Return True if a character cannot be part of a URL."""
    if char.isascii():
        return False
    category = unicodedata.category(char)
    is_wide = unicodedata.east_asian_width(char) in "WF"
    return category in ("Pi", "Pf") or (is_wide and category[0] in "PSZ" and not is_emoji(char))


def is_emoji(char: str) -> bool:
    """Return True for an emoji, which a path may contain."""
    return unicodedata.category(char) == "So" and char >= "\U0001f000"


def get_letter_script(char: str) -> str:
    """Return the script of a letter. Han and kana count as one, because words mix them."""
    script = unicodedata.name(char, "?").partition(" ")[0]
    return "CJK" if script in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO") else script


def strip_trailing_marks(address: str) -> str:
    """Return the URL without trailing punctuation that belongs to the sentence."""
    while address and (
        address[-1] in ".,;:!?*_~"
        or (not address[-1].isascii() and unicodedata.category(address[-1])[0] == "P")
        or (address[-1] == ")" and address.count(")") > address.count("("))
        or (address[-1] == "]" and address.count("]") > address.count("["))
    ):
        address = address[:-1]
    return address


def build_text_token(content: str) -> Token:
    return Token("text", "", 0, content=content)


def show_hosts(state: StateCore) -> None:
    """Insert the host after each link whose text does not start with it."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(add_link_hosts(block.children))


def add_link_hosts(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens, with a `link_host` token after each link that hides its target."""
    words, target = "", ""
    is_inside = False
    for token in tokens:
        if token.type in {"link_open", "link_close"}:
            is_inside = token.type == "link_open"
        elif token.type == "image":
            token.meta["is_in_link"] = is_inside
        yield token
        if token.type == "link_open":
            words, target = "", get_link_target(str(token.attrGet("href") or ""))
        elif token.type == "link_close":
            if target and not is_target_text(words, target):
                yield Token("link_host", "", 0, content=target)
            target = ""
        elif target:
            words += token.content


def is_target_text(words: str, target: str) -> bool:
    """Return True if a link's text is the address itself, up to the end of its host."""
    plain = re.sub(r"^(https?://|mailto:)", "", words.strip().lower())
    return plain.startswith(target.lower()) and plain[len(target) :][:1] in {"", "/", ":", "?", "#"}


def render_host(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: EnvType,
) -> str:
    """Render the host in brackets, isolated from the surrounding text direction."""
    return f' <span class="link__host">(<bdi>{escape(tokens[index].content)}</bdi>)</span>'


def render_image(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    env: EnvType,
) -> str:
    """Render an image as a link with its host. Nothing is fetched before a click.

    Within another link, it is text: a link cannot contain a link.
    """
    token = tokens[index]
    words = escape(renderer.renderInlineAsText(token.children or [], options, env))
    source = str(token.attrGet("src") or "")
    host = get_link_target(source)
    if not host or token.meta.get("is_in_link"):
        return f'<span class="image__text">{words}</span>'
    label = f'<span class="image__host"><bdi>{escape(host)}</bdi></span>'
    return f'<a href="{escape(source)}">{label}{": " if words else ""}{words}</a>'
