"""Serializers for events of the audit log."""

from typing import Any

from rest_framework import serializers


class EventOut(serializers.Serializer[Any]):
    """An audit event.

    Its hash covers its data and `previous_hash`, the hash of the previous event of the same `scope`
    (`instance` or a chat).
    """

    scope = serializers.CharField()
    seq = serializers.IntegerField()
    type = serializers.CharField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(
        help_text=(
            "Actor that caused the event: `user:<id>`, or a part of the server, such as "
            "`worker` or `system`."
        )
    )
    chat = serializers.UUIDField(
        source="chat_id",
        allow_null=True,
        help_text="Id of the chat. Null: the event concerns no chat.",
    )
    turn = serializers.UUIDField(
        source="turn_id",
        allow_null=True,
        help_text="Id of the turn. Null: the event concerns no turn.",
    )
    data = serializers.DictField()  # type: ignore[assignment]  # DRF's metaclass removes fields
    previous_hash = serializers.CharField(
        help_text="Hash of the previous event of the same audit log, in hex."
    )
    hash = serializers.CharField(help_text="SHA-256 of `previous_hash` and the event, in hex.")
