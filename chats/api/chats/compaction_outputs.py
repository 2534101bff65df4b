"""Serializers for compactions."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from chats.api.core.outputs import build_page_serializer
from chats.compaction.cursor import Cursor
from chats.compaction.people.revise import Comparison
from chats.models import Compaction


class OriginalsOut(serializers.Serializer[Compaction]):
    """The messages that a compaction covers. To list them, filter the messages by sequence
    number.
    """

    from_seq = serializers.IntegerField(help_text="Sequence number of the first message.")
    to_seq = serializers.IntegerField(help_text="Sequence number of the last message.")
    exceptions = serializers.ListField(
        child=serializers.IntegerField(),
        help_text=(
            "Sequence numbers in the range that the summary does not cover, for example of "
            "pinned messages."
        ),
    )
    count = serializers.IntegerField(
        source="source_count",
        help_text=(
            "Number of messages that the compaction covers, excluding messages that `previous` "
            "already covered."
        ),
    )
    sha256 = serializers.CharField(
        source="source_digest",
        help_text=(
            "SHA-256 in hex of the id of `previous` (empty if there is none) and the ids of the "
            "counted messages, one per line. Empty for windows and imported summaries."
        ),
    )


class BulletOut(serializers.Serializer[Mapping[str, Any]]):
    """A line of a summary with the messages that it cites as sources."""

    text = serializers.CharField(help_text="Text of the line, without its citations.")
    sources = serializers.ListField(
        child=serializers.IntegerField(), help_text="Sequence numbers of the source messages."
    )
    source_ids = serializers.ListField(
        child=serializers.UUIDField(), default=list, help_text="Ids of the source messages."
    )
    invalid = serializers.ListField(
        child=serializers.IntegerField(),
        default=list,
        help_text="Sequence numbers of cited messages that the summary does not cover.",
    )
    unsupported = serializers.BooleanField(
        default=False, help_text="True: the line cites no message that the summary covers."
    )


class SectionOut(serializers.Serializer[Mapping[str, Any]]):
    """A section of a summary: its heading and its lines."""

    title = serializers.CharField(help_text="Heading of the section.")
    bullets = BulletOut(many=True, help_text="Lines of the section.")


class CompactionOut(serializers.Serializer[Compaction]):
    """A compaction: a range of messages that prompts replace with a summary or leave out.

    The original messages are kept.
    """

    id = serializers.UUIDField()
    branch = serializers.UUIDField(
        source="branch_id",
        help_text="Id of the branch of the compaction. Other branches can use it too.",
    )
    kind = serializers.ChoiceField(
        choices=Compaction.Kind.choices,
        help_text="`summary`, or `window`: the messages are left out without a summary.",
    )
    # Not a ChoiceField: drf-spectacular would give it the same enum name as a turn's status.
    status = serializers.CharField(
        help_text=(
            "- `preparing`: the summary is being written.\n- `prepared`: the summary is ready, "
            "but waits for approval or for its threshold.\n- `published`: active on at least one "
            "branch.\n- `replaced`: no longer active on any branch.\n- `undone`: a user undid "
            "the compaction.\n- `overtaken`: the chat changed, so the compaction can no longer "
            "be used.\n- `rejected`: the summary failed validation, or a user rejected it.\n- "
            "`failed`: no summary was written, because of an error or because the attempt was "
            "cancelled."
        )
    )
    originals = OriginalsOut(source="*")
    base = serializers.UUIDField(
        source="base_id",
        allow_null=True,
        help_text="Id of the summary that precedes this window in prompts. Null: none.",
    )
    previous = serializers.UUIDField(
        source="previous_id",
        allow_null=True,
        help_text="Id of the earlier summary that this one continues. Null: none.",
    )
    displaced = serializers.UUIDField(
        source="displaced_id",
        allow_null=True,
        help_text=(
            "Id of the compaction that an undo restores. Null: an undo restores the messages."
        ),
    )
    revises = serializers.UUIDField(
        source="revises_id",
        allow_null=True,
        help_text=(
            "Id of the summary of the same messages that this one corrects or replaces. Null: none."
        ),
    )
    text = serializers.CharField(
        help_text="Text of the summary. Empty for windows, and if it was not written or was erased."
    )
    sections = SectionOut(many=True, help_text="Sections of the summary with their citations.")
    retention = serializers.DictField(
        help_text=(
            "Facts in the original messages, such as numbers, dates and names. `kept` and `lost` "
            "list them by kind; `share` is the share of facts that the summary keeps, 0 to 1."
        )
    )
    commitment = serializers.CharField(
        source="text_commitment",
        help_text=(
            "Commitment to the text, as recorded in the audit log. Empty: the text was not "
            "written or was erased, or the compaction is a window."
        ),
    )
    erased = serializers.SerializerMethodField(help_text="True: the text was permanently erased.")
    trigger = serializers.CharField(
        help_text=(
            "Reason for the compaction: `prepare`, `turns`, `overflow`, `window`, `manual`, "
            "`rerun`, `revision` (a user edited the summary) or `import`. `overflow`: the "
            "provider refused the prompt as too long."
        )
    )
    asked_by = serializers.CharField(
        help_text="`worker` (automatic) or `user:<id>`, the user who requested or wrote it."
    )
    focus = serializers.CharField(
        help_text="Details that the requester wanted to keep. Empty: none."
    )
    needs_approval = serializers.BooleanField(
        help_text=(
            "True: the summary is used only after a user approves it. False: no approval is "
            "needed, or it was given."
        )
    )
    rung = serializers.CharField(
        help_text=(
            "Method of the attempt: `model`, `model_again` (second try), `smaller_source` (fewer "
            "messages) or `extractive` (sentences without a model). Empty for windows and for "
            "corrected or imported summaries."
        )
    )
    attempt = serializers.IntegerField(help_text="Attempt number, starting at 1.")
    reason = serializers.CharField(
        help_text=(
            "Codes of the reasons why the compaction failed, was rejected or became outdated, "
            "separated by commas. For a window: the limit that the messages exceeded, such as "
            "`tokens` or `messages`. `insufficient`: the summary is active, but saved too "
            "little. Empty: none."
        )
    )
    remark = serializers.CharField(
        help_text="Reason given by the user who rejected the summary. Empty: none."
    )
    policy = serializers.CharField(
        source="effective_policy_id",
        help_text="Digest of the effective policy. Equal digests mean equal values and sources.",
    )
    prompt_version = serializers.CharField(
        help_text=(
            "Version of the prompt template or of the extraction that wrote the summary. "
            "`by-hand`: a user edited it, or it was imported. Empty for windows and for "
            "summaries that were not written."
        )
    )
    model = serializers.CharField(
        source="model_name",
        help_text=(
            "Name of the summarising model at its provider. `extractive`: sentences without a "
            "model. Empty: none."
        ),
    )
    context_revision = serializers.IntegerField(
        help_text="Context revision of the branch when the compaction was planned."
    )
    tokens_before = serializers.IntegerField(
        help_text=(
            "Number of prompt tokens before the compaction, as counted by the local tokenizer. 0: "
            "the summary was imported."
        )
    )
    tokens_after = serializers.IntegerField(
        help_text=(
            "Number of prompt tokens after the compaction, as counted by the local tokenizer. 0: "
            "the summary was not written or was imported."
        )
    )
    summary_tokens = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Number of tokens in the summary, as counted by the local tokenizer. Null: not "
            "written, or the compaction is a window."
        ),
    )
    usage = serializers.DictField(
        help_text=(
            "Tokens used by the calls that wrote the summary, as reported by the provider: "
            "`input`, `output`, `cached` (read from its cache) and `written` (written to its "
            "cache). Empty: the provider reported no usage, or no call was made."
        )
    )
    duration_ms = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Time taken to write the summary, in milliseconds. Null for windows, for corrected "
            "or imported summaries, and for summaries that were not written."
        ),
    )
    cost = serializers.DecimalField(
        max_digits=14,
        decimal_places=8,
        allow_null=True,
        help_text=(
            "Cost of the calls that wrote the summary, in `currency`. Null: no call was made, the "
            "model has no price, or the provider reported no usage."
        ),
    )
    currency = serializers.CharField(
        help_text=(
            "Currency of the model's price. Empty: no model was called, or its price has no "
            "currency."
        )
    )
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the attempt ended. Null: in progress."
    )
    published_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the compaction became active. Null: never."
    )

    def get_erased(self, compaction: Compaction) -> bool:
        return compaction.erased_at is not None


class CursorOut(serializers.Serializer[Cursor]):
    """The last message that the active summary of the active branch covers."""

    cursor = serializers.IntegerField(
        source="position",
        help_text=(
            "Sequence number of the last message that the active summary covers; the next "
            "summary covers only later messages. 0: no active summary."
        ),
    )
    compacted_at = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time at which a summary was last published on this branch, even if it was undone "
            "later. Null: never."
        ),
    )
    version = serializers.IntegerField(
        help_text="Context revision of the branch: its `context_revision` in the list of branches."
    )


class CompactionsOut(build_page_serializer(CompactionOut)):  # type: ignore[misc]  # created at import time
    """A page of compactions, and the last message that the active summary covers."""

    summarised = CursorOut(
        help_text="Last message that the active summary of the active branch covers."
    )


class ChangeOut(serializers.Serializer[Any]):
    """Consecutive lines of a diff that have the same kind of change."""

    kind = serializers.CharField(
        help_text="Change from `before` to `after`: `equal`, `replace`, `delete` or `insert`."
    )
    before = serializers.ListField(
        child=serializers.CharField(), help_text="Lines of the older summary."
    )
    after = serializers.ListField(
        child=serializers.CharField(), help_text="Lines of the newer summary."
    )


class ComparisonOut(serializers.Serializer[Comparison]):
    """Line-by-line comparison of two summaries."""

    older = CompactionOut(help_text="Compaction on the left side.")
    newer = CompactionOut(help_text="Compaction on the right side.")
    changes = ChangeOut(many=True, help_text="Changes from the older to the newer text, in order.")
