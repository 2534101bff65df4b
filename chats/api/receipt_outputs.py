"""The outputs about receipts: what one model call was sent, part by part."""

from collections.abc import Sequence
from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.models import Receipt
from contextpolicy.engine.segments import Origin


class SegmentOut(serializers.Serializer[Sequence[Any]]):
    """One part of a prompt: its kind, its source, its size."""

    origin = serializers.SerializerMethodField()
    part = serializers.SerializerMethodField(
        help_text="Of the system text and of what stands before the question: whose or which it is,"
        " such as `policy`, `chat` or `state`. Empty for messages."
    )
    message = serializers.SerializerMethodField(help_text="The message's id; null: it is none.")
    seq = serializers.SerializerMethodField(help_text="The message's seq; null: it is none.")
    tokens = serializers.SerializerMethodField(help_text="What it took, in our count.")
    cut_to = serializers.SerializerMethodField(
        help_text="The limit in characters that cut its text; null: it was sent whole."
    )
    results_cut_to = serializers.SerializerMethodField(
        help_text="The limit in characters that cut its tool results; null: none was cut."
    )

    @extend_schema_field(serializers.ChoiceField(choices=get_args(Origin)))
    def get_origin(self, segment: Sequence[Any]) -> str:
        """Return the kind of the part."""
        return str(segment[0])

    def get_part(self, segment: Sequence[Any]) -> str:
        """Return the label of a part that is no message."""
        return "" if segment[2] else str(segment[1])

    def get_message(self, segment: Sequence[Any]) -> str | None:
        """Return the message's id."""
        return str(segment[1]) if segment[2] else None

    def get_seq(self, segment: Sequence[Any]) -> int | None:
        """Return the message's seq."""
        return segment[2] or None

    def get_tokens(self, segment: Sequence[Any]) -> int:
        """Return its tokens."""
        return int(segment[3])

    def get_cut_to(self, segment: Sequence[Any]) -> int | None:
        """Return the limit of its text."""
        limit: int | None = segment[4]
        return limit

    def get_results_cut_to(self, segment: Sequence[Any]) -> int | None:
        """Return the limit of its tool results."""
        # The oldest receipts know none.
        limit: int | None = segment[6] if len(segment) > 6 else None
        return limit


class ReceiptOut(serializers.Serializer[Receipt]):
    """The record of what one model call was sent, in numbers."""

    id = serializers.UUIDField()
    attempt = serializers.IntegerField()
    step = serializers.IntegerField()
    call = serializers.IntegerField()
    purpose = serializers.CharField(
        help_text="`reply`; `state`: call 0 reads the state; step 0 has the calls after the "
        "turn: `title`, `preferences`, and `warm_up`, which asked for nothing, so that the next "
        "prompt is read."
    )
    model = serializers.CharField(source="model_name")
    policy = serializers.CharField(source="effective_policy_id", help_text="Its digest.")
    compaction = serializers.UUIDField(source="compaction_id", allow_null=True)
    segments = SegmentOut(many=True, help_text="The parts of the prompt, in its order.")
    left_out = serializers.ListField(
        child=serializers.ListField(), help_text="[[from seq, to seq, reason], …]"
    )
    budget = serializers.DictField()
    prompt_tokens = serializers.IntegerField()
    prompt_sha256 = serializers.CharField(
        help_text="Empty once a part of the prompt was erased: then it cannot be rebuilt."
    )
    body_sha256 = serializers.CharField(
        help_text="Of the bytes that left as the body of the call. Empty: the call was not"
        " answered, went through no network, is older, or a part of the prompt was erased."
    )
    not_rebuildable_since = serializers.DateTimeField(source="erased_at", allow_null=True)
    commitment = serializers.CharField(
        help_text="As the ledger row has it that ended the attempt; empty for calls of before."
    )
    notes = serializers.ListField()
    outcome = serializers.ChoiceField(choices=Receipt.Outcome.choices)
    error_code = serializers.CharField()
    usage = serializers.DictField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
