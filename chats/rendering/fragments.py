"""Renders the events of a streamed reply: closed blocks as HTML, the open rest as text.

Each connection starts with a `snapshot` that replaces everything; `delta` then appends text. When
blocks close, `block` appends them as HTML and `rest` replaces the open rest.
"""

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from chats.rendering.blocks import closed_blocks
from chats.rendering.markdown import render_markdown

Fragment = tuple[str, str]


def live_html(text: str) -> SafeString:
    """Return the containers with the text so far, for a page loaded during a reply."""
    [(_, html)] = snapshot_fragments(text)
    return mark_safe(html)  # noqa: S308 - rendered Markdown and escaped text, nothing else


def snapshot_fragments(text: str) -> list[Fragment]:
    """Return one `snapshot` event: the containers with the text so far."""
    closed = closed_blocks(text)
    done = block(text[:closed]) if closed else ""
    return [
        (
            "snapshot",
            '<div class="prose" sse-swap="block" hx-swap="beforeend">'
            f'{done}</div><div class="live__open" sse-swap="rest" dir="auto">'
            f"{rest(text[closed:])}</div>",
        )
    ]


def delta_fragments(previous_text: str, new_text: str) -> list[Fragment]:
    """Return the events that turn one text into a longer one.

    A snapshot if it is a different text.
    """
    if not new_text.startswith(previous_text):
        return snapshot_fragments(new_text)
    added = new_text[len(previous_text) :]
    if not added:
        return []
    # Blocks close only at line ends.
    if "\n" in previous_text[-1:] + added:
        before, after = closed_blocks(previous_text), closed_blocks(new_text)
        if after > before:
            return [("block", block(new_text[before:after])), ("rest", rest(new_text[after:]))]
    return [("delta", escape(added))]


def block(text: str) -> str:
    """Render closed blocks, with htmx disabled inside."""
    return f'<div class="block" hx-disable>{render_markdown(text)}</div>'


def rest(text: str) -> str:
    """Return the open rest as text, in an element that can grow.

    Always a new element: an existing one would visibly jump when a block is inserted above.
    """
    return f'<div><span sse-swap="delta" hx-swap="beforeend">{escape(text)}</span></div>'
