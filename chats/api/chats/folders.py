"""Folders of chats."""

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
from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.inputs import EmptyBody, FolderChange, FolderName
from chats.api.core.outputs import FolderOut, serialize_row, serialize_rows
from chats.api.core.schema import EDIT_ERRORS, READ_ERRORS, add_error_responses
from chats.record import access


class FolderList(serializers.Serializer[object]):
    """All folders, on one page."""

    data = FolderOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class Folders(Endpoint):
    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}

    @extend_schema(
        operation_id="folders_list",
        summary="List folders",
        responses=add_error_responses({200: FolderList}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List all your folders, ordered by name, without their chats."""
        return Response(
            {
                "data": serialize_rows(
                    FolderOut, listing.list_folders(owner=get_request_user(request))
                )
            }
        )

    @extend_schema(
        operation_id="folders_create",
        summary="Create a folder",
        request=FolderName,
        responses=add_error_responses({201: FolderOut}),
    )
    def post(self, request: Request) -> Response:
        """Create an empty folder. To move a chat into it, update the chat."""
        values = FolderName.read(request.data)
        folder = organising.create_folder(owner=get_request_user(request), **values)
        return Response(serialize_row(FolderOut, folder), status=201)


class FolderDetail(ConditionalEndpoint):
    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write", "DELETE": "chats:write"}

    def rows(self, request: Request, **_named: Any) -> QuerySet[User]:
        """Return the user's row, which every change of folders locks."""
        return User.objects.filter(pk=get_request_user(request).pk)

    @extend_schema(
        operation_id="folders_get",
        summary="Get a folder",
        responses=add_error_responses({200: FolderOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Retrieve a folder. To list its chats, filter the list of chats."""
        return Response(
            serialize_row(
                FolderOut, access.get_folder(user=get_request_user(request), folder_id=folder_id)
            )
        )

    @extend_schema(
        operation_id="folders_rename",
        summary="Update a folder",
        request=FolderChange,
        responses=add_error_responses({200: FolderOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Rename a folder, or turn your memory on or off for its chats. Absent fields keep their
        value.
        """
        folder = access.get_folder(user=get_request_user(request), folder_id=folder_id)
        values = FolderChange.read(request.data)
        if "name" in values:
            folder = organising.rename_folder(
                folder=folder, name=values["name"], now=timezone.now()
            )
        if "memory" in values:
            folder = memory.set_memory_of_folder(folder=folder, remembers=values["memory"])
        return Response(serialize_row(FolderOut, folder))

    @extend_schema(
        operation_id="folders_delete",
        summary="Delete a folder",
        request=None,
        responses=add_error_responses({204: None}, errors=EDIT_ERRORS),
    )
    def delete(self, request: Request, folder_id: uuid.UUID) -> Response:
        """Delete a folder. Its chats are kept and have no folder afterwards."""
        folder = access.get_folder(user=get_request_user(request), folder_id=folder_id)
        EmptyBody.read(request.data)
        organising.delete_folder(folder=folder, now=timezone.now())
        return Response(status=204)
