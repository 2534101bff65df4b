"""A person's API keys. Requires a session, so that a stolen key cannot create more keys."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import NO_KEY, Endpoint, get_request_user
from chats.api.core.inputs import EmptyBody, NewKey
from chats.api.core.outputs import KeyOut, NewKeyOut, serialize_row, serialize_rows
from chats.api.core.schema import READ_ERRORS, add_error_responses
from chats.people import keys, sessions


class KeyList(serializers.Serializer[object]):
    """All API keys, on one page."""

    data = KeyOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class Keys(Endpoint):
    scopes: ClassVar = {"GET": NO_KEY, "POST": NO_KEY}

    @extend_schema(
        operation_id="keys_list",
        summary="List API keys",
        responses=add_error_responses({200: KeyList}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List your API keys, newest first, including revoked and expired ones, without secrets."""
        return Response(
            {"data": serialize_rows(KeyOut, keys.list_api_keys(owner=get_request_user(request)))}
        )

    @extend_schema(
        operation_id="keys_create",
        summary="Create an API key",
        request=NewKey,
        responses=add_error_responses({201: NewKeyOut}),
    )
    def post(self, request: Request) -> Response:
        """Create an API key. `secret` is in this response only.

        The last sign-in of the session must be at most 15 minutes ago.
        """
        now = timezone.now()
        sessions.require_recent(session=request.session, now=now)
        values = NewKey.read(request.data)
        key, secret = keys.create_key(owner=get_request_user(request), now=now, **values)
        return Response({**serialize_row(KeyOut, key), "secret": secret}, status=201)


class KeyDetail(Endpoint):
    scopes: ClassVar = {"DELETE": NO_KEY}

    @extend_schema(
        operation_id="keys_revoke",
        summary="Revoke an API key",
        request=None,
        responses=add_error_responses({200: KeyOut}),
    )
    def delete(self, request: Request, key_id: uuid.UUID) -> Response:
        """Revoke an API key immediately and permanently.

        Its next request fails with 401. It stays in the list. Repeating the request has no effect.
        """
        key = keys.get_own_api_key(user=get_request_user(request), key_id=key_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        revoked = keys.revoke_key(key=key, actor=actor, now=timezone.now())
        return Response(serialize_row(KeyOut, revoked))
