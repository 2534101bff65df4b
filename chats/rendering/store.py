"""Rendered messages, each made once per text and renderer version."""

import hashlib
from collections.abc import Iterable

from django.db import DatabaseError, transaction
from django.utils.safestring import SafeString, mark_safe

from chats.models import Rendering
from chats.rendering.markdown import RENDERER_VERSION, render_markdown


def digest_of(text: str) -> str:
    """The key of a text's rendering; an erasure deletes the row that has it."""
    return hashlib.sha256(f"{RENDERER_VERSION}\n{text}".encode("utf-8", "replace")).hexdigest()


def html_for(text: str) -> SafeString:
    """The text as safe HTML, from the store or rendered and stored."""
    return html_for_many([text])[text]


def html_for_many(texts: Iterable[str]) -> dict[str, SafeString]:
    """The same for several texts: one query, and one more when some were never rendered."""
    digests = {text: digest_of(text) for text in texts}
    found = dict(
        Rendering.objects.filter(digest__in=set(digests.values())).values_list("digest", "html")
    )
    missing = {
        digest: render_markdown(text) for text, digest in digests.items() if digest not in found
    }
    if missing:
        keep(missing)
    found.update(missing)
    # The one place where a string becomes safe HTML: all of it left the sanitizer.
    return {text: mark_safe(found[digest]) for text, digest in digests.items()}  # noqa: S308 - sanitised by chats.rendering.sanitize


def keep(renderings: dict[str, str]) -> None:
    """Store what was rendered; reading goes on when nothing can be written."""
    rows = [Rendering(digest=digest, html=html) for digest, html in renderings.items()]
    try:
        with transaction.atomic():
            Rendering.objects.bulk_create(rows, ignore_conflicts=True)
    except DatabaseError:
        # A full or read-only disk: the page is complete all the same, only the work is repeated.
        return
