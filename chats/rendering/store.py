"""Stores rendered messages, each made once per text and renderer version."""

import hashlib
from collections.abc import Iterable, Mapping

from django.db import DatabaseError, transaction
from django.utils.safestring import SafeString, mark_safe

from chats.models import Branch, Rendering
from chats.rendering import notes
from chats.rendering.markdown import RENDERER_VERSION, render_markdown
from speed.stacks import on_empty_stack


def digest_of(text: str) -> str:
    """Return the key of a text's rendering; an erasure deletes the row that has it."""
    return hashlib.sha256(f"{RENDERER_VERSION}\n{text}".encode("utf-8", "replace")).hexdigest()


def html_for_many(texts: Iterable[str], *, seen: Branch) -> dict[str, SafeString]:
    """Return safe HTML for each text: one query, and more when some were never rendered.

    `seen` is the branch as it was read before the texts were. HTML that is new is stored only
    while the branch has not changed since: an erasure in between changes it, and what it erased
    must not be stored again.
    """
    digests = {text: digest_of(text) for text in texts}
    found = dict(
        Rendering.objects.filter(digest__in=set(digests.values())).values_list("digest", "html")
    )
    missing = {digest: text for text, digest in digests.items() if digest not in found}
    if missing:
        made = on_empty_stack(
            lambda: {digest: render_markdown(text) for digest, text in missing.items()}
        )
        keep(made, seen=seen)
        found.update(made)
    # The one place where a string becomes safe HTML: all of it left the sanitizer.
    return {text: mark_safe(found[digest]) for text, digest in digests.items()}  # noqa: S308 - sanitised by chats.rendering.sanitize


def html_of(text: str, html: Mapping[str, SafeString], *, key: object) -> SafeString:
    """Return one message's HTML out of that of many; `key` makes its footnotes its own."""
    return mark_safe(notes.linked(html[text], key=f"m{key}"))  # noqa: S308 - sanitised, and numbers and the row's own key


def keep(renderings: dict[str, str], *, seen: Branch) -> None:
    """Store what was rendered, unless the branch changed; reading goes on without the store."""
    rows = [Rendering(digest=digest, html=html) for digest, html in renderings.items()]
    unchanged = Branch.objects.filter(pk=seen.pk, context_revision=seen.context_revision)
    try:
        with transaction.atomic():
            # Locked: an erasure that is under way waits, and then deletes these rows too.
            if unchanged.select_for_update(no_key=True).values_list("pk").first():
                Rendering.objects.bulk_create(rows, ignore_conflicts=True)
    except DatabaseError:
        # A full or read-only disk: the page is complete all the same, only the work is repeated.
        return
