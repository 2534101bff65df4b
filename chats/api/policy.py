"""The effective policy of a chat, and the source of each of its values."""

import hashlib
import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.outputs import PolicyOut, one
from chats.api.schema import READ_ERRORS, answers
from chats.prompt import model_choice
from chats.record import access
from contextpolicy.models import EffectivePolicy, ModelSpec


class ChatPolicy(Endpoint):
    """The policy that governs the context of a chat now."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="chats_policy_get",
        responses=answers({200: PolicyOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read the effective policy for the chat and its model."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        model = chat.model or ModelSpec.objects.filter(is_default=True, enabled=True).first()
        return Response(
            one(PolicyOut, shown(model_choice.effective_policy(chat=chat, model=model)))
        )


def shown(policy: EffectivePolicy) -> dict[str, Any]:
    """Return the policy as its chat's owner may see it: a hidden system text by size and hash."""
    values = dict(policy.values)
    system_text = values["system_text"]
    hidden = bool(values["hide_system_text"])
    if hidden:
        values["system_text"] = None
    return {
        "digest": policy.digest,
        "label": policy.label,
        "values": values,
        "system_text": {
            "hidden": hidden,
            "characters": len(system_text),
            "sha256": hashlib.sha256(system_text.encode()).hexdigest(),
        },
        "sources": {
            name: dict(zip(("level", "policy", "version", "locked"), source, strict=True))
            for name, source in policy.sources.items()
        },
        "adjusted": [
            dict(zip(("field", "wanted", "used"), change, strict=True))
            for change in policy.adjusted
        ],
    }
