"""Chats in from files and out as files: the page of the account, and that of each chat."""

import uuid

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from chats.actions import ages
from chats.exchange import accepting, documents, files, whole
from chats.ground.refusals import NotFound, Refusal
from chats.record import access
from chats.streams.files import answer
from chats.web.auth import PersonRequest, actor, signed_in

# Imports that the page lists.
SHOWN = 10
# The files of one chat: form, scope, what it is called, and what it is for.
OFFERED = (
    ("markdown", "active", "Markdown", "To read and to edit, in any editor."),
    ("html", "active", "HTML page", "To read: opens in a browser, without a network."),
    ("json", "all", "JSON", "For programs: everything, every branch."),
    (
        "bundle",
        "active",
        "Bundle (ZIP)",
        "To import again, with summary, originals and images.",
    ),
    (
        "ui",
        "active",
        "Messages as sent (JSONL)",
        "The summary in force, and what it does not cover.",
    ),
    ("ui", "full", "All messages (JSONL)", "Every message of the branch that is shown."),
    ("ui", "all", "All branches (JSONL)", "Every message of every branch; can be imported again."),
)
EVERYTHING = (
    ("ui", "To import again (JSONL)"),
    ("markdown", "Markdown"),
    ("html", "HTML pages"),
    ("json", "JSON"),
)


@require_GET
@signed_in
def exchange(request: PersonRequest) -> HttpResponse:
    """Show how chats come in and go out."""
    return exchange_page(request)


def exchange_page(request: PersonRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    """Render the page, with the imports whose reports are kept."""
    rows = accepting.imports_of(request.user).order_by("-created_at", "-pk")
    context = {
        "everything": EVERYTHING,
        "refusal": refusal,
        "imports": rows[:SHOWN],
        "file_bytes": settings.IMPORT_FILE_BYTES,
        "retention_days": ages.days_of_new(request.user, now=timezone.now()),
    }
    return render(request, "exchange.html", context, status=refusal.status if refusal else 200)


@require_GET
@signed_in  # type: ignore[arg-type]  # what it answers is a stream
def exchange_everything(request: PersonRequest) -> HttpResponseBase:
    """Send everything of the person as one archive. Raises `NotFound` for an unknown form."""
    form = request.GET.get("form", "ui")
    if form not in {name for name, _ in EVERYTHING}:
        raise NotFound
    file = whole.archive_of(request.user, form=form, now=timezone.now())
    return answer(file, name="palimpsest.zip")


@require_GET
@signed_in  # type: ignore[arg-type]  # what it answers may be a stream
def chat_export(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponseBase:
    """Show the files that a chat can become; with `form`, send it. Raises `NotFound`."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    form, scope = request.GET.get("form", ""), request.GET.get("scope", "active")
    if not form:
        return render(request, "chats/export.html", {"chat": chat, "offered": OFFERED})
    if (form, scope) not in {(name, reach) for name, reach, *_ in OFFERED}:
        raise NotFound
    kind, file = files.file_of(
        chat, form=form, scope=scope, actor=actor(request), now=timezone.now()
    )
    return answer(file, name=documents.file_name(chat, form=form), kind=kind)
