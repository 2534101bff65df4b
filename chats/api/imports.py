"""Chats in from files: imports in the background, how far they are, and what came of them."""

import io
import tempfile
import uuid
from collections.abc import Mapping
from typing import IO, Any, ClassVar, cast

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import ages
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
    grown = serializers.IntegerField(
        help_text="Chats that were imported before and got the messages that are new in this file."
    )
    not_taken = serializers.IntegerField(help_text="Chats that could not be taken.")
    messages = serializers.IntegerField(help_text="Messages that were added.")
    messages_in_file = serializers.IntegerField(
        help_text="Messages that the chats dealt with so far have in the file."
    )
    messages_imported = serializers.IntegerField(
        source="messages_here", help_text="Messages of the file that are here now, new or not."
    )
    code = serializers.CharField(help_text="Of the refusal of the file; empty without one.")
    reason = serializers.CharField(help_text="The sentence of that refusal.")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class ImportConditionsOut(serializers.Serializer[Any]):
    """The limits of an import, and what happens to imported messages afterwards."""

    file_bytes = serializers.IntegerField(help_text="Bytes of a file as it is sent.")
    unpacked_bytes = serializers.IntegerField(help_text="Bytes of an archive when unpacked.")
    entries = serializers.IntegerField(help_text="Entries of an archive.")
    chat_bytes = serializers.IntegerField(help_text="Bytes of one chat in the file.")
    messages_per_chat = serializers.IntegerField()
    retention_days = serializers.IntegerField(
        allow_null=True,
        help_text="Older messages are erased every night; null: none. Imported messages keep their"
        " dates, so the next night erases those that are older.",
    )
    notice = serializers.CharField(help_text="A sentence about that; empty: nothing is erased.")


class ImportStartedOut(ImportOut):
    """An import that was started, with what happens to old messages."""

    retention_days = serializers.SerializerMethodField()
    notice = serializers.SerializerMethodField()

    def get_retention_days(self, row: FileImport) -> int | None:
        """Return the days after which messages are erased."""
        return ages.days_of_new(row.owner, now=row.created_at)

    def get_notice(self, row: FileImport) -> str:
        """Return what happens to old messages, in a sentence."""
        return notice_of(self.get_retention_days(row))


def notice_of(days: int | None) -> str:
    """Return what retention does to imported messages; empty: nothing."""
    if days is None:
        return ""
    return (
        f"Messages older than {days} {'day' if days == 1 else 'days'} are erased every night."
        " Imported messages keep their dates, so older ones are erased the night after the import."
    )


class ImportOutcomeOut(serializers.Serializer[ImportOutcome]):
    """The outcome for one chat of the file."""

    place = serializers.IntegerField(help_text="In the file, from 1.")
    chat = serializers.UUIDField(
        source="chat_id", allow_null=True, help_text="Null: it could not be taken."
    )
    title = serializers.SerializerMethodField()
    messages = serializers.IntegerField(help_text="How many were added.")
    messages_in_file = serializers.IntegerField(
        source="in_file", help_text="Messages of the chat in the file, results of tools included."
    )
    messages_imported = serializers.IntegerField(
        source="here", help_text="Messages of the file that are here now, new or not."
    )
    was_here = serializers.BooleanField(
        help_text="It was imported before; `messages` counts what was new in this file."
    )
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
            if size > settings.IMPORT_FILE_BYTES:
                held.close()
                raise RequestTooLarge(limit=settings.IMPORT_FILE_BYTES)
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
        responses=answers({202: ImportStartedOut}),
    )
    def post(self, request: Request) -> Response:
        """Import chats from a file, which is the request body.

        The form of the file is recognised by its content: UI messages as JSONL or JSON, a bundle,
        an export of another product, or a session of an agent. The file is read in the background;
        `Location` is the address of the import's progress. Each chat is imported completely or not
        at all. A chat that was imported before gets the messages that are new in the file. An empty
        body, a body that is too large, and an archive whose list of entries is not sound are
        refused at once. Other refusals are in `code` and `reason` of the import. `notice` says
        whether a retention period erases old messages the night after the import.
        """
        file = io.BytesIO() if isinstance(request.data, Mapping) else cast(IO[bytes], request.data)
        row = accepting.begin(file, owner=person(request), now=timezone.now())
        place = reverse("api:import", args=[row.pk])
        return Response(one(ImportStartedOut, row), status=202, headers={"Location": place})

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        """Close the file, also of a request that was done before."""
        if self.file is not None:
            self.file.close()
        return super().finalize_response(request, response, *args, **kwargs)


class ImportConditions(Endpoint):
    """The conditions of imports."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="imports_conditions",
        responses=answers({200: ImportConditionsOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """Read the limits of an import, and whether old messages will be erased after it."""
        days = ages.days_of_new(person(request), now=timezone.now())
        conditions = {
            "file_bytes": settings.IMPORT_FILE_BYTES,
            "unpacked_bytes": settings.IMPORT_UNPACKED_BYTES,
            "entries": settings.IMPORT_ENTRIES,
            "chat_bytes": settings.IMPORT_CHAT_BYTES,
            "messages_per_chat": settings.MESSAGES_PER_CHAT,
            "retention_days": days,
            "notice": notice_of(days),
        }
        return Response(one(ImportConditionsOut, conditions))


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
