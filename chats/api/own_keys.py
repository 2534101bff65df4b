"""A person's API keys. In a session only: a stolen key must not be able to make more."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import NO_KEY, Endpoint, person
from chats.api.inputs import NewKey, Nothing
from chats.api.outputs import KeyOut, NewKeyOut, items, one
from chats.api.schema import READ_ERRORS, answers
from chats.people import keys, sessions


class KeyList(serializers.Serializer[object]):
    """Every key; there is one page of them."""

    data = KeyOut(many=True)  # type: ignore[assignment]  # the metaclass takes fields out


class Keys(Endpoint):
    """The person's keys."""

    scopes: ClassVar = {"GET": NO_KEY, "POST": NO_KEY}

    @extend_schema(operation_id="keys_list", responses=answers({200: KeyList}, errors=READ_ERRORS))
    def get(self, request: Request) -> Response:
        """List the keys, newest first, with those that ended; never their secrets."""
        return Response({"data": items(KeyOut, keys.keys_of(owner=person(request)))})

    @extend_schema(operation_id="keys_create", request=NewKey, responses=answers({201: NewKeyOut}))
    def post(self, request: Request) -> Response:
        """Make a key, within 15 minutes of signing in. `secret` is shown this once."""
        now = timezone.now()
        sessions.require_recent(session=request.session, now=now)
        values = NewKey.read(request.data)
        key, secret = keys.create_key(owner=person(request), now=now, **values)
        return Response({**one(KeyOut, key), "secret": secret}, status=201)


class OneKey(Endpoint):
    """One key of the person."""

    scopes: ClassVar = {"DELETE": NO_KEY}

    @extend_schema(operation_id="keys_revoke", request=None, responses=answers({200: KeyOut}))
    def delete(self, request: Request, key_id: uuid.UUID) -> Response:
        """Revoke the key, at once and for good. Its row stays in the list."""
        key = keys.key_for(user=person(request), key_id=key_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        revoked = keys.revoke_key(key=key, actor=actor, now=timezone.now())
        return Response(one(KeyOut, revoked))
