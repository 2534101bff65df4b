"""Background imports of chats from files."""

import io
import tempfile
import uuid
from collections.abc import Mapping
from typing import IO, Any, cast

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop, ngettext
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import retention_rules
from chats.api.core.base import Endpoint
from chats.api.core.errors import RequestTooLarge, UnsupportedMediaType
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer, serialize_row
from chats.api.core.strict_json import Parsers, StrictJSONParser
from chats.exchange import bounds, upload
from chats.models import FileImport, ImportOutcome


class ImportOut(serializers.Serializer[FileImport]):
    """An import and its progress. `code` and `reason` explain a failure."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(
        choices=FileImport.State.choices,
        help_text=(
            "`queued`: no worker has started it yet. `running`, `done`, `failed` (see `code`), or "
            "`stopped` (you cancelled it)."
        ),
    )
    size = serializers.IntegerField(help_text="Size of the uploaded file in bytes.")
    form = serializers.CharField(
        help_text=(
            "Detected format: `ui`, `bundle`, or the product that wrote the file, such as "
            "`chatgpt`, `claude` or `aider`. Empty until it is detected."
        )
    )
    found = serializers.IntegerField(
        allow_null=True, help_text="Number of chats in the file. Null until the file is read."
    )
    done = serializers.IntegerField(
        source="place", help_text="Number of chats in the file that have been processed so far."
    )
    added = serializers.IntegerField(help_text="Number of new chats that the import created.")
    were_here = serializers.IntegerField(
        help_text=(
            "Number of chats that you already had: from an earlier import, or because the file "
            "was exported from them. Includes the chats in `grown`."
        )
    )
    grown = serializers.IntegerField(
        help_text="Number of earlier imported chats that received new messages from this file."
    )
    not_taken = serializers.IntegerField(
        help_text=(
            "Number of chats that could not be imported. The list of imported chats gives the "
            "reasons."
        )
    )
    messages = serializers.IntegerField(help_text="Number of messages that the import added.")
    messages_in_file = serializers.IntegerField(
        help_text="Number of messages in the processed chats of the file."
    )
    messages_imported = serializers.IntegerField(
        source="messages_here",
        help_text="Number of messages in the file that are stored after this import, including "
        "those that were imported before.",
    )
    code = serializers.CharField(
        help_text="Error code if the import failed, such as `import_malformed`. Empty: no error."
    )
    reason = serializers.CharField(
        source="localized_reason",
        help_text="Human-readable explanation of `code`. Empty: no error.",
    )
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the import ended. Null: it has not ended."
    )


class ImportConditionsOut(serializers.Serializer[Any]):
    """The limits of an import, and the retention period of imported messages."""

    file_bytes = serializers.IntegerField(help_text="Maximum size of the file, in bytes.")
    unpacked_bytes = serializers.IntegerField(
        help_text="Maximum size of an unpacked archive, in bytes."
    )
    entries = serializers.IntegerField(help_text="Maximum number of entries in an archive.")
    chat_bytes = serializers.IntegerField(
        help_text="Maximum size of one chat in the file, in bytes."
    )
    messages_per_chat = serializers.IntegerField(
        help_text="Maximum number of messages in one chat."
    )
    retention_days = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Retention period in days. Older messages are erased every night, including "
            "imported messages, which keep their dates. Null: messages are not erased."
        ),
    )
    notice = serializers.CharField(
        help_text=(
            "Human-readable notice about imported messages that the retention period erases the "
            "next night. Empty: none."
        )
    )


class ImportStartedOut(ImportOut):
    """A started import, with the retention period of its messages."""

    retention_days = serializers.SerializerMethodField()
    notice = serializers.SerializerMethodField()

    def get_retention_days(self, row: FileImport) -> int | None:
        """Retention period of messages in days. Null: none."""
        return retention_rules.find_new_chat_days(row.owner, now=row.created_at)

    def get_notice(self, row: FileImport) -> str:
        """Human-readable notice about imported messages that will be erased. Empty: none."""
        return format_retention_notice(self.get_retention_days(row))


def format_retention_notice(days: int | None) -> str:
    """Return a sentence about the retention of imported messages. Empty: nothing is erased."""
    if days is None:
        return ""
    return ngettext(
        "Messages older than {n} day are erased every night. Imported messages keep their dates, "
        "so older ones are erased the night after the import.",
        "Messages older than {n} days are erased every night. Imported messages keep their dates, "
        "so older ones are erased the night after the import.",
        days,
    ).format(n=days)


class ImportOutcomeOut(serializers.Serializer[ImportOutcome]):
    """The outcome of the import for one chat of the file."""

    place = serializers.IntegerField(help_text="Position of the chat in the file, starting at 1.")
    chat = serializers.UUIDField(
        source="chat_id",
        allow_null=True,
        help_text="Id of the imported chat. Null: the chat could not be imported.",
    )
    title = serializers.SerializerMethodField()
    messages = serializers.IntegerField(help_text="Number of messages added.")
    messages_in_file = serializers.IntegerField(
        source="in_file",
        help_text="Number of messages of this chat in the file, including tool results.",
    )
    messages_imported = serializers.IntegerField(
        source="here",
        help_text="Number of messages in the file that are stored after this import, including "
        "those that were imported before.",
    )
    was_here = serializers.BooleanField(
        help_text=(
            "True: you already had the chat, from an earlier import or because the file was "
            "exported from it. `messages` then counts only new messages."
        )
    )
    losses = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Content that was changed or left out, as `kind` or `kind:detail`, such as "
            "`content_dropped:audio`. Empty: nothing was lost."
        ),
    )
    code = serializers.CharField(
        help_text="Error code of a chat that could not be imported. Empty: it was imported."
    )
    reason = serializers.CharField(
        source="localized_reason",
        help_text="Human-readable explanation of `code`. Empty: no error.",
    )

    def get_title(self, row: ImportOutcome) -> str:
        """The chat's current title. If it was not imported, its title in the file."""
        return row.chat.title if row.chat else row.title


