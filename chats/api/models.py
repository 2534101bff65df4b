"""The models of this instance."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import lifecycle
from chats.api.endpoint import Endpoint, person
from chats.api.outputs import ModelOut, items
from chats.api.schema import READ_ERRORS, answers


class ModelList(serializers.Serializer[object]):
    """All models, on one page."""

    data = ModelOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class Models(Endpoint):
    """The models of this instance."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="models_list",
        summary="List models",
        responses=answers({200: ModelList}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List every enabled model, and whether your policy allows it in a new chat."""
        return Response(
            {"data": items(ModelOut, lifecycle.models_for(chat=None, user=person(request)))}
        )
