"""Chats in from files and out as files: the page of the account, and that of each chat."""

import uuid
from typing import IO, cast

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from chats.exchange import documents, files, importing, whole
from chats.exchange.drafts import ImportRefused
from chats.exchange.words import loss_words
from chats.ground.refusals import NotFound, Refusal
from chats.prompt.tokenizer import O200kCounter
from chats.record import access
from chats.streams.files import answer
from chats.web.auth import PersonRequest, actor, signed_in

# The files of one chat: form, scope, what it is called, and what it is for.
OFFERED = (
    ("markdown", "active", "Markdown", "To read and to edit, in any editor."),
    ("html", "active", "HTML page", "To read: opens in a browser, without a network."),
    ("json", "all", "JSON", "For programs: everything, every branch."),
    ("bundle", "active", "Bundle (ZIP)", "To import again, with its summary and what it covers."),
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
    return render(request, "exchange.html", {"everything": EVERYTHING})


@require_POST
@signed_in
def exchange_import(request: PersonRequest) -> HttpResponse:
    """Make chats of the file, and say what became of each."""
    refusal: Refusal | None = None
    report = None
    try:
        report = importing.import_file(
            sent_file(request),
            owner=request.user,
            counter=O200kCounter(),
            now=timezone.now(),
        )
    except Refusal as error:
        refusal = error
    made = [
        (found, sorted({loss_words(loss) for loss in found.losses}))
        for found in (report.chats if report else [])
    ]
    context = {"everything": EVERYTHING, "refusal": refusal, "report": report, "made": made}
    status = refusal.status if refusal else 200
    return render(request, "exchange.html", context, status=status)


def sent_file(request: PersonRequest) -> IO[bytes]:
    """Return the file of the form, on the disk if it is large. Raises `ImportRefused`."""
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        raise ImportRefused("import_empty", "There is no file. Choose one first.")
    return cast(IO[bytes], file.file)


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
