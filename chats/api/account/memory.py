"""A user's memory: instructions and preferences."""

import uuid
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import memory
from chats.api.account.account_inputs import (
    MemoryChange,
    NewPreference,
    PreferenceChange,
    PreferenceDeletionQuery,
)
from chats.api.core.base import Endpoint
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.inputs import EmptyBody
from chats.memory.preferences import exported_memory, memory_settings, preferences
from chats.models import MemorySettings, Preference
from chats.record import access


class EvidenceOut(serializers.Serializer[object]):
    """The excerpt of a message from which a preference was taken."""

    chat = serializers.UUIDField(help_text="Id of the chat that contains the message.")
    message = serializers.UUIDField(help_text="Id of the message.")
    start = serializers.IntegerField(
        help_text="Position of the first character in the message's text, in code points."
    )
    end = serializers.IntegerField(
        help_text="Position after the last character of the excerpt, in code points."
    )


class PreferenceOut(serializers.Serializer[object]):
    """A current, suggested or replaced preference."""

    id = serializers.UUIDField()
    slot = serializers.ChoiceField(
        choices=Preference.Slot.values,
        help_text="Kind of the preference. Only `note` can have several current preferences.",
    )
    text = serializers.CharField(help_text="The preference, as worded in prompts.")
    kind = serializers.CharField(
        help_text=(
            "`written` (entered by the user), `told` (stated in a message) or `inferred` (by "
            "a model)."
        )
    )
    status = serializers.CharField(
        help_text=(
            "`proposed` (suggested, not used), `current` (used in prompts) or `superseded` "
            "(replaced, or deleted under a legal hold)."
        )
    )
    confidence = serializers.IntegerField(
        help_text=(
            "Confidence that the preference is correct, in percent. 100: written or confirmed "
            "by the user."
        )
    )
    folder = serializers.UUIDField(
        allow_null=True,
        help_text=(
            "Id of the folder to whose chats the preference applies. Null: it applies to all chats."
        ),
    )
    valid_from = serializers.DateTimeField(
        help_text="Time of the message that states the preference, or the time when you entered it."
    )
    valid_to = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time at which another preference replaced it, or at which you deleted it under a "
            "legal hold. Null: neither."
        ),
    )
    learned_at = serializers.DateTimeField(
        help_text="Time at which the preference was saved, suggested or accepted."
    )
    evidence = EvidenceOut(
        many=True,
        help_text=(
            "Up to 50 messages from which the preference was taken. Empty: you wrote it yourself."
        ),
    )


class MemoryOut(serializers.Serializer[object]):
    """A user's instructions, memory settings and preferences, including replaced ones."""

    instructions = serializers.CharField(
        help_text="Text sent with the prompts of your chats. Empty: none."
    )
    consented_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the user turned the memory on. Null: the memory is off.",
    )
    paused = serializers.BooleanField(
        help_text=(
            "True: no preferences are saved from messages, and neither preferences nor "
            "instructions are sent."
        )
    )
    inferring_since = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time since which a model may read messages and suggest preferences. Null: "
            "suggestions are off."
        ),
    )
    preferences = PreferenceOut(
        many=True,
        help_text=(
            "Current preferences, then suggested preferences, then replaced preferences, each "
            "group ordered by slot and age. "
            "Preferences taken only from deleted chats are not listed."
        ),
    )


class MemoryViewSet(ConditionalEndpoint):
    serializer_class = MemoryOut

    def rows(self) -> QuerySet[MemorySettings]:
        """Create the user's settings if they do not exist, and return them."""
        return memory_settings.select_stored_settings(self.user.pk)

    @extend_schema(summary="Get your memory")
    def retrieve(self, request: Request) -> Response:
        """Get your instructions, settings and preferences, including replaced ones."""
        return Response(exported_memory.export_memory(self.user.pk))

    @extend_schema(summary="Update your memory", request=MemoryChange)
    def partial_update(self, request: Request) -> Response:
        """Update your instructions and memory settings.

        Omitted fields keep their values. Returns 409 `memory_off` if `inferring` is true while the
        memory is off.
        """
        values = MemoryChange.read(request.data)
        found: dict[str, Any] = {"owner_id": self.user.pk, "now": timezone.now()}
        with transaction.atomic():
            if "instructions" in values:
                memory_settings.write_instructions(**found, text=values["instructions"])
            if "consent" in values:
                memory_settings.set_consent(**found, agrees=values["consent"])
            if "inferring" in values:
                memory_settings.set_inferring(**found, agrees=values["inferring"])
            if "paused" in values:
                memory_settings.set_paused(**found, paused=values["paused"])
        return Response(exported_memory.export_memory(self.user.pk))


class PreferenceViewSet(Endpoint):
    serializer_class = PreferenceOut
    lookup_url_kwarg = "preference_id"
    repeatable = ("create",)

    @extend_schema(summary="Add a preference", request=NewPreference)
    def create(self, request: Request) -> Response:
        """Add a preference. It replaces the current preference in its slot, except in `note`.

        A preference for a folder replaces only a preference for the same folder. Returns 409
        `memory_off` while the memory is off.
        """
        values = NewPreference.read(request.data)
        folder = None
        if values["folder"]:
            folder = access.get_folder(user=self.user, folder_id=values["folder"])
        row = preferences.write_preference(
            owner_id=self.user.pk,
            slot=values["slot"],
            text=values["text"],
            folder=folder,
            now=timezone.now(),
        )
        return Response(exported_memory.serialize_preference(row), status=201)

    @extend_schema(summary="Update a preference", request=PreferenceChange)
    def partial_update(self, request: Request, preference_id: uuid.UUID) -> Response:
        """Accept a suggested preference, so that prompts use it.

        With `text`, save the new text instead. It becomes a new preference with its own id; a
        current preference becomes `superseded`, a suggested one is deleted. Without `text`, a
        preference that is not suggested does not change.
        """
        found: dict[str, Any] = {"owner_id": self.user.pk, "preference_id": preference_id}
        preferences.get_preference(**found)
        values = PreferenceChange.read(request.data)
        if "text" in values:
            row = preferences.rewrite_preference(**found, text=values["text"], now=timezone.now())
        else:
            row = preferences.accept_preference(**found, now=timezone.now())
        return Response(exported_memory.serialize_preference(row))

    @extend_schema(summary="Delete a preference", parameters=[PreferenceDeletionQuery])
    def destroy(self, request: Request, preference_id: uuid.UUID) -> Response:
        """Delete a preference and its text in stored prompts. It is not learned again.

        You can still add it yourself. The messages from which it was taken are not deleted. Returns
        409 `under_legal_hold` if a legal hold covers it; the preference is then no longer used, and
        deleted when the hold ends.
        """
        preferences.get_preference(owner_id=self.user.pk, preference_id=preference_id)
        EmptyBody.read(request.data)
        values = PreferenceDeletionQuery.read(request.query_params.dict())
        memory.delete_saved_preference(
            owner=self.user, preference_id=preference_id, now=timezone.now(), **values
        )
        return Response(status=204)
