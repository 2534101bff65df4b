"""The state that a policy keeps of a chat: read it, correct it."""

import uuid
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import corrections
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import StateChange
from chats.api.outputs import StateOut, one
from chats.api.schema import READ_ERRORS, answers
from chats.record import access


class StateEndpoint(Endpoint):
    """The state of a chat's active branch, where the policy keeps one."""

    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write"}

    @extend_schema(
        operation_id="chats_state_get",
        responses=answers({200: StateOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read the state, each value's origin, and its schema. 409 `no_state`: none is kept."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        return Response(one(StateOut, shown(corrections.state_in(chat=chat))))

    @extend_schema(
        operation_id="chats_state_change",
        request=StateChange,
        responses=answers({200: StateOut}),
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
