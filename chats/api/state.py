"""The state that a policy keeps of a chat: read it, correct it."""

import uuid
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import corrections
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import StateChange, StateRestoration
from chats.api.outputs import StateOut, items, one
from chats.api.schema import EDIT_ERRORS, READ_ERRORS, answers
from chats.api.unchanged import Unchanged
from chats.models import Chat
from chats.record import access


class StateEndpoint(Unchanged):
    """The state of a chat's active branch, where the policy keeps one."""

    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write"}

    def rows(self, _request: Request, *, chat_id: uuid.UUID) -> QuerySet[Chat]:
        """Return the chat, which whoever writes its state locks first."""
        return Chat.objects.filter(pk=chat_id)

    @extend_schema(
        operation_id="chats_state_get",
        responses=answers({200: StateOut, 304: None}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read the state, each value's origin, and its schema. 409 `no_state`: none is kept."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        return Response(one(StateOut, shown(corrections.state_in(chat=chat))))

    @extend_schema(
        operation_id="chats_state_change",
        request=StateChange,
        responses=answers({200: StateOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Correct the state, from the next turn on.

        409 `state_changed`: `version` is not the one in force. 422 `state_invalid`: the values do
        not fit the schema.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        values = StateChange.read(request.data)
        found = corrections.correct(
            chat=chat,
            user=person(request),
            version=values["version"],
            values=values["values"],
            removed=values["remove"],
            now=timezone.now(),
        )
        return Response(one(StateOut, shown(found)))


class StateChangeOut(serializers.Serializer[object]):
    """A change of one field by a version; null: not known."""

    name = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    seq = serializers.IntegerField(
        allow_null=True, help_text="The message after which it was set; null: it was taken away."
    )


class StateVersionOut(serializers.Serializer[object]):
    """One version of a state."""

    version = serializers.IntegerField(source="row.version")
    kind = serializers.CharField(
        source="row.kind", help_text="`extracted`, `corrected`, `reset`, `restored` or `erased`."
    )
    to_seq = serializers.IntegerField(source="row.to_seq")
    created_at = serializers.DateTimeField(source="row.created_at")
    values = serializers.JSONField(source="row.values")
    changes = StateChangeOut(many=True)


class StateVersionList(serializers.Serializer[object]):
    """The newest versions, newest first; there is one page of them."""

    data = StateVersionOut(many=True)  # type: ignore[assignment]  # the base has another


class StateVersions(Endpoint):
    """The history of a state."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_state_versions",
        responses=answers({200: StateVersionList}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the newest 100 versions, each with what it changed. 409 `no_state`: none is kept."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        _, versions = corrections.history(chat=chat)
        return Response({"data": items(StateVersionOut, versions)})


class RestoreState(Endpoint):
    """The return of an older version."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(
        operation_id="chats_state_restore",
        request=StateRestoration,
        responses=answers({200: StateOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Bring the values of an older version back, as a new version, from the next turn on.

        409 `state_changed`: `version` is not the one in force. 404 `no_such_version`.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        values = StateRestoration.read(request.data)
        found = corrections.restore(chat=chat, user=person(request), now=timezone.now(), **values)
        return Response(one(StateOut, shown(found)))


def shown(found: corrections.ChatKept) -> dict[str, Any]:
    """Return the state as its owner may see it."""
    kept = found.kept
    return {
        "branch": found.branch.pk,
        "version": kept.version,
        "values": kept.values,
        "origins": kept.row.origins if kept.row else {},
        "to_seq": kept.row.to_seq if kept.row else 0,
        "model": kept.row.model_name if kept.row else "",
        "updated_at": kept.row.created_at if kept.row else None,
        "policy": found.policy,
        "schema": kept.schema,
    }
