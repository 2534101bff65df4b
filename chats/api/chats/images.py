"""Images in messages that are not uploads: they come from API clients or tool results."""

import uuid

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from chats.api.core.base import Endpoint
from chats.record import access
from chats.record.images import build_image_name
from chats.streams.files import SANDBOX_POLICY

ANY_IMAGE = "image/*"


class MessageImageViewSet(Endpoint):
    """An image of a message."""

    @extend_schema(
        operation_id="chats_messages_image",
        summary="Download an image of a message",
        responses={(200, ANY_IMAGE): OpenApiTypes.BINARY},
    )
    def retrieve(
        self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID, sha256: str
    ) -> HttpResponse:
        """Download an image of a message. The `reference` of its part contains the SHA-256.

        The available images are those that models receive: images from API clients and tool
        results, and copies of uploaded images. Browsers save the image instead of opening it.
        """
        image = access.get_message_image(
            user=self.user, chat_id=chat_id, message_id=message_id, sha256=sha256
        )
        answer = HttpResponse(bytes(image.data), content_type=image.media_type)
        answer["Content-Disposition"] = f'attachment; filename="{build_image_name(image)}"'
        answer["Cache-Control"] = "no-store"
        answer["Content-Security-Policy"] = SANDBOX_POLICY
        return answer
