"""Export of chats as files."""

import uuid
from typing import Any, ClassVar

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from chats.api.chats.line_streams import stream_lines
from chats.api.core.base import Endpoint, get_request_key
from chats.api.core.inputs import PlainText, Strict
from chats.exchange import documents, whole, writing
from chats.exchange import files as written
from chats.models import Chat
from chats.record import access
from chats.streams import files, lines

SCOPES = ("active", "full", "all")
FORMS = ("ui", "bundle", *documents.FORMS)
# A cursor packs two numbers into one. No chat has 2⁴⁰ messages.
HALF = 1 << 40


class ExportQuery(Strict):
    """The format of an export, and the messages to include."""

    form = serializers.ChoiceField(
        choices=FORMS,
        default="ui",
        help_text=(
            "`ui`: UI messages as JSONL. `bundle`: a ZIP with `history.jsonl`, `meta.json`, the "
            "messages in the range of the active summary under `archive/`, and the images, but no "
            "other files. `markdown`, `html`, `json`: readable documents of the active branch."
        ),
    )
    scope = serializers.ChoiceField(
        choices=SCOPES,
        default="active",
        help_text="Only for `ui`. `active`: the active summary and the messages it does not "
        "cover. `full`: every message of the active branch. `all`: the messages of "
        "every branch.",
    )
    cursor = PlainText(
        default="", help_text="Only for `ui`: `next_cursor` of a stream that ended early."
    )


class UIMessageOut(serializers.Serializer[Any]):
    """A message in the UI message format of chat clients."""

    id = serializers.CharField(help_text="Id of the message.")
    role = serializers.CharField(help_text="`user` or `assistant`.")
    parts = serializers.ListField(
        child=serializers.DictField(),
        help_text="Parts of the message, in the format of the AI SDK.",
    )
    metadata = serializers.DictField(
        help_text="Data added by this server, such as the time and the token count of the message."
    )


# No HEAD: it would record an export in the audit log although no file was sent.
ONLY_SENT = ["get"]


class ChatExportViewSet(Endpoint):
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="chats_export",
        summary="Export a chat",
        parameters=[ExportQuery],
        responses={
            (200, lines.CONTENT_TYPE): OpenApiResponse(
                UIMessageOut, "The file, as a download. `ui`: JSON Lines, one message per line."
            ),
            (200, "application/zip"): OpenApiTypes.BINARY,
            (200, "text/markdown"): OpenApiTypes.STR,
            (200, "text/html"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiTypes.OBJECT,
        },
    )
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> HttpResponseBase:
        """Export a chat as a file. UI messages and bundles can be imported again.

        UI messages are streamed as lines. The stream ends early after 15 minutes (the default of
        `STREAM_SECONDS`), or if the server restarts or your access ends. The last line then has an
        `error` (`list_cut`) and the `next_cursor` of the remaining messages. The audit log records
        the export.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        query = ExportQuery.read(request.query_params.dict())
        form, scope, now = query["form"], query["scope"], timezone.now()
        if form == "ui":
            answer = stream_ui_messages(request, chat, scope=scope, cursor=query["cursor"])
            writing.record_export(chat, scope=scope, form=form, actor=self.actor, now=now)
            return answer
        kind, file = written.export_chat_file(
            chat, form=form, scope="active", actor=self.actor, now=now
        )
        return files.build_file_download(
            file, name=documents.build_export_filename(chat, form=form), kind=kind
        )


def stream_ui_messages(
    request: Request, chat: Chat, *, scope: writing.Scope, cursor: str
) -> HttpResponseBase:
    """Stream the UI messages of a chat as lines. Raises the errors of `stream_lines`."""
    writer = writing.Writer(chat, scope=scope)

    def part(place: int) -> tuple[bytes, int | None]:
        told, end = writer.part(divmod(place, HALF))
        return told, None if end is None else end[0] * HALF + end[1]

    return stream_lines(request, chat, part, name=f"export:{chat.pk}:{scope}", cursor=cursor)


class WholeQuery(Strict):
    """The format of each chat in a complete export."""

    form = serializers.ChoiceField(
        choices=("ui", *documents.FORMS),
        default="ui",
        help_text=(
            "Format of each chat: `ui` (can be imported again, with branches, folders and "
            "images), `markdown`, `html` or `json`."
        ),
    )


class ExportViewSet(Endpoint):
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="export_all",
        summary="Export your data",
        parameters=[WholeQuery],
        responses={(200, "application/zip"): OpenApiTypes.BINARY},
    )
    def retrieve(self, request: Request) -> HttpResponseBase:
        """Export your chats, files, memory, skills and account data as a ZIP archive.

        `chats/` contains your chats; `images/` and `files/` contain the images and files of their
        messages. `deleted_chats/` contains the deleted chats that can be restored, with their
        images and files. `uploads/` contains the uploads that no message uses. `memory.json`
        contains your instructions and all preferences with status, times and sources. `skills/`
        contains the skills of your teams. `account.json` lists chats, files and skills, your
        profile, settings, folders, webhooks and teams, and the names, prefixes and scopes of your
        API keys. An import of the archive restores only chats that were not deleted or temporary.
        A file that the server cannot read has no content in the archive; `code` and `reason` in
        its entry of the list explain this.

        Without the scope `chats:write`, an API key gets no deleted chats, and no preferences whose
        only sources are in deleted chats. Without `webhooks` it gets no webhooks, and without
        `policy:read` no skills. `left_out` in `account.json` names these parts.
        """
        form = WholeQuery.read(request.query_params.dict())["form"]
        file = whole.build_account_archive(
            self.user, form=form, now=timezone.now(), key=get_request_key(request)
        )
        return files.build_file_download(file, name="palimpsest.zip")
