"""The list of models that the instance offers."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import lifecycle
from chats.api.account.account_outputs import ModelOut
from chats.api.core.base import Endpoint
from chats.api.core.outputs import serialize_rows


class ModelList(serializers.Serializer[object]):
    """All models, on one page."""

    data = ModelOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class ModelViewSet(Endpoint):
    @extend_schema(summary="List models", responses=ModelList)
    def list(self, request: Request) -> Response:
        """List the enabled models. `allowed` is true for models that your policy allows in new
        chats.
        """
        return Response(
            {
                "data": serialize_rows(
                    ModelOut, lifecycle.build_model_choices(chat=None, user=self.user)
                )
            }
        )
