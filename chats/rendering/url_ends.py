"""Finds where a bare URL in Markdown ends: before a footnote or a link that directly follows it."""

import re

from markdown_it.common.utils import normalizeReference
from markdown_it.rules_inline import StateInline

# An address as a host, such as http://[::1]:8080/.
IPV6 = re.compile(r"https?://(?:[^/?#\[@]*@)?\[[0-9a-f:.%]+\]", re.IGNORECASE)
# Text in brackets, which may contain brackets, and a second label.
LABEL = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*+\]){0,300}+)\](\(|\[([^\[\]]{0,300}+)\])?")


def find_link_text(state: StateInline, start: int, end: int) -> int:
    """Return the position of the first bracket that is not part of the URL, or the end.

    `start`, `end`: the text that may be a URL. A URL has brackets only around its host and in its
    query, as in "?filter[name]=x". Other brackets are a footnote, a link or a citation.
    """
    host = IPV6.match(state.src, start, end)
    query = state.src.find("?", start, end)
    at = state.src.find("[", host.end() if host else start, end)
    while at >= 0 and 0 <= query < at and not is_link_text(state, at):
        at = state.src.find("[", at + 1, end)
    return at if at >= 0 else end


def is_link_text(state: StateInline, at: int) -> bool:
    """Return True if a bracket starts a footnote, or the text of a link or an image."""
    if state.src.startswith("[^", at):
        return True
    found = LABEL.match(state.src, at, state.posMax)
    if found is None:
        return False
    known = state.env.get("references", {})
    # Other labels after each other are a query, such as "?page[a][b]=1".
    return found[2] == "(" or any(
        label and normalizeReference(label) in known for label in (found[1], found[3])
    )
