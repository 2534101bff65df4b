"""A person's folders of chats."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import listing, memory, organising
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import FolderChange, FolderName, Nothing
from chats.api.outputs import FolderOut, items, one
from chats.api.schema import EDIT_ERRORS, READ_ERRORS, answers
from chats.api.unchanged import Unchanged
from chats.record import access


class FolderList(serializers.Serializer[object]):
    """Every folder; there is one page of them."""

    data = FolderOut(many=True)  # type: ignore[assignment]  # the metaclass takes fields out


class Folders(Endpoint):
    """The person's folders."""

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}

    @extend_schema(
        operation_id="folders_list", responses=answers({200: FolderList}, errors=READ_ERRORS)
    )
    def get(self, request: Request) -> Response:
        """List the folders by their names."""
        return Response({"data": items(FolderOut, listing.folders_of(owner=person(request)))})

    @extend_schema(
        operation_id="folders_create", request=FolderName, responses=answers({201: FolderOut})
    )
    def post(self, request: Request) -> Response:
        """Make an empty folder; a chat is put into it by changing the chat."""
        values = FolderName.read(request.data)
        folder = organising.create_folder(owner=person(request), **values)
        return Response(one(FolderOut, folder), status=201)


class OneFolder(Unchanged):
    """One folder."""

    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write", "DELETE": "chats:write"}

    def rows(self, request: Request, **_named: Any) -> QuerySet[User]:
        """Return the person, as what changes folders locks them."""
        return User.objects.filter(pk=person(request).pk)

    @extend_schema(
        operation_id="folders_get",
        responses=answers({200: FolderOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Read the folder; its chats are in the list of chats."""
        return Response(
            one(FolderOut, access.folder_for(user=person(request), folder_id=folder_id))
        )

    @extend_schema(
        operation_id="folders_rename",
        request=FolderChange,
        responses=answers({200: FolderOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Give the folder another name, or let its chats use their owner's memory or not."""
        folder = access.folder_for(user=person(request), folder_id=folder_id)
        values = FolderChange.read(request.data)
        if "name" in values:
            folder = organising.rename_folder(folder=folder, name=values["name"])
        if "memory" in values:
            folder = memory.set_memory_of_folder(folder=folder, remembers=values["memory"])
        return Response(one(FolderOut, folder))

    @extend_schema(
        operation_id="folders_delete",
        request=None,
        responses=answers({204: None}, errors=EDIT_ERRORS),
    )
    def delete(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Take the folder away; its chats stay, in no folder."""
        folder = access.folder_for(user=person(request), folder_id=folder_id)
        Nothing.read(request.data)
        organising.delete_folder(folder=folder, now=timezone.now())
        return Response(status=204)
