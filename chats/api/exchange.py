"""Chats out as files."""

import uuid
from typing import Any, ClassVar

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import PlainText, Strict
from chats.api.line_streams import streamed
from chats.api.schema import READ_ERRORS, answers
from chats.exchange import documents, whole, writing
from chats.exchange import files as written
from chats.models import Chat
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
        "`meta.json`, what is summarised under `archive/` and the images; `markdown`, `html`, "
        "`json`: to read.",
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


# No HEAD: the ledger would say that a file left, and none did.
ONLY_SENT = ["get"]


class ChatExport(Endpoint):
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
        kind, file = written.file_of(chat, form=form, scope="active", actor=actor, now=now)
        return files.answer(file, name=documents.file_name(chat, form=form), kind=kind)


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
        help_text="Of each chat; `ui` can be imported again, with branches, folders and images.",
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
