"""The outputs about compactions, field by field."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from chats.api.outputs import listed
from chats.compaction.cursor import Cursor
from chats.compaction.people.revise import Comparison
from chats.models import Compaction


class OriginalsOut(serializers.Serializer[Compaction]):
    """The messages a compaction stands for; list them with `from_seq` and `to_seq`."""

    from_seq = serializers.IntegerField()
    to_seq = serializers.IntegerField()
    exceptions = serializers.ListField(
        child=serializers.IntegerField(), help_text="Seqs in the range that were no source."
    )
    count = serializers.IntegerField(source="source_count")
    sha256 = serializers.CharField(source="source_digest", help_text="Over the sources' ids.")


class BulletOut(serializers.Serializer[Mapping[str, Any]]):
    """A line of a summary with its sources."""

    text = serializers.CharField()
    sources = serializers.ListField(child=serializers.IntegerField(), help_text="Seqs.")
    source_ids = serializers.ListField(
        child=serializers.UUIDField(), default=list, help_text="The ids of these messages."
    )
    invalid = serializers.ListField(
        child=serializers.IntegerField(),
        default=list,
        help_text="Seqs it names although the summary was not made of them.",
    )
    unsupported = serializers.BooleanField(
        default=False, help_text="No message that it was made of is named."
    )


class SectionOut(serializers.Serializer[Mapping[str, Any]]):
    """A part of a summary."""

    title = serializers.CharField()
    bullets = BulletOut(many=True)


class CompactionOut(serializers.Serializer[Compaction]):
    """One batch of history that left the prompt. The originals stay."""

    id = serializers.UUIDField()
    branch = serializers.UUIDField(source="branch_id")
    kind = serializers.ChoiceField(choices=Compaction.Kind.choices)
    # Not a choice: the schema could not tell it from the status of a turn by name.
    status = serializers.CharField(help_text=f"One of {', '.join(Compaction.Status.values)}.")
    originals = OriginalsOut(source="*")
    base = serializers.UUIDField(source="base_id", allow_null=True)
    previous = serializers.UUIDField(
        source="previous_id", allow_null=True, help_text="The summary that it goes on from."
    )
    displaced = serializers.UUIDField(
        source="displaced_id", allow_null=True, help_text="What an undo brings back; null: all."
    )
    revises = serializers.UUIDField(
        source="revises_id",
        allow_null=True,
        help_text="The summary of the same messages that it corrects or that was written again.",
    )
    text = serializers.CharField()
    sections = SectionOut(many=True)
    retention = serializers.DictField(help_text="Facts of the originals that it kept and lost.")
    commitment = serializers.CharField(
        source="text_commitment", help_text="What the ledger holds of its text; empty once erased."
    )
    erased = serializers.SerializerMethodField(help_text="Its text was removed for good.")
    trigger = serializers.CharField(help_text="`revision`: a person wrote it.")
    asked_by = serializers.CharField(
        help_text="`worker` or `user:<id>`; of a revision, who wrote it."
    )
    focus = serializers.CharField()
    needs_approval = serializers.BooleanField(help_text="Waits until somebody approves it.")
    rung = serializers.CharField(help_text="How it was written, of the ladder's ways.")
    attempt = serializers.IntegerField(help_text="Of one ladder, from 1.")
    reason = serializers.CharField(help_text="Why it failed, was rejected or overtaken.")
    remark = serializers.CharField(help_text="What the person wrote who rejected it.")
    policy = serializers.CharField(source="effective_policy_id", help_text="Its digest.")
    prompt_version = serializers.CharField()
    model = serializers.CharField(source="model_name")
    context_revision = serializers.IntegerField(help_text="The branch's, when it was planned.")
    tokens_before = serializers.IntegerField()
    tokens_after = serializers.IntegerField()
    summary_tokens = serializers.IntegerField(allow_null=True, help_text="Of its text alone.")
    usage = serializers.DictField()
    duration_ms = serializers.IntegerField(allow_null=True)
    cost = serializers.DecimalField(
        max_digits=14,
        decimal_places=8,
        allow_null=True,
        help_text="In the currency of the model's price, apart from replies; null: no price known.",
    )
    currency = serializers.CharField(help_text="Of the cost; empty where the price names none.")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    published_at = serializers.DateTimeField(allow_null=True)

    def get_erased(self, compaction: Compaction) -> bool:
        """Tell whether a message that it was made of was erased."""
        return compaction.erased_at is not None


class CursorOut(serializers.Serializer[Cursor]):
    """The point up to which the history of the chat's active branch is summarised."""

    cursor = serializers.IntegerField(
        source="position",
        help_text="The summary in force stands for messages up to this seq; the next one folds"
        " only later ones. 0: no summary is in force.",
    )
    compacted_at = serializers.DateTimeField(
        allow_null=True, help_text="When a summary last took effect, in force still or not."
    )
    version = serializers.IntegerField(
        help_text="Grows with each change of what stands in place of messages."
    )


class CompactionsOut(listed(CompactionOut)):  # type: ignore[misc]  # made when the module is read
    """A page of compactions, and the point up to which the summaries reach."""

    summarised = CursorOut()


class ChangeOut(serializers.Serializer[Any]):
    """Neighbouring lines of a comparison."""

    kind = serializers.CharField(help_text="One of equal, replace, delete, insert.")
    before = serializers.ListField(child=serializers.CharField())
    after = serializers.ListField(child=serializers.CharField())


class ComparisonOut(serializers.Serializer[Comparison]):
    """Two summaries side by side, line by line in the order of the text."""

    older = CompactionOut()
    newer = CompactionOut()
    changes = ChangeOut(many=True)
