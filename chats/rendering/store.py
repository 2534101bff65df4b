"""Stores rendered messages, one row per text and renderer version."""

import hashlib
from collections.abc import Iterable, Mapping

from django.db import DatabaseError, transaction
from django.utils.safestring import SafeString, mark_safe

from chats.models import Branch, Rendering
from chats.rendering import notes
from chats.rendering.localized import localise_html
from chats.rendering.markdown import RENDERER_VERSION, render_markdown
from speed.stacks import run_on_empty_stack


def compute_rendering_digest(text: str) -> str:
    """Return the key of a text's rendering. An erasure deletes its row."""
    return hashlib.sha256(f"{RENDERER_VERSION}\n{text}".encode("utf-8", "replace")).hexdigest()


def render_texts(texts: Iterable[str], *, seen: Branch) -> dict[str, SafeString]:
    """Return safe HTML for each text. Texts rendered for the first time take additional queries.

    `seen` is the branch as read before the texts. New HTML is stored only if the branch has not
    changed since: an erasure changes it, and erased text must not be stored again.
    """
    digests = {text: compute_rendering_digest(text) for text in texts}
    found = dict(
        Rendering.objects.filter(digest__in=set(digests.values())).values_list("digest", "html")
    )
    missing = {digest: text for text, digest in digests.items() if digest not in found}
    if missing:
        made = run_on_empty_stack(
            lambda: {digest: render_markdown(text) for digest, text in missing.items()}
        )
        store_renderings(made, seen=seen)
        found.update(made)
    # The only place where a string becomes safe HTML. All of it was sanitised.
    return {text: mark_safe(found[digest]) for text, digest in digests.items()}  # noqa: S308 - sanitised by chats.rendering.sanitize


def get_message_html(text: str, html: Mapping[str, SafeString], *, key: object) -> SafeString:
    """Return one message's HTML. `key` makes the ids of its footnotes unique."""
    return mark_safe(notes.link_footnotes(localise_html(html[text]), key=f"m{key}"))  # noqa: S308 - sanitised, and numbers and the row's own key


def store_renderings(renderings: dict[str, str], *, seen: Branch) -> None:
    """Store rendered HTML, unless the branch has changed. Database errors are ignored."""
    rows = [Rendering(digest=digest, html=html) for digest, html in renderings.items()]
    unchanged = Branch.objects.filter(pk=seen.pk, context_revision=seen.context_revision)
    try:
        with transaction.atomic():
            # Locked: a running erasure waits, and then deletes these rows too.
            if unchanged.select_for_update(no_key=True).values_list("pk").first():
                Rendering.objects.bulk_create(rows, ignore_conflicts=True)
    except DatabaseError:
        # A full or read-only disk. The page is complete; only the work is repeated.
        return
