"""The state that a policy maintains for a chat: read and correct it."""

import uuid
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import state_edits
from chats.api.chats.chat_inputs import StateChange, StateRestoration
from chats.api.chats.chat_outputs import StateOut
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.outputs import serialize_rows
from chats.models import Chat
from chats.record import access


class StateChangeOut(serializers.Serializer[object]):
    """A field that the version changed, with its value before and after. Null: not set."""

    name = serializers.CharField(help_text="Name of the field.")
    before = serializers.JSONField(
        allow_null=True, help_text="Value in the previous version. Null: not set."
    )
    after = serializers.JSONField(
        allow_null=True, help_text="Value in this version. Null: not set."
    )
    seq = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Sequence number of the message after which the field was set. Null: the field was "
            "removed."
        ),
    )


class StateVersionOut(serializers.Serializer[object]):
    """A version of the state, with its origin and the changed fields."""

    version = serializers.IntegerField(
        source="row.version", help_text="Version number, starting at 1."
    )
    kind = serializers.CharField(
        source="row.kind",
        help_text=(
            "Origin of the version: `extracted` (by a model), `corrected`, `reset` or "
            "`restored` (by a user), or `erased` (cleared by an erasure)."
        ),
    )
    to_seq = serializers.IntegerField(
        source="row.to_seq",
        help_text="Sequence number of the last message that the version takes into account.",
    )
    created_at = serializers.DateTimeField(source="row.created_at")
    values = serializers.JSONField(
        source="row.values", help_text="All values of the version, by field name."
    )
    changes = StateChangeOut(many=True, help_text="Fields that differ from the previous version.")


class StateVersionList(serializers.Serializer[object]):
    """The latest versions, newest first, on one page."""

    data = StateVersionOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class StateViewSet(ConditionalEndpoint):
    serializer_class = StateOut

    def rows(self) -> QuerySet[Chat]:
        """Return the chat, which is locked before any change of its state."""
        return Chat.objects.filter(pk=self.kwargs["chat_id"])

    @extend_schema(summary="Get the state of a chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the state of a chat, with the origin of each value and the schema.

        Returns 409 `no_state` if the chat's policy does not maintain a state.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        return self.respond(serialize_state(state_edits.load_chat_state(chat=chat)))

    @extend_schema(summary="Correct the state of a chat", request=StateChange)
    def partial_update(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Correct the state. Prompts use the correction from the next turn on.

        Returns 409 `state_changed` if `version` is not the latest version, and 422
        `state_invalid` if the values do not match the schema.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        values = StateChange.read(request.data)
        found = state_edits.edit_state(
            chat=chat,
            user=self.user,
            version=values["version"],
            values=values["values"],
            removed=values["remove"],
            now=timezone.now(),
        )
        return self.respond(serialize_state(found))

    @extend_schema(summary="List versions of the state", responses=StateVersionList)
    @action(detail=False)
    def versions(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the 100 latest versions of the state and their changes.

        Returns 409 `no_state` if the chat's policy does not maintain a state.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        _, versions = state_edits.list_state_history(chat=chat)
        return Response({"data": serialize_rows(StateVersionOut, versions)})

    @extend_schema(summary="Restore a version of the state", request=StateRestoration)
    @action(detail=False, methods=["post"])
    def restore(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Restore the values of an older version as a new version, from the next turn on.

        Returns 409 `state_changed` if `version` is not the latest version, and 404
        `no_such_version` if the branch does not have the version to restore.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        values = StateRestoration.read(request.data)
        found = state_edits.restore_state(chat=chat, user=self.user, now=timezone.now(), **values)
        return self.respond(serialize_state(found))


def serialize_state(found: state_edits.ChatKept) -> dict[str, Any]:
    """Return the state as JSON for the chat's owner."""
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
