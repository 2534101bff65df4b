"""Serves the images of messages from API clients."""

import uuid

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from chats.record import access
from chats.record.images import build_image_name
from chats.streams.files import SANDBOX_POLICY
from chats.web.auth import PersonRequest, signed_in


@require_safe
@signed_in
def message_image(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID, sha256: str
) -> HttpResponse:
    """Return an image from a message, with the media type of its bytes. Raises `NotFound`."""
    image = access.get_message_image(
        user=request.user, chat_id=chat_id, message_id=message_id, sha256=sha256
    )
    answer = HttpResponse(bytes(image.data), content_type=image.media_type)
    answer["Content-Security-Policy"] = SANDBOX_POLICY
    answer["Content-Disposition"] = f'inline; filename="{build_image_name(image)}"'
    return answer
