"""Chats in from files: imports in the background, how far they are, and what came of them."""

import io
import tempfile
import uuid
from collections.abc import Mapping
from typing import IO, Any, ClassVar, cast

from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.errors import RequestTooLarge
from chats.api.inputs import Nothing, PageQuery
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.schema import READ_ERRORS, answers
from chats.exchange import accepting, bounds
from chats.models import FileImport, ImportOutcome


class ImportOut(serializers.Serializer[FileImport]):
    """An import: how far it is, and why it ended early if it did."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(choices=FileImport.State.choices)
    size = serializers.IntegerField(help_text="Bytes of the file.")
    form = serializers.CharField(help_text="As it was recognised; empty until the file was read.")
    found = serializers.IntegerField(
        allow_null=True, help_text="Chats in the file; null until it was read."
    )
    done = serializers.IntegerField(
        source="place", help_text="Chats of the file that are dealt with."
    )
    added = serializers.IntegerField(help_text="Chats that are new here.")
    were_here = serializers.IntegerField(help_text="Chats that were imported before.")
    not_taken = serializers.IntegerField(help_text="Chats that could not be taken.")
    messages = serializers.IntegerField(help_text="Messages that were added.")
    code = serializers.CharField(help_text="Of the refusal of the file; empty without one.")
    reason = serializers.CharField(help_text="The sentence of that refusal.")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class ImportOutcomeOut(serializers.Serializer[ImportOutcome]):
    """The outcome for one chat of the file."""

    place = serializers.IntegerField(help_text="In the file, from 1.")
    chat = serializers.UUIDField(
        source="chat_id", allow_null=True, help_text="Null: it could not be taken."
    )
    title = serializers.SerializerMethodField()
    messages = serializers.IntegerField(help_text="How many were added.")
    was_here = serializers.BooleanField(help_text="It was imported before; nothing was added.")
    losses = serializers.ListField(
        child=serializers.CharField(), help_text="What could not be taken: `kind:detail`."
    )
    code = serializers.CharField(help_text="Why it could not be taken; empty: it is here.")
    reason = serializers.CharField()

    def get_title(self, row: ImportOutcome) -> str:
        """Return the title that the chat has, or had in the file."""
        return row.chat.title if row.chat else row.title


class FileParser(BaseParser):
    """Bytes of any kind → a file on disk, counted as they come; its endpoint closes it."""

    media_type = "*/*"

    def parse(  # type: ignore[override]  # the framework knows forms and JSON
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> IO[bytes]:
        """Return the file, at its beginning. Raises `RequestTooLarge`."""
        held = tempfile.SpooledTemporaryFile(max_size=bounds.MIB)  # noqa: SIM115  # closed with it
        size = 0
        while piece := stream.read(bounds.CHUNK):
            size += len(piece)
            if size > bounds.FILE_BYTES:
                held.close()
                raise RequestTooLarge(limit=bounds.FILE_BYTES)
            held.write(piece)
        held.seek(0)
        if parser_context is not None:
            parser_context["view"].file = held
        return cast(IO[bytes], held)


class Imports(Endpoint):
    """The person's imports."""

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}
    parser_classes = (FileParser,)
    file: IO[bytes] | None = None

    @extend_schema(
        operation_id="imports_list",
        parameters=[PageQuery],
        responses=answers({200: listed(ImportOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the imports whose reports are kept, newest first."""
        user = person(request)
        query = PageQuery.read(request.query_params.dict())
        order = ("-created_at", "-id")
        page = page_of(accepting.imports_of(user), order=order, name="imports", **query)
        return Response({"data": items(ImportOut, page.rows), "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="imports_create",
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=answers({202: ImportOut}),
    )
    def post(self, request: Request) -> Response:
        """Make chats of a file, which is the body: UI messages as JSONL, a bundle, or an export.

        The file is taken, and read in the background; `Location` says where to ask how far that is.
        Its form is told by its content. Each chat is taken whole or not at all, and once: of the
        same file again nothing is added. An empty body, one that is too large, and an archive whose
        list of entries is not sound are refused at once; what else keeps a file out is said by
        `code` and `reason` of its import.
        """
        file = io.BytesIO() if isinstance(request.data, Mapping) else cast(IO[bytes], request.data)
        row = accepting.begin(file, owner=person(request), now=timezone.now())
        place = reverse("api:import", args=[row.pk])
        return Response(one(ImportOut, row), status=202, headers={"Location": place})

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        """Close the file, also of a request that was done before."""
        if self.file is not None:
            self.file.close()
        return super().finalize_response(request, response, *args, **kwargs)


class OneImport(Endpoint):
    """One import of the person."""

    scopes: ClassVar = {"GET": "chats:read", "DELETE": "chats:write"}

    @extend_schema(
        operation_id="imports_get", responses=answers({200: ImportOut}, errors=READ_ERRORS)
    )
    def get(self, request: Request, import_id: uuid.UUID) -> Response:
        """Read how far the import is and what came of it."""
        row = accepting.import_for(user=person(request), import_id=import_id)
        return Response(one(ImportOut, row))

    @extend_schema(operation_id="imports_delete", request=None, responses=answers({204: None}))
    def delete(self, request: Request, import_id: uuid.UUID) -> Response:
        """Delete the report of an import that is over; its chats stay. 409 `import_not_over`."""
        user = person(request)
        accepting.forget(user=user, import_id=import_id)
        return Response(status=204)


class StopImport(Endpoint):
    """The stop of an import."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(operation_id="imports_stop", request=None, responses=answers({200: ImportOut}))
    def post(self, request: Request, import_id: uuid.UUID) -> Response:
        """Stop the import; what it made stays, its file goes. One that is over stays as it is."""
        user = person(request)
        accepting.import_for(user=user, import_id=import_id)
        Nothing.read(request.data)
        row = accepting.stop(user=user, import_id=import_id, now=timezone.now())
        return Response(one(ImportOut, row))


class ImportOutcomes(Endpoint):
    """The report of an import."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="imports_chats",
        parameters=[PageQuery],
        responses=answers({200: listed(ImportOutcomeOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, import_id: uuid.UUID) -> Response:
        """List what became of the chats of the file so far, in their order there."""
        row = accepting.import_for(user=person(request), import_id=import_id)
        query = PageQuery.read(request.query_params.dict())
        name = f"import:{row.pk}"
        page = page_of(accepting.outcomes_of(row), order=("place",), name=name, **query)
        told = items(ImportOutcomeOut, page.rows)
        return Response({"data": told, "next_cursor": page.next_cursor})
