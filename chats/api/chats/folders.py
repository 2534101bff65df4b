"""Folders of chats."""

import uuid

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import listing, memory, organising
from chats.api.chats.chat_inputs import FolderChange, FolderName
from chats.api.chats.chat_outputs import FolderOut
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import serialize_rows
from chats.record import access


class FolderList(serializers.Serializer[object]):
    """All folders, on one page."""

    data = FolderOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class FolderViewSet(ConditionalEndpoint):
    serializer_class = FolderOut
    lookup_url_kwarg = "folder_id"

    def rows(self) -> QuerySet[User]:
        """Return the user's row, which is locked before any change of their folders."""
        return User.objects.filter(pk=self.user.pk)

    @extend_schema(summary="List folders", responses=FolderList)
    def list(self, request: Request) -> Response:
        """List all your folders, ordered by name, without their chats."""
        return Response({"data": serialize_rows(FolderOut, listing.list_folders(owner=self.user))})

    @extend_schema(summary="Create a folder", request=FolderName)
    def create(self, request: Request) -> Response:
        """Create an empty folder. To move a chat into it, update the chat."""
        values = FolderName.read(request.data)
        return self.respond(organising.create_folder(owner=self.user, **values), status=201)

    @extend_schema(summary="Get a folder")
    def retrieve(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Retrieve a folder. To list its chats, filter the list of chats."""
        return self.respond(access.get_folder(user=self.user, folder_id=folder_id))

    @extend_schema(operation_id="folders_rename", summary="Update a folder", request=FolderChange)
    def partial_update(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Rename a folder, or turn your memory on or off for its chats.

        Omitted fields keep their values.
        """
        folder = access.get_folder(user=self.user, folder_id=folder_id)
        values = FolderChange.read(request.data)
        if "name" in values:
            folder = organising.rename_folder(
                folder=folder, name=values["name"], now=timezone.now()
            )
        if "memory" in values:
            folder = memory.set_memory_of_folder(folder=folder, remembers=values["memory"])
        return self.respond(folder)

    @extend_schema(summary="Delete a folder")
    def destroy(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Delete a folder. Its chats are kept, without a folder.

        Preferences that apply only to the folder are deleted with it, or no longer used if a legal
        hold covers them.
        """
        folder = access.get_folder(user=self.user, folder_id=folder_id)
        EmptyBody.read(request.data)
        organising.delete_folder(folder=folder, now=timezone.now())
        return Response(status=204)
