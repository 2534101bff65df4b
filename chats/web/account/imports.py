"""Import pages: upload a file, follow, stop and delete the import, show its results."""

import uuid
from typing import IO, cast

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from chats.exchange import upload
from chats.exchange.drafts import ImportRefused
from chats.exchange.words import describe_loss
from chats.ground.refusals import Refusal
from chats.models import FileImport, ImportOutcome
from chats.record import imports
from chats.web.account.exchange import render_exchange_page
from chats.web.auth import PersonRequest, signed_in

# Chats per page of the results, and the maximum digits of a position.
SHOWN = 100
MISSED = "missed"
DIGITS = 6


@require_POST
@signed_in
def exchange_import(request: PersonRequest) -> HttpResponse:
    """Accept the file and redirect to the page of its import, or show why it was refused."""
    try:
        row = upload.start_import(
            get_uploaded_file(request), owner=request.user, now=timezone.now()
        )
    except Refusal as refusal:
        return render_exchange_page(request, refusal=refusal)
    return redirect("chats:import", row.pk)


def get_uploaded_file(request: HttpRequest) -> IO[bytes]:
    """Return the uploaded file, which is on disk if it is large. Raises `ImportRefused`."""
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        raise ImportRefused("import_empty", gettext_lazy("Choose a file first."))
    return cast(IO[bytes], file.file)


@require_GET
@signed_in
def import_progress(request: PersonRequest, import_id: uuid.UUID) -> HttpResponse:
    """Show the progress of an import and the result of each chat."""
    row = upload.get_import(user=request.user, import_id=import_id)
    return render_import(request, row)


def render_import(
    request: PersonRequest, row: FileImport, *, refusal: Refusal | None = None
) -> HttpResponse:
    """Render the page of an import, or only its changing part for htmx."""
    after = request.GET.get("after", "")
    start = int(after) if after.isascii() and after.isdecimal() and len(after) <= DIGITS else 0
    only_missed = request.GET.get("only") == MISSED
    outcomes = upload.list_import_results(row, only_missed=only_missed)
    found = list(outcomes.filter(place__gt=start)[: SHOWN + 1])
    context = {
        "row": row,
        "is_open": row.state in imports.OPEN,
        "outcomes": [(outcome, describe_import_losses(outcome)) for outcome in found[:SHOWN]],
        "only_missed": only_missed,
        "after": found[SHOWN - 1].place if len(found) > SHOWN else None,
        "refusal": refusal,
    }
    template = "_import.html" if request.htmx else "import.html"
    return render(request, template, context, status=refusal.status if refusal else 200)


def describe_import_losses(outcome: ImportOutcome) -> list[str]:
    """Return the parts of a chat that could not be imported, as sentences."""
    return sorted({describe_loss(loss) for loss in outcome.losses})


@require_POST
@signed_in
def import_stop(request: PersonRequest, import_id: uuid.UUID) -> HttpResponse:
    """Stop an import and redirect to its page."""
    upload.stop_import(user=request.user, import_id=import_id, now=timezone.now())
    return redirect("chats:import", import_id)


@require_POST
@signed_in
def import_delete(request: PersonRequest, import_id: uuid.UUID) -> HttpResponse:
    """Delete the report of a finished import."""
    try:
        upload.delete_import(user=request.user, import_id=import_id)
    except Refusal as refusal:
        row = upload.get_import(user=request.user, import_id=import_id)
        return render_import(request, row, refusal=refusal)
    return redirect("chats:exchange")
