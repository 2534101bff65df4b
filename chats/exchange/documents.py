"""Exports a chat for reading: as Markdown, as a standalone HTML page, or as JSON.

The page loads nothing: it has no scripts and no external resources, and embeds its images.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import IO, Any

from django.utils import translation
from django.utils.html import escape

from chats.compaction.coverage import get_active_summary
from chats.exchange import pictures
from chats.exchange.writing import Writer, get_export_branch
from chats.models import Chat, Message, MessageImage
from chats.record import history
from chats.record.images import format_data_url, iter_image_hashes
from chats.rendering.localized import localise_html
from chats.rendering.markdown import render_markdown
from contextpolicy.engine.messages.images import NAMED_LINE
from contextpolicy.engine.messages.messages import (
    FilePart,
    format_file_text,
    parse_result_image,
)

KINDS = {
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json",
}
FORMS = tuple(KINDS)
ENDINGS = {"bundle": "zip", "markdown": "md", "html": "html", "json": "json", "ui": "jsonl"}
STYLE = (
    "body{max-width:46rem;margin:2rem auto;padding:0 1rem;font:16px/1.6 system-ui,sans-serif;"
    "color:#1c2024;background:#fff}h1{font-size:1.5rem}article{margin:1.5rem 0;padding-top:.75rem;"
    "border-top:1px solid #d0d4d8}h2{font-size:.9rem;margin:0 0 .5rem;color:#5a6169}"
    "pre{overflow:auto;padding:.75rem;background:#f3f4f6}table{border-collapse:collapse}"
    "img{max-width:100%}"
    "td,th{border:1px solid #d0d4d8;padding:.25rem .5rem}summary{cursor:pointer;color:#5a6169}"
    "@media(prefers-color-scheme:dark){body{color:#e6e8ea;background:#16181a}"
    "pre{background:#202428}article,td,th{border-color:#3a4046}h2,summary{color:#9aa2aa}}"
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
PAGE = 500


def build_export_filename(chat: Chat, *, form: str, taken: Collection[str] = ()) -> str:
    """Return a file name that is valid on all operating systems and not in `taken`."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", chat.title).strip("-").lower()[:60]
    names = (f"{words or 'chat'}-{own}.{ENDINGS[form]}" for own in (str(chat.pk)[:8], chat.pk))
    return next(name for name in names if name not in taken)


def write_document(chat: Chat, *, form: str, into: IO[bytes], beside: str = "") -> None:
    """Write a chat in one of `FORMS`. `beside`: relative path of the image folder, if any."""
    if form == "json":
        into.write(encode_chat_document(chat))
        return
    for text in (
        render_chat_markdown(chat, beside=beside) if form == "markdown" else render_chat_html(chat)
    ):
        into.write(text.encode())


def iterate_active_messages(chat: Chat) -> Iterator[Message]:
    branch = get_export_branch(chat)
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")
    yield from rows.iterator(chunk_size=PAGE)


def get_chat_heading(chat: Chat) -> str:
    """Return the title of a chat for a document, or “Untitled chat” without one."""
    return chat.title or "Untitled chat"


def format_message_heading(row: Message) -> str:
    """Return the author and time of a message; only the author if it is undated."""
    return row.said_by if row.undated else f"{row.said_by} · {row.created_at:%Y-%m-%d %H:%M} UTC"


def describe_tool_parts(row: Message) -> Iterator[tuple[str, str]]:
    """Yield a label and the content of reasoning, tool calls, tool results and files."""
    for part in row.parts:
        if part["type"] == "reasoning":
            yield "Thoughts", part["text"]
        elif part["type"] == "tool_call":
            yield f"Tool call: {part['name']}", part["arguments"]
        elif part["type"] == "tool_result":
            yield f"Tool result: {part['name']}", part["content"]
        elif part["type"] == "file":
            file = FilePart(part["media_type"], part["name"], part["reference"])
            words = format_file_text(file).strip("[]")
            # Newer images have their name in these words.
            is_older = file.image is not None and file.image.line < NAMED_LINE
            is_named = is_older and file.name and not parse_result_image(file)[0]
            yield "File", f"{file.name} ({words})" if is_named else words


def iterate_message_images(row: Message) -> Iterator[MessageImage]:
    """Yield the images of a message that are stored here, in order."""
    for sha256 in dict.fromkeys(iter_image_hashes(row)):
        yield from MessageImage.objects.filter(message=row, sha256=sha256)


def fence_text(text: str) -> str:
    """Return text as a fenced code block, whatever fences it contains."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}\n"


def render_chat_markdown(chat: Chat, *, beside: str) -> Iterator[str]:
    """Yield a chat as Markdown, with images if the image folder is given."""
    yield f"# {' '.join(get_chat_heading(chat).split())}\n"
    for row in iterate_active_messages(chat):
        yield f"\n## {format_message_heading(row)}\n\n"
        if row.erased_at:
            yield "*The words of this message were erased.*\n"
        elif row.text:
            yield f"{row.text}\n"
        for image in iterate_message_images(row) if beside else ():
            yield f"\n![Image]({beside}{pictures.build_image_filename(image)})\n"
        for name, words in describe_tool_parts(row):
            yield f"\n{name}:\n\n{fence_text(words)}"


def render_chat_html(chat: Chat) -> Iterator[str]:
    """Yield a chat as an HTML page, with messages rendered as in the product."""
    title = escape(get_chat_heading(chat))
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1>\n"
    )
    for row in iterate_active_messages(chat):
        yield f"<article><h2>{escape(format_message_heading(row))}</h2>"
        yield "<p>The words of this message were erased.</p>" if row.erased_at else ""
        with translation.override("en"):
            html = localise_html(render_markdown(row.text)) if row.text else ""
        yield html
        for image in iterate_message_images(row):
            address = format_data_url(image.media_type, bytes(image.data))
            yield f'<p><img alt="Image" src="{address}"></p>'
        for name, words in describe_tool_parts(row):
            yield (
                f"<details><summary>{escape(name)}</summary><pre>{escape(words)}</pre></details>"
            )
        yield "</article>\n"
    yield "</main></body></html>\n"


def encode_chat_document(chat: Chat) -> bytes:
    """Return a chat as one JSON document with its metadata and UI messages."""
    writer = Writer(chat, scope="all")
    active = get_active_summary(writer.branch.active_compaction)
    listed = [json.loads(line) for part in writer.lines() for line in part.splitlines()]
    document: dict[str, Any] = {
        "id": str(chat.pk),
        "title": chat.title,
        "system_text": chat.system_text,
        "created_at": chat.created_at.isoformat(),
        "updated_at": chat.updated_at.isoformat(),
        "summary": active.text if active else None,
        "messages": listed,
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"
