"""Serializers for warnings about a policy and for previews."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from chats.api.core.money import MoneyOut


class FixedWarningOut(serializers.Serializer[Mapping[str, Any]]):
    """A warning about a policy, with suggested fixes.

    `error`: a conflict, so the values cannot be saved. `risk` and `note`: the values can be saved.
    """

    code = serializers.CharField(help_text="Stable code of the warning.")
    field = serializers.CharField(help_text="Name of the field that the warning is about.")
    level = serializers.ChoiceField(
        choices=["error", "risk", "note"],
        help_text=(
            "`error`: the values cannot be saved. `risk`: the values work but have side effects. "
            "`note`: information."
        ),
    )
    message = serializers.CharField(
        help_text="Human-readable explanation of the warning, in the language of the request."
    )
    mend = serializers.DictField(
        help_text=(
            'Suggested fix: the new value of each field. `"not set"`: remove the field. '
            "Empty: no suggestion."
        )
    )


class PreviewRefusalOut(serializers.Serializer[Mapping[str, Any]]):
    """The reason why no prompt can be built: a stable `code`, and a localized `message`."""

    code = serializers.CharField(help_text="Stable error code.")
    message = serializers.CharField(
        help_text="Human-readable message in the language of the request."
    )


class EstimateOut(serializers.Serializer[Mapping[str, Any]]):
    """An estimate of future compactions and costs, based on the latest turns of the chat."""

    summary_tokens = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Estimated number of tokens in the next summary. Null: the strategy writes no "
            "summaries."
        ),
    )
    summaries = serializers.IntegerField(
        help_text=(
            "Number of earlier summaries by the same model on which `summary_tokens` is based. 0: "
            "`summary_tokens` is a share of the policy's limit."
        )
    )
    turns_to_compaction = serializers.ListField(
        child=serializers.IntegerField(allow_null=True),
        allow_null=True,
        help_text=(
            "Number of turns until the next compaction if the turns are short, typical or long, "
            "in this order. A number is null if it exceeds 500. The list is null if the strategy "
            "never compacts, or the chat has no reply yet."
        ),
    )
    by_turns = serializers.IntegerField(
        help_text="Number of earlier turns on which the estimate is based."
    )
    cost_of_100_turns = MoneyOut(
        allow_null=True,
        help_text=(
            "Estimated cost of the next 100 turns, with the provider's cache. Null: the model has "
            "no price, or the chat has no reply yet."
        ),
    )
    cached_share = serializers.FloatField(
        help_text="Estimated share of input tokens read from the provider's cache, 0 to 1."
    )


class PreviewSideOut(serializers.Serializer[Mapping[str, Any]]):
    """The next prompt under one policy.

    Token counts are estimates of the provider's counts. All other counts are numbers of
    messages.
    """

    refused = PreviewRefusalOut(
        allow_null=True, help_text="Reason why no prompt can be built. Null: a prompt can be built."
    )
    tokens = serializers.IntegerField(help_text="Number of tokens in the prompt.")
    limit = serializers.IntegerField(help_text="Prompt limit in tokens.")
    parts = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=(
            "Number of tokens in each part of the prompt, such as `system`, `summary` or `history`."
        ),
    )
    skills = serializers.IntegerField(
        help_text="Number of tokens in skill texts. `system` includes them."
    )
    full = serializers.IntegerField(help_text="Number of messages sent in full.")
    cut = serializers.IntegerField(help_text="Number of messages that the policy truncates.")
    summarised = serializers.IntegerField(help_text="Number of messages covered by the summary.")
    left_out = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Number of messages left out of the prompt, by reason code.",
    )
    due = serializers.ChoiceField(
        choices=["none", "prepare", "swap"],
        help_text=(
            "Compaction that this prompt would cause: `none`, `prepare` (write a "
            "summary) or `swap` (publish one)."
        ),
    )
    due_reason = serializers.CharField(allow_blank=True, help_text="Code of the reason for `due`.")
    estimate = EstimateOut(
        allow_null=True,
        help_text="Estimate of future turns. Null: the next message would be refused.",
    )


class PolicyPreviewOut(serializers.Serializer[Mapping[str, Any]]):
    """Warnings about a policy, and the next prompt with and without it."""

    findings = FixedWarningOut(many=True, help_text="Conflicts and warnings. Empty: none.")
    state = serializers.CharField(
        allow_null=True,
        help_text=(
            "Opaque value that changes when either prompt changes. Null: the values are invalid."
        ),
    )
    now = PreviewSideOut(
        allow_null=True,
        help_text="Next prompt under the active policy. Null: the values are invalid.",
    )
    proposed = PreviewSideOut(
        allow_null=True,
        help_text="Next prompt under the unsaved policy. Null: the values are invalid.",
    )
