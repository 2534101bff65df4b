"""Serializers for events of the audit log."""

from typing import Any

from rest_framework import serializers


class EventOut(serializers.Serializer[Any]):
    """An audit event.

    Its hash covers all its fields and `previous_hash`, the hash of the previous event of the same
    `scope`.
    """

    scope = serializers.CharField(
        help_text="Audit log of the event: `instance`, or `chat:` followed by the chat's id."
    )
    seq = serializers.IntegerField(
        help_text="Position of the event in its audit log, starting at 1."
    )
    type = serializers.CharField(help_text="Type of the event, such as `chat.created`.")
    at = serializers.DateTimeField(help_text="Time at which the event was recorded.")
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
    data = serializers.DictField(  # type: ignore[assignment]  # DRF's metaclass removes fields
        help_text="Ids, numbers and reasons; never the text of a message, a prompt or a summary."
    )
    previous_hash = serializers.CharField(
        help_text=(
            "Hash of the previous event of the same audit log, in hex. 64 zeros: the first event."
        )
    )
    hash = serializers.CharField(
        help_text=(
            "SHA-256 in hex of `previous_hash`, followed by the event as canonical JSON (as in a "
            "`jsonl` export)."
        )
    )
