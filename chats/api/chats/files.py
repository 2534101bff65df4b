"""Files of a user: upload, list, download, delete."""

import uuid
from collections.abc import Mapping
from typing import IO, Any, cast

from django.http import HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext_noop
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, serializers
from rest_framework.decorators import action
from rest_framework.parsers import BaseParser, DataAndFiles, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer
from chats.api.core.strict_json import Parsers, StrictJSONParser
from chats.files import uploads
from chats.ground.refusals import Refusal
from chats.models import StoredFile
from chats.streams import files

FIELD = "file"
OF_BYTES = "application/octet-stream"


class UploadMalformed(Refusal):
    """The body is not `multipart/form-data` with exactly one field `file`."""

    code = "upload_malformed"
    status = 400
    sentence = gettext_noop(
        "The body is not multipart/form-data with exactly one field named “file”. Send the file "
        "in this format."
    )
    param = FIELD


class FileOut(serializers.Serializer[StoredFile]):
    """An uploaded file.

    Its kind is detected from its content. The file extension only decides between `csv` and `text`.
    """

    id = serializers.UUIDField()
    name = serializers.CharField(
        help_text="Name of the file, from the latest upload with this content."
    )
    kind = serializers.ChoiceField(
        choices=StoredFile.Kind.choices, help_text="Detected kind of the content."
    )
    media_type = serializers.CharField(
        help_text=(
            "Media type of the content, such as `image/png`. For text, the file extension decides "
            "which."
        )
    )
    size = serializers.IntegerField(help_text="Size of the file in bytes.")
    state = serializers.ChoiceField(
        choices=StoredFile.State.choices,
        help_text="`pending`: a worker has not read the file yet. `ready`: it can be "
        "used. `failed`: see `code`.",
    )
    code = serializers.CharField(
        help_text="Error code if the file could not be read. Empty: no error."
    )
    reason = serializers.CharField(
        source="localized_reason",
        help_text="Human-readable explanation of `code`. Empty: no error.",
    )
    pages = serializers.IntegerField(
        help_text=(
            "Number of pages. 0: this kind of file has no pages, or the file has not been read yet."
        )
    )
    characters = serializers.IntegerField(
        help_text=(
            "Length of the extracted text in characters. 0: the file is an image, or has not been "
            "read."
        )
    )
    tokens = serializers.IntegerField(
        help_text=(
            "Number of tokens in the extracted text, as counted by the local tokenizer. 0: the "
            "file is an image, or has not been read."
        )
    )
    is_whole = serializers.BooleanField(
        help_text=(
            "False: only the first 2,000 pages or 1,000,000 characters were read. True: all text "
            "was read, or the file has not been read yet."
        )
    )
    created_at = serializers.DateTimeField(help_text="Time of the latest upload with this content.")


class FileUpload(serializers.Serializer[Any]):
    """A form with exactly one file, in the field `file`."""

    file = serializers.FileField(
        help_text="The file, at most 25 MiB (the default of `FILE_BYTES`), with its name."
    )


class UploadParser(MultiPartParser):
    """Parses a form with files. Django stores a large file on disk while it arrives."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> "DataAndFiles[Any, Any]":
        """Return the fields and files. Raises `UploadMalformed`."""
        try:
            return super().parse(stream, media_type, parser_context)
        except exceptions.ParseError:
            raise UploadMalformed from None


class NoFormParser(BaseParser):
    """Accepts any other body without reading it. The operation refuses it after the CSRF check."""

    media_type = "*/*"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return an empty form."""
        return {}


class FileViewSet(Endpoint):
    """The user's files."""

    serializer_class = FileOut
    parser_classes = (UploadParser, NoFormParser)
    # The same content is stored once.
    repeatable = ("create",)
    lookup_url_kwarg = "file_id"

    def get_parsers(self) -> Parsers:
        """Return the parsers: for forms in an upload, for JSON in all other operations."""
        is_upload = self.action_map.get("post") == "create"
        return super().get_parsers() if is_upload else [StrictJSONParser()]

    @extend_schema(
        summary="List files", parameters=[PageQuery], responses=build_page_serializer(FileOut)
    )
    def list(self, request: Request) -> Response:
        """List your files, newest first, including files that messages use."""
        rows = uploads.list_files(self.user)
        return self.respond_page(rows, order=("-created_at", "-id"), name="files")

    @extend_schema(
        operation_id="files_upload",
        summary="Upload a file",
        request={"multipart/form-data": FileUpload},
        responses={201: FileOut, 200: FileOut},
    )
    def create(self, request: Request) -> Response:
        """Upload a file, to attach it to messages.

        The file is deleted 24 hours (the default of `UNUSED_FILE_HOURS`) after its latest upload if
        no message uses it. Images (PNG, JPEG, GIF, WebP), text, code, CSV, HTML, PDF, DOCX and XLSX
        are accepted. The type is detected from the content. If you uploaded the same content
        before, the existing file is returned with status 200 and the new name. If that file could
        not be read, it is read again. Raises `UploadMalformed`.
        """
        given = request.FILES.getlist(FIELD)
        if len(request.data) != 1 or len(given) != 1:
            raise UploadMalformed
        row, is_new = uploads.accept_upload(
            cast(IO[bytes], given[0].file),
            name=given[0].name or "",
            owner=self.user,
            now=timezone.now(),
        )
        return self.respond(row, status=201 if is_new else 200)

    @extend_schema(summary="Get a file")
    def retrieve(self, request: Request, file_id: uuid.UUID) -> Response:
        """Retrieve one of your files: its name, kind and size, and whether its text was read."""
        return self.respond(uploads.get_file(user=self.user, file_id=file_id))

    @extend_schema(summary="Delete a file")
    def destroy(self, request: Request, file_id: uuid.UUID) -> Response:
        """Delete a file permanently. Returns 409 `file_in_use` if a message uses it."""
        uploads.get_file(user=self.user, file_id=file_id)
        EmptyBody.read(request.data)
        uploads.delete_file(user=self.user, file_id=file_id, now=timezone.now())
        return Response(status=204)

    @extend_schema(
        operation_id="files_download",
        summary="Download a file",
        responses={(200, OF_BYTES): OpenApiTypes.BINARY},
    )
    @action(detail=True)
    def content(self, request: Request, file_id: uuid.UUID) -> HttpResponseBase:
        """Download the content of a file. Browsers save the file instead of opening it."""
        row = uploads.get_file(user=self.user, file_id=file_id)
        file = uploads.open_stored_file(row)
        answer = files.build_file_download(file, name=row.name, kind=OF_BYTES)
        answer["Content-Length"] = str(row.size)
        answer["Content-Security-Policy"] = files.SANDBOX_POLICY
        return answer
