"""Chats out as files, and in from them."""

import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import IO, Any, ClassVar, cast

from django.http import HttpResponse, HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.errors import RequestTooLarge
from chats.api.inputs import PlainText, Strict
from chats.api.line_streams import streamed
from chats.api.schema import READ_ERRORS, answers
from chats.exchange import bounds, documents, importing, whole, writing
from chats.models import Chat
from chats.prompt.tokenizer import O200kCounter
from chats.record import access
from chats.streams import files, lines

SCOPES = ("active", "full", "all")
FORMS = ("ui", "bundle", *documents.FORMS)
# Two numbers in one place: no chat has 2⁴⁰ messages.
HALF = 1 << 40


class ExportQuery(Strict):
    """The form of an export, and how much of the chat it has."""

    form = serializers.ChoiceField(
        choices=FORMS,
        default="ui",
        help_text="`ui`: UI messages, one a line (JSONL); `bundle`: a ZIP with `history.jsonl`, "
        "`meta.json` and what is summarised under `archive/`; `markdown`, `html`, `json`: to read.",
    )
    scope = serializers.ChoiceField(
        choices=SCOPES,
        default="active",
        help_text="Of `ui`: `active` has the summary in force and what it does not cover, `full` "
        "every message of the active branch, `all` those of every branch.",
    )
    cursor = PlainText(default="", help_text="Of `ui`: `next_cursor` of a list that was cut.")


class UIMessageOut(serializers.Serializer[Any]):
    """One message of a chat as other programs know it."""

    id = serializers.CharField()
    role = serializers.CharField(help_text="`user` or `assistant`.")
    parts = serializers.ListField(child=serializers.DictField())
    metadata = serializers.DictField()


class ImportedChatOut(serializers.Serializer[Any]):
    """The outcome for one chat of the file."""

    chat = serializers.UUIDField()
    title = serializers.CharField()
    messages = serializers.IntegerField(help_text="How many were added.")
    was_here = serializers.BooleanField(help_text="It was imported before; nothing was added.")
    losses = serializers.ListField(
        child=serializers.CharField(), help_text="What could not be taken: `kind:detail`."
    )


class NotTakenOut(serializers.Serializer[Any]):
    """A chat of the file that could not be taken."""

    title = serializers.CharField()
    code = serializers.CharField()
    reason = serializers.CharField()


class ImportOut(serializers.Serializer[Any]):
    """The outcome of an import."""

    form = serializers.CharField(help_text="As it was recognised.")
    chats = ImportedChatOut(many=True)
    not_taken = NotTakenOut(many=True)


class FileParser(BaseParser):
    """Bytes of any kind → a file on disk, counted as they come."""

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
        return cast(IO[bytes], held)


# No HEAD: the ledger would say that a file left, and none did.
ONLY_SENT = ["get"]


class Export(Endpoint):
    """One chat as a file."""

    scopes: ClassVar = {"GET": "chats:read"}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="chats_export",
        parameters=[ExportQuery],
        responses=answers(
            {
                (200, lines.CONTENT_TYPE): OpenApiResponse(UIMessageOut, "`ui`: one a line."),
                (200, "application/zip"): OpenApiTypes.BINARY,
                (200, "text/markdown"): OpenApiTypes.STR,
                (200, "text/html"): OpenApiTypes.STR,
                (200, "application/json"): OpenApiTypes.OBJECT,
            },
            errors=READ_ERRORS,
        ),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> HttpResponseBase:
        """Read the chat as a file: UI messages or a bundle, which can be imported, or to read.

        UI messages come line by line, and permission is checked again on the way. A list that is
        ended early has as its last line an `error` (`list_cut`) and the `next_cursor` of the rest.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        query = ExportQuery.read(request.query_params.dict())
        form, scope, now = query["form"], query["scope"], timezone.now()
        actor = f"user:{request.user.pk}"
        if form == "ui":
            answer = ui_lines(request, chat, scope=scope, cursor=query["cursor"])
            writing.told(chat, scope=scope, form=form, actor=actor, now=now)
            return answer
        writing.told(chat, scope="active", form=form, actor=actor, now=now)
        if form == "bundle":
            kind, body = "application/zip", writing.bundle(chat)
        else:
            kind, body = documents.document(chat, form=form)
        name = documents.file_name(chat, form=form)
        answer = HttpResponse(body, content_type=kind)
        answer["Content-Disposition"] = f'attachment; filename="{name}"'
        answer["Cache-Control"] = "no-store"
        return answer


def ui_lines(
    request: Request, chat: Chat, *, scope: writing.Scope, cursor: str
) -> HttpResponseBase:
    """Return the UI messages of a chat as lines. Raises as `streamed` does."""
    writer = writing.Writer(chat, scope=scope)

    def part(place: int) -> tuple[bytes, int | None]:
        told, end = writer.part(divmod(place, HALF))
        return told, None if end is None else end[0] * HALF + end[1]

    return streamed(request, chat, part, name=f"export:{chat.pk}:{scope}", cursor=cursor)


class WholeQuery(Strict):
    """The form in which all chats are exported."""

    form = serializers.ChoiceField(
        choices=("ui", *documents.FORMS),
        default="ui",
        help_text="Of each chat; `ui` can be imported chat by chat, with all its branches.",
    )


class ExportAll(Endpoint):
    """Everything of a person as one archive."""

    scopes: ClassVar = {"GET": "chats:read"}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="export_all",
        parameters=[WholeQuery],
        responses=answers({(200, "application/zip"): OpenApiTypes.BINARY}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Read all of one's chats, folders, teams and names of keys as a ZIP."""
        form = WholeQuery.read(request.query_params.dict())["form"]
        file = whole.archive_of(person(request), form=form, now=timezone.now())
        return files.answer(file, name="palimpsest.zip")


class Imports(Endpoint):
    """Chats in from a file."""

    knows_repetitions = True
    scopes: ClassVar = {"POST": "chats:write"}
    parser_classes = (FileParser,)

    @extend_schema(
        operation_id="imports_create",
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=answers({200: ImportOut, 201: ImportOut}),
    )
    def post(self, request: Request) -> Response:
        """Make chats of a file, which is the body: UI messages as JSONL, a bundle, or an export.

        Each chat is taken whole or not at all, and once: the same file again adds nothing (200).
        Its form is told by its content. Raises `ImportRefused`, and for a file of one chat what
        kept it out.
        """
        file = empty() if isinstance(request.data, Mapping) else cast(IO[bytes], request.data)
        with file:
            report = importing.import_file(
                file, owner=person(request), counter=O200kCounter(), now=timezone.now()
            )
        return Response(report_json(report), status=201 if report.added else 200)


def empty() -> IO[bytes]:
    """Return the file of a request without a body."""
    return cast(IO[bytes], tempfile.SpooledTemporaryFile())


def report_json(report: importing.Report) -> dict[str, Any]:
    """Return what became of a file."""
    return {
        "form": report.form,
        "chats": list(chats_in(report)),
        "not_taken": [
            {"title": missed.title, "code": missed.code, "reason": missed.reason}
            for missed in report.not_taken
        ],
    }


def chats_in(report: importing.Report) -> Iterator[dict[str, Any]]:
    """Yield what became of each chat that is here now."""
    for made in report.chats:
        yield {
            "chat": str(made.chat.pk),
            "title": made.chat.title,
            "messages": made.added,
            "was_here": made.was_here,
            "losses": list(made.losses),
        }
