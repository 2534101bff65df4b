"""The effective policy of a chat, with the source of each value."""

import hashlib
import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.chat_inputs import EffectiveQuery, ExplainQuery
from chats.api.chats.effective_policy_outputs import ExplanationOut, PolicyOut
from chats.api.core.base import Endpoint
from chats.api.core.outputs import serialize_row
from chats.ground.refusals import NotFound
from chats.prompt import model_choice
from chats.prompt.policy_explanation import (
    Explanation,
    explain_for,
    find_viewpoint_by_names,
    resolve_viewpoint,
)
from chats.record import access
from contextpolicy.engine.policy.policy import TEXT_FIELDS
from contextpolicy.models import EffectivePolicy, ModelSpec

SOURCE = ("level", "policy", "version", "locked")


class ChatPolicyViewSet(Endpoint):
    serializer_class = PolicyOut
    read_scope = "policy:read"

    @extend_schema(summary="Get the effective policy of a chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the values that apply to a chat and its model, and the policies that set them."""
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        model = chat.model or ModelSpec.objects.filter(is_default=True, enabled=True).first()
        return self.respond(
            serialize_effective_policy(
                model_choice.resolve_effective_policy(chat=chat, model=model)
            )
        )

    @extend_schema(
        summary="Explain the policy of a chat", parameters=[ExplainQuery], responses=ExplanationOut
    )
    @action(detail=False, url_path="explained")
    def explain(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Explain the policy of a chat, optionally for an agent of its team or another model.

        Text fields of policies are not included: their values are null. Raises `NotFound`,
        `NotThere` and `PolicyRefused`.
        """
        query = ExplainQuery.read(request.query_params.dict())
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        viewpoint = resolve_viewpoint(
            self.user, chat=chat, role_id=query.get("agent", ""), model=query.get("model", "")
        )
        return Response(
            serialize_row(
                ExplanationOut, serialize_explanation(explain_for(viewpoint), sees_texts=False)
            )
        )


class ExplainedPolicyViewSet(Endpoint):
    serializer_class = ExplanationOut
    read_scope = "policy:read"

    @extend_schema(
        operation_id="policies_effective",
        summary="Explain the policy of a user",
        parameters=[EffectiveQuery],
    )
    def retrieve(self, request: Request) -> Response:
        """Explain the policy of a user, optionally in a chat, for an agent or a model.

        Users need the permission `contextpolicy.view_effectivepolicy`. Raises `NotThere` and
        `PolicyRefused`, and `NotFound` without permission to view policies.
        """
        if not self.user.has_perm("contextpolicy.view_effectivepolicy"):
            raise NotFound
        query = EffectiveQuery.read(request.query_params.dict())
        viewpoint = find_viewpoint_by_names(
            username=query["person"],
            chat_id=query.get("chat"),
            role_id=query.get("agent", ""),
            model=query.get("model", ""),
        )
        return self.respond(serialize_explanation(explain_for(viewpoint), sees_texts=True))


def serialize_explanation(found: Explanation, *, sees_texts: bool) -> dict[str, Any]:
    """Return an explanation as JSON.

    Text written by administrators is included only with `sees_texts`; its source always is.
    """

    def value_of(name: str, value: object) -> object:
        return value if sees_texts or name not in TEXT_FIELDS else None

    viewpoint = found.viewpoint
    return {
        "person": viewpoint.person.get_username(),
        "chat": viewpoint.chat.pk if viewpoint.chat else None,
        "agent": viewpoint.agent.role_id if viewpoint.agent else None,
        "model": viewpoint.model.slug if viewpoint.model else None,
        "fields": [
            {
                "field": field.name,
                "value": value_of(field.name, field.value),
                "wanted": value_of(field.name, field.wanted),
                "source": dict(zip(SOURCE, field.source, strict=True)),
                "reason": field.reason,
                "used": field.is_used,
                "lost": [
                    {
                        "value": value_of(field.name, lost.value),
                        "source": dict(
                            zip(SOURCE, (lost.level, lost.slug, lost.version, False), strict=True)
                        ),
                        "reason": lost.reason,
                    }
                    for lost in field.losing
                ],
            }
            for field in found.fields
        ],
    }


def serialize_effective_policy(policy: EffectivePolicy) -> dict[str, Any]:
    """Return the policy as JSON for the owner of the chat.

    If the policy hides its texts, they are null; only the size and the hash of the system text
    are included.
    """
    values = dict(policy.values)
    system_text = values["system_text"]
    hidden = bool(values["hide_system_text"])
    if hidden:
        values.update(dict.fromkeys(TEXT_FIELDS))
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
            name: dict(zip(SOURCE, source, strict=True)) for name, source in policy.sources.items()
        },
        "adjusted": [
            dict(zip(("field", "wanted", "used"), change, strict=True))
            for change in policy.adjusted
        ],
    }
