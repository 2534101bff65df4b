"""Renders the events of a streamed reply: closed blocks as HTML, the open rest as text.

Each connection starts with a `snapshot` that replaces everything; `delta` then appends text. When
blocks close, `render_closed_blocks` appends them as HTML and `render_open_rest` replaces the open
rest.
"""

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from chats.rendering.blocks import find_closed_offset
from chats.rendering.localized import localise_html
from chats.rendering.markdown import render_markdown

Fragment = tuple[str, str]
# The containers of closed blocks and of the open rest.
OPEN_DONE = '<div class="prose" sse-swap="block" hx-swap="beforeend">'
OPEN_REST = '<div class="live__open" sse-swap="rest" dir="auto">'


def render_live_html(text: str) -> SafeString:
    """Return the containers with the text so far, for a page loaded during a reply."""
    [(_, html)] = build_snapshot_fragments(text)
    return mark_safe(html)  # noqa: S308 - rendered Markdown and escaped text, nothing else


def build_snapshot_fragments(text: str) -> list[Fragment]:
    """Return one `snapshot` event: the containers with the text so far."""
    closed = find_closed_offset(text)
    done = render_closed_blocks(text[:closed]) if closed else ""
    return [
        (
            "snapshot",
            f"{OPEN_DONE}{done}</div>{OPEN_REST}{render_open_rest(text[closed:])}</div>",
        )
    ]


def build_delta_fragments(previous_text: str, new_text: str) -> list[Fragment]:
    """Return the events that turn one text into a longer one.

    Returns a snapshot if the new text does not continue the old one.
    """
    if not new_text.startswith(previous_text):
        return build_snapshot_fragments(new_text)
    added = new_text[len(previous_text) :]
    if not added:
        return []
    # Blocks close only at line ends.
    if "\n" in previous_text[-1:] + added:
        before, after = find_closed_offset(previous_text), find_closed_offset(new_text)
        if after > before:
            return [
                ("block", render_closed_blocks(new_text[before:after])),
                ("rest", render_open_rest(new_text[after:])),
            ]
    return [("delta", escape(added))]


def render_closed_blocks(text: str) -> str:
    """Return the HTML of Markdown blocks that no later text can change, with htmx disabled."""
    return f'<div class="block" hx-disable>{localise_html(render_markdown(text))}</div>'


def render_open_rest(text: str) -> str:
    """Return the open rest as text, in an element to which text can be appended.

    The element is always new, because an existing one would visibly jump when a block is inserted
    above it.
    """
    return f'<div><span sse-swap="delta" hx-swap="beforeend">{escape(text)}</span></div>'
