"""Serializers for receipts: the record of a model call, segment by segment."""

from collections.abc import Sequence
from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.models import Receipt
from contextpolicy.engine.messages.segments import Origin


class SegmentOut(serializers.Serializer[Sequence[Any]]):
    """A segment of a prompt: its kind, source and number of tokens."""

    origin = serializers.SerializerMethodField(
        help_text="Kind of the segment, such as `system`, `summary`, `history` or `question`."
    )
    part = serializers.SerializerMethodField(
        help_text=(
            "Source of a segment that is not a message, such as `policy` or `chat` (system "
            "texts) or `state`. Empty for messages."
        )
    )
    message = serializers.SerializerMethodField(
        help_text="Id of the message that the segment contains. Null: not a message."
    )
    seq = serializers.SerializerMethodField(
        help_text="Sequence number of the message that the segment contains. Null: not a message."
    )
    tokens = serializers.SerializerMethodField(
        help_text="Number of tokens, counted by the local tokenizer."
    )
    cut_to = serializers.SerializerMethodField(
        help_text=("Length limit, in characters, to which the policy cut the text. Null: not cut.")
    )
    results_cut_to = serializers.SerializerMethodField(
        help_text=(
            "Length limit, in characters, to which the policy cut tool results. Null: not cut."
        )
    )

    @extend_schema_field(serializers.ChoiceField(choices=get_args(Origin)))
    def get_origin(self, segment: Sequence[Any]) -> str:
        """Kind of the segment, such as `system`, `summary`, `history` or `question`."""
        return str(segment[0])

    def get_part(self, segment: Sequence[Any]) -> str:
        """Label of a segment that is not a message."""
        return "" if segment[2] else str(segment[1])

    def get_message(self, segment: Sequence[Any]) -> str | None:
        """Id of the message that the segment contains. Null if it contains none."""
        return str(segment[1]) if segment[2] else None

    def get_seq(self, segment: Sequence[Any]) -> int | None:
        """Seq of the message that the segment contains. Null if it contains none."""
        return segment[2] or None

    def get_tokens(self, segment: Sequence[Any]) -> int:
        """Number of tokens in the segment, as counted by the local tokenizer."""
        return int(segment[3])

    def get_cut_to(self, segment: Sequence[Any]) -> int | None:
        """Length in characters to which the policy cut the text. Null if it was not cut."""
        limit: int | None = segment[4]
        return limit

    def get_results_cut_to(self, segment: Sequence[Any]) -> int | None:
        """Length in characters to which the policy cut tool results. Null if they were not cut."""
        # The oldest receipts have no such limit.
        limit: int | None = segment[6] if len(segment) > 6 else None
        return limit


class ReceiptOut(serializers.Serializer[Receipt]):
    """The receipt of a model call: the composition of its prompt, without text."""

    id = serializers.UUIDField()
    attempt = serializers.IntegerField(help_text="Attempt number of the turn, starting at 1.")
    step = serializers.IntegerField(
        help_text=(
            "Step number in the attempt, starting at 1. 0: the call was made after the turn."
        )
    )
    call = serializers.IntegerField(
        help_text="Call number in the step, starting at 1. 0: the call that extracts the state."
    )
    purpose = serializers.CharField(
        help_text=(
            "Purpose of the call: `reply` or `state` (extracts the state; call 0). After the "
            "turn, as step 0: `title`, `preferences` or `warm_up` (fills the provider's cache "
            "for the next prompt)."
        )
    )
    model = serializers.CharField(
        source="model_name",
        help_text="Name of the model at its provider, which can differ from its id.",
    )
    policy = serializers.CharField(
        source="effective_policy_id",
        help_text="Digest of the effective policy. Equal digests mean equal values and sources.",
    )
    compaction = serializers.UUIDField(
        source="compaction_id",
        allow_null=True,
        help_text=(
            "Id of the compaction that the prompt used. Null: none, or the compaction no longer "
            "exists."
        ),
    )
    segments = SegmentOut(
        many=True, help_text="Segments of the prompt, in the order in which they were sent."
    )
    left_out = serializers.ListField(
        child=serializers.ListField(),
        help_text=(
            "Ranges of messages left out of the prompt, each as [first sequence number, last "
            "sequence number, reason]."
        ),
    )
    budget = serializers.DictField(
        help_text=(
            "Token limits of the prompt, and the tokens that each part used. `token_budget`, "
            "`reserve` and `prompt_limit` are in provider tokens; the others are in tokens of "
            "the local tokenizer. `calibration` is the ratio of provider tokens to local tokens, "
            "and `limit` is `prompt_limit` divided by it."
        )
    )
    prompt_tokens = serializers.IntegerField(
        help_text="Number of tokens in the prompt, as counted by the local tokenizer."
    )
    prompt_sha256 = serializers.CharField(
        help_text="SHA-256 of the prompt, in hex. Empty if a segment was erased; the prompt then "
        "cannot be rebuilt."
    )
    body_sha256 = serializers.CharField(
        help_text=(
            "SHA-256 of the request body as sent, in hex. Empty: the call got no response, used "
            "the demo model or was made before hashes were introduced, or a part of the prompt "
            "was erased."
        )
    )
    not_rebuildable_since = serializers.DateTimeField(
        source="erased_at",
        allow_null=True,
        help_text=(
            "Time at which a part of the prompt was erased, so that it cannot be rebuilt. Null: "
            "no part was erased."
        ),
    )
    commitment = serializers.CharField(
        help_text=(
            "Commitment to the receipt, as recorded in the audit event that ended the attempt "
            "or, for step 0, in the call's audit event. Empty: the call was made before "
            "commitments were introduced."
        )
    )
    notes = serializers.ListField(
        help_text=(
            "Codes for changes that were made to the prompt, and for reasons why context is "
            "missing."
        )
    )
    outcome = serializers.ChoiceField(
        choices=Receipt.Outcome.choices,
        help_text=(
            "`open` (in progress), `ok`, `failed`, `stopped` (by a user) or `lost` (the worker "
            "was lost)."
        ),
    )
    error_code = serializers.CharField(help_text="Stable code of the error. Empty: no error.")
    usage = serializers.DictField(
        help_text=(
            "Tokens as the provider counts them: `input`, `output`, `cached` and "
            "`written` (to its cache), and `reasoning` (part of the output) if it reports them. "
            "Empty: not reported."
        )
    )
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the call ended. Null: in progress."
    )
