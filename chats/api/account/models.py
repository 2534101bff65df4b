"""The list of models that the instance offers."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import lifecycle
from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.outputs import ModelOut, serialize_rows
from chats.api.core.schema import READ_ERRORS, add_error_responses


class ModelList(serializers.Serializer[object]):
    """All models, on one page."""

    data = ModelOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class Models(Endpoint):
    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="models_list",
        summary="List models",
        responses=add_error_responses({200: ModelList}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List every enabled model. `allowed`: your policy allows it in a new chat."""
        return Response(
            {
                "data": serialize_rows(
                    ModelOut,
                    lifecycle.build_model_choices(chat=None, user=get_request_user(request)),
                )
            }
        )