class ImportInForm(UnsupportedMediaType):
    """The body is a form. Send the file itself as the body."""

    sentence = gettext_noop(
        "An import request cannot be a form. Send the file itself as the request body, for "
        "example with “curl --data-binary @chats.zip”."
    )


class FileParser(BaseParser):
    """Stores an upload in a temporary file, which the endpoint closes. Refuses multipart forms."""

    media_type = "*/*"

    def parse(  # type: ignore[override]  # the framework knows forms and JSON
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> IO[bytes]:
        """Return the file, rewound to the start. Raises `RequestTooLarge` and `ImportInForm`."""
        if str(media_type).startswith("multipart/"):
            raise ImportInForm
        held = tempfile.SpooledTemporaryFile(max_size=bounds.MIB)  # noqa: SIM115  # closed with it
        size = 0
        while piece := stream.read(bounds.CHUNK):
            size += len(piece)
            if size > settings.IMPORT_FILE_BYTES:
                held.close()
                raise RequestTooLarge(limit=settings.IMPORT_FILE_BYTES)
            held.write(piece)
        held.seek(0)
        if parser_context is not None:
            parser_context["view"].file = held
        return cast(IO[bytes], held)


class ImportViewSet(Endpoint):
    serializer_class = ImportOut
    parser_classes = (FileParser,)
    lookup_url_kwarg = "import_id"
    file: IO[bytes] | None = None

    def get_parsers(self) -> Parsers:
        """Return the parsers: for files in an import, for JSON in all other operations."""
        is_upload = self.action_map.get("post") == "create"
        return super().get_parsers() if is_upload else [StrictJSONParser()]

    @extend_schema(
        summary="List imports", parameters=[PageQuery], responses=build_page_serializer(ImportOut)
    )
    def list(self, request: Request) -> Response:
        """List your imports, newest first.

        Reports are deleted 30 days (the default of `IMPORT_REPORT_DAYS`) after the import. Only the
        20 newest are kept.
        """
        order = ("-created_at", "-id")
        return self.respond_page(upload.list_imports(self.user), order=order, name="imports")

    @extend_schema(
        summary="Start an import",
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={202: ImportStartedOut},
    )
    def create(self, request: Request) -> Response:
        """Import chats from a file, which is the request body.

        The format is detected from the content: UI messages as JSONL or JSON, a bundle, an
        export of another product, or a session of an agent. The file is read in the background;
        `Location` is the URL of the import's progress. Each chat is imported completely or
        not at all. If a chat was imported before, only its new messages are added.

        An empty body, a body that is too large, and an archive that is damaged, encrypted or has
        too many entries are refused immediately. The limits are in `imports_conditions`. Other
        errors are in `code` and `reason` of the import. `notice` states whether a retention
        period will erase old messages the night after the import.
        """
        file = io.BytesIO() if isinstance(request.data, Mapping) else cast(IO[bytes], request.data)
        row = upload.start_import(file, owner=self.user, now=timezone.now())
        place = reverse("api:imports-detail", args=[row.pk])
        return Response(
            serialize_row(ImportStartedOut, row), status=202, headers={"Location": place}
        )

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        """Close the uploaded file, even if a stored response was replayed."""
        if self.file is not None:
            self.file.close()
        return super().finalize_response(request, response, *args, **kwargs)

    @extend_schema(summary="Get the limits of imports", responses=ImportConditionsOut)
    @action(detail=False)
    def conditions(self, request: Request) -> Response:
        """Get the size limits of an import, and the retention period of imported messages."""
        days = retention_rules.find_new_chat_days(self.user, now=timezone.now())
        conditions = {
            "file_bytes": settings.IMPORT_FILE_BYTES,
            "unpacked_bytes": settings.IMPORT_UNPACKED_BYTES,
            "entries": settings.IMPORT_ENTRIES,
            "chat_bytes": settings.IMPORT_CHAT_BYTES,
            "messages_per_chat": settings.MESSAGES_PER_CHAT,
            "retention_days": days,
            "notice": format_retention_notice(days),
        }
        return Response(serialize_row(ImportConditionsOut, conditions))

    @extend_schema(summary="Get an import")
    def retrieve(self, request: Request, import_id: uuid.UUID) -> Response:
        """Retrieve one of your imports: its progress and, if it failed, the reason."""
        return self.respond(upload.get_import(user=self.user, import_id=import_id))

    @extend_schema(summary="Delete an import report")
    def destroy(self, request: Request, import_id: uuid.UUID) -> Response:
        """Delete the report of a finished import. The imported chats are kept."""
        upload.get_import(user=self.user, import_id=import_id)
        EmptyBody.read(request.data)
        upload.delete_import(user=self.user, import_id=import_id)
        return Response(status=204)

    @extend_schema(summary="Cancel an import")
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, import_id: uuid.UUID) -> Response:
        """Cancel an import. Chats already imported are kept; the uploaded file is deleted.

        Has no effect on a finished import.
        """
        upload.get_import(user=self.user, import_id=import_id)
        EmptyBody.read(request.data)
        row = upload.stop_import(user=self.user, import_id=import_id, now=timezone.now())
        return self.respond(row)

    @extend_schema(
        summary="List imported chats",
        parameters=[PageQuery],
        responses=build_page_serializer(ImportOutcomeOut),
    )
    @action(detail=True)
    def chats(self, request: Request, import_id: uuid.UUID) -> Response:
        """List the processed chats of an import and their outcomes, in file order."""
        row = upload.get_import(user=self.user, import_id=import_id)
        name = f"import:{row.pk}"
        return self.respond_page(
            upload.list_import_results(row), order=("place",), name=name, kind=ImportOutcomeOut
        )
