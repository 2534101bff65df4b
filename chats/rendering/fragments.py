"""Renders the events of a streamed reply: closed blocks once, the open rest as text.

Each connection begins with a `snapshot` that replaces everything; then text grows by `delta`.
When blocks close, `block` appends them rendered and `rest` replaces the rest that stays open.
"""

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from chats.rendering.blocks import closed_blocks
from chats.rendering.markdown import render_markdown

Fragment = tuple[str, str]


def live_html(text: str) -> SafeString:
    """Return the containers with the whole text so far, for a page that is drawn during a reply."""
    [(_, html)] = snapshot_fragments(text)
    return mark_safe(html)  # noqa: S308 - rendered Markdown and escaped text, nothing else


def snapshot_fragments(text: str) -> list[Fragment]:
    """Make one `snapshot` event: the containers with the whole text so far."""
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
    """Return the events that lead from one text to a longer one; a snapshot for another text."""
    if not new_text.startswith(previous_text):
        return snapshot_fragments(new_text)
    added = new_text[len(previous_text) :]
    if not added:
        return []
    # Blocks close where a line ends or begins.
    if "\n" in previous_text[-1:] + added:
        before, after = closed_blocks(previous_text), closed_blocks(new_text)
        if after > before:
            return [("block", block(new_text[before:after])), ("rest", rest(new_text[after:]))]
    return [("delta", escape(added))]


def block(text: str) -> str:
    """Render closed blocks; htmx looks at nothing in them."""
    return f'<div class="block" hx-disable>{render_markdown(text)}</div>'


def rest(text: str) -> str:
    """Return the open rest as text, ready to grow.

    All of it is new each time: what stays while a block comes in above would be seen to jump.
    """
    return f'<div><span sse-swap="delta" hx-swap="beforeend">{escape(text)}</span></div>'
