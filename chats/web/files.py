"""Uploads from the message box, their state, and downloads."""

import uuid
from typing import IO, cast

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_GET, require_POST, require_safe

from chats.files import uploads
from chats.files.detection import clean_file_name
from chats.ground.refusals import Refusal
from chats.streams.files import SANDBOX_POLICY, build_file_download
from chats.web.auth import PersonRequest, signed_in
from chats.web.errors import set_retry_after
from chats.web.thread.attachments import Attachment, load_attachments
from chats.web.thread.message_forms import FilesForm

ITEM = "chats/_attachment.html"


class NoFileChosen(Refusal):
    """The upload form has no file. Choose one first."""

    code = "upload_malformed"
    status = 400
    sentence = gettext_noop("Choose a file first.")


@require_POST
@signed_in
def file_attach(request: PersonRequest) -> HttpResponse:
    """Upload a file and return its element for the message box.

    If the file is refused or missing (`NoFileChosen`), the element shows the reason.
    """
    given = request.FILES.get("file")
    name = given.name or "" if isinstance(given, UploadedFile) else ""
    try:
        if not isinstance(given, UploadedFile):
            raise NoFileChosen
        row, _ = uploads.accept_upload(
            cast(IO[bytes], given.file), name=name, owner=request.user, now=timezone.now()
        )
    except Refusal as refusal:
        context = {"name": clean_file_name(name), "refusal": refusal}
        response = render(request, ITEM, context, status=refusal.status)
        return set_retry_after(response, refusal)
    return render(request, ITEM, {"attachment": Attachment(row)})


@require_GET
@signed_in
def file_attached(request: PersonRequest, file_id: uuid.UUID) -> HttpResponse:
    """Show the current state of an attached file."""
    row = uploads.get_file(user=request.user, file_id=file_id)
    return render(request, ITEM, {"attachment": Attachment(row)})


@require_GET
@signed_in
def files_unsent(request: PersonRequest) -> HttpResponse:
    """Return the elements of the given uploads, to attach them to an unsent message again."""
    attachments = load_attachments(request.user, FilesForm(request.GET).read_values()["files"])
    return render(request, "chats/_attachments.html", {"attachments": attachments})


@require_safe
@signed_in  # type: ignore[arg-type]  # returns a stream
def file_download(request: PersonRequest, file_id: uuid.UUID) -> HttpResponseBase:
    """Download a file. Browsers save it instead of opening it."""
    row = uploads.get_file(user=request.user, file_id=file_id)
    file = uploads.open_stored_file(row)
    answer = build_file_download(file, name=row.name, kind="application/octet-stream")
    answer["Content-Security-Policy"] = SANDBOX_POLICY
    return answer
