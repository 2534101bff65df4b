"""Serializers of the API. Each field is listed, so that a new column never leaks."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.api.core.money import MoneyOut
from chats.api.core.receipt_outputs import ReceiptOut
from chats.compaction.report.skip_reasons import SENTENCES, CompactionOutcome
from chats.files.sent_excerpts import SentExcerpt
from chats.models import (
    ApiKey,
    Branch,
    Chat,
    ChatState,
    Folder,
    Message,
    Turn,
    TurnReference,
)
from chats.people import keys
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.explanation import LOST, WON


class ChatOut(serializers.Serializer[Chat]):
    """A chat without its messages. `message_count` is that of the active branch."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    model = serializers.CharField(
        source="model.slug",
        default=None,
        allow_null=True,
        help_text=("Id of the chat's model. Null: none was chosen, so the default model is used."),
    )
    team = serializers.UUIDField(
        source="team_id",
        allow_null=True,
        help_text="Id of the team that replies. Null: a model replies.",
    )
    pinned = serializers.BooleanField(help_text="True: the chat is listed before the others.")
    archived = serializers.BooleanField(help_text="True: the chat is hidden from the normal list.")
    folder = serializers.UUIDField(
        source="folder_id",
        allow_null=True,
        help_text="Id of the folder that contains the chat. Null: no folder.",
    )
    temporary = serializers.BooleanField(
        help_text=(
            "True: the chat is erased when you sign out, or some hours after its last message."
        )
    )
    unread = serializers.BooleanField(
        help_text="True: the chat has a reply that you have not seen."
    )
    message_count = serializers.IntegerField(
        source="active_branch.last_seq",
        default=0,
        help_text="Number of messages on the active branch.",
    )
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    deleted_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of deletion. Null: the chat is not deleted."
    )
    erase_at = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time at which a deleted chat is erased; until then it can be restored. Null: not "
            "deleted."
        ),
    )


class FolderOut(serializers.Serializer[Folder]):
    """A folder of chats, and whether its chats use your memory."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    memory = serializers.SerializerMethodField()

    def get_memory(self, row: Folder) -> bool:
        """True: the chats of the folder use your memory and can add preferences to it."""
        return not row.without_memory


class ChatDetailOut(ChatOut):
    """A chat with its own system text and its memory setting."""

    memory = serializers.SerializerMethodField()

    def get_memory(self, row: Chat) -> bool:
        """True: the chat uses your memory and can add preferences to it; temporary ones do not."""
        return not (row.without_memory or row.temporary)

    system_text = serializers.CharField(
        help_text="The chat's own system text. Empty: none. Lists of chats do not include it."
    )


class MessageOut(serializers.Serializer[Message]):
    """A message. `seq` is null until a turn includes the message."""

    id = serializers.UUIDField()
    seq = serializers.IntegerField(allow_null=True)
    waiting = serializers.SerializerMethodField()
    role = serializers.ChoiceField(choices=Message.Role.choices)
    text = serializers.CharField(
        help_text="Text parts of the message, joined. Empty if it was erased."
    )
    speaker = serializers.DictField(
        allow_null=True,
        help_text=(
            "Team member that wrote it: `roleId`, `roleName` and `type` (`human` or `ai`). "
            "Null: not in a team."
        ),
    )
    addressees = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of the team members that the message addresses. Empty: all.",
    )
    parts = serializers.SerializerMethodField(
        help_text="Texts, reasoning, tool calls and results, and files (without their text)."
    )
    finish = serializers.CharField(
        help_text=(
            "Reason the reply ended: `stop`, `tool_calls`, `length` (the model's limit), "
            "`limit` (this server's limit), `incomplete` (an error) or `stopped` (by a user). "
            "Empty for a user's message."
        )
    )
    model = serializers.CharField(source="model_name")
    turn = serializers.UUIDField(
        source="turn_id",
        allow_null=True,
        help_text="Id of the turn that replies to this message or that wrote it. Null: none.",
    )
    token_count = serializers.IntegerField(
        allow_null=True,
        help_text="Number of tokens, by the local tokenizer. Null: not counted yet.",
    )
    pinned = serializers.SerializerMethodField()
    excluded = serializers.BooleanField(
        help_text="True: prompts leave the message out, and every summary that covers it."
    )
    kept = serializers.BooleanField(
        help_text="True: a user kept this incomplete reply, so later prompts include it."
    )
    erased = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()

    @extend_schema_field(serializers.ListField(child=serializers.DictField()))
    def get_parts(self, message: Message) -> list[dict[str, Any]]:
        """The parts of the message, without the texts of files."""
        return [
            {name: value for name, value in part.items() if name != "text"}
            if part["type"] == "file"
            else part
            for part in message.parts
        ]

    def get_waiting(self, message: Message) -> bool:
        """True: the message is queued and has no `seq` yet."""
        return message.seq is None

    def get_pinned(self, message: Message) -> bool:
        """True: the message is pinned; every prompt includes its full text until it is erased."""
        return message.pinned_at is not None

    def get_erased(self, message: Message) -> bool:
        """True: the text was permanently erased."""
        return message.erased_at is not None


class ProofOut(serializers.Serializer[Any]):
    """A proof of the erased text, for anyone who still has a copy.

    The salt is not stored. Only this response has it.
    """

    salt = serializers.CharField(help_text="Key of the HMAC: 32 bytes in hex.")
    commitment = serializers.CharField(
        help_text="HMAC-SHA-256 in hex, as in the certificate in the audit log. For a message: "
        "over its parts as canonical JSON (sorted keys, no spaces, ASCII only). For a "
        "chat: over one line per message in the order of acceptance, with its id, a "
        "space, its parts and a line feed."
    )


class MessageProofOut(ProofOut):
    """A proof of the text of one message."""

    message = serializers.UUIDField(help_text="Id of the erased message.")


class ErasedOut(MessageOut):
    """The message after its erasure, with proofs of its text and messages that quote it."""

    proofs = serializers.ListField(
        child=MessageProofOut(),
        help_text="One for each message that this request erased. Empty if it was erased before.",
    )
    quoted_by = serializers.ListField(
        child=serializers.UUIDField(),
        help_text=(
            "Messages of the chat that quote at least 40 characters of it, or all of a shorter "
            "one. Paraphrases are not found."
        ),
    )


class OriginOut(serializers.Serializer[Mapping[str, Any]]):
    """The origin of a value of the state."""

    seq = serializers.IntegerField(
        help_text="Seq of the newest message that the value takes into account."
    )
    by = serializers.ChoiceField(
        choices=ChatState.Kind.choices,
        help_text="Kind of the version that set the value, as `kind` of a version.",
    )
    at = serializers.DateTimeField(help_text="Time at which the value was set.")


class StateOut(serializers.Serializer[Mapping[str, Any]]):
    """The state of a chat. Before the first message, `version` is 0 and the state is empty."""

    branch = serializers.UUIDField()
    version = serializers.IntegerField(
        help_text="Number of the latest version, for `version` of a correction."
    )
    values = serializers.DictField()
    origins = serializers.DictField(
        child=OriginOut(), help_text="Origin of each value, by field name."
    )
    to_seq = serializers.IntegerField(
        help_text="Seq of the last message that the state takes into account."
    )
    model = serializers.CharField(
        help_text=(
            "Name of the model that extracted the state. Empty: a person corrected or restored it."
        )
    )
    updated_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the latest version. Null: the state is still empty."
    )
    policy = serializers.CharField(help_text="Slug of the policy that defines the state.")
    schema = serializers.DictField(help_text="JSON Schema of `values`, as the policy defines it.")


class FailureOut(serializers.Serializer[Mapping[str, str]]):
    """The reason why a turn failed: a stable `code`, and a localized `message`."""

    code = serializers.CharField(help_text="Stable error code.")
    message = serializers.CharField(
        help_text="Sentence for people, in the language of the request."
    )


class TurnOut(serializers.Serializer[Turn]):
    """A turn: one reply of a model or an agent, and the message that it replies to."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="branch.chat_id")
    status = serializers.ChoiceField(choices=Turn.Status.choices)
    over = serializers.BooleanField(
        source="is_over",
        help_text=(
            "True: the turn has ended; its status is `completed`, `stopped`, `failed` or "
            "`absorbed`."
        ),
    )
    message = serializers.UUIDField(
        source="trigger_id",
        allow_null=True,
        help_text=(
            "Id of the user's message that the turn replies to. Null: it continues a reply."
        ),
    )
    continues = serializers.UUIDField(
        source="continues_id",
        allow_null=True,
        help_text="Id of the turn whose truncated reply this one continues. Null: none.",
    )
    absorbed_by = serializers.UUIDField(
        source="absorbed_by_id",
        allow_null=True,
        help_text="Id of the turn that also replies to this turn's message. Null: none.",
    )
    model = serializers.CharField(source="model_name")
    round = serializers.UUIDField(
        source="round_id",
        allow_null=True,
        help_text="Id of the round to which an agent's reply belongs. Null: no team replies.",
    )
    hop = serializers.IntegerField(
        allow_null=True, help_text="Number of the reply in its round, from 1. Null: no round."
    )
    agent = serializers.CharField(
        source="agent.name",
        default=None,
        allow_null=True,
        help_text="Name of the agent that replies. Null: no team replies.",
    )
    attempt = serializers.IntegerField(
        help_text=(
            "Number of the attempt, from 1. A new attempt starts if a worker is lost. 0: "
            "not started."
        )
    )
    step = serializers.IntegerField(
        help_text=(
            "Number of the model call in the attempt, from 1. Each tool result leads to "
            "another. 0: none yet."
        )
    )
    error = serializers.SerializerMethodField()
    usage = serializers.DictField(
        help_text=(
            "Tokens as the provider counts them: `input`, `output`, `cached` and "
            "`written` (to its cache). Empty: not reported."
        )
    )
    queued_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which a worker started the turn. Null: still queued."
    )
    first_token_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the first part of the reply arrived. Null: none has arrived.",
    )
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the turn ended. Null: it has not ended."
    )
    stop_requested_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which a user asked to stop the reply. Null: not asked."
    )
    waiting_until = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time until which the turn waits because the provider asked for it. Null: it does "
            "not wait."
        ),
    )

    @extend_schema_field(FailureOut(allow_null=True))
    def get_error(self, turn: Turn) -> dict[str, str] | None:
        if not turn.error_code:
            return None
        return {"code": turn.error_code, "message": turn.localized_error}


class SkipReasonOut(serializers.Serializer[CompactionOutcome]):
    """The decision about a compaction after a turn: whether one was started, and why."""

    code = serializers.CharField(
        help_text=f"Stable code, explained by `message`. One of {', '.join(SENTENCES)}."
    )
    message = serializers.CharField(
        source="sentence",
        help_text="Sentence that explains `code`, in the language of the request.",
    )
    started = serializers.BooleanField(
        source="was_started", help_text="True: a compaction was started."
    )
    tokens = serializers.IntegerField(
        help_text="Number of tokens of the prompt, as the provider counts them."
    )
    mark = serializers.IntegerField(
        help_text="Threshold in tokens that the prompt exceeded. 0: it exceeded none."
    )


class ReferenceOut(serializers.Serializer[TurnReference]):
    """Retrieved context: an excerpt of an earlier message, often from another chat."""

    chat = serializers.UUIDField(
        source="message.branch.chat_id", help_text="Id of the chat that the excerpt comes from."
    )
    message = serializers.UUIDField(
        source="message_id", help_text="Id of the message that the excerpt comes from."
    )
    seq = serializers.IntegerField(source="message.seq")
    start = serializers.IntegerField(
        help_text="Position of the first character in the message's text, in code points."
    )
    end = serializers.IntegerField(help_text="Position after the last character, in code points.")
    score = serializers.FloatField(
        help_text=("Relevance, higher is better. Comparable only with excerpts of the same turn.")
    )


class FileExcerptOut(serializers.Serializer[SentExcerpt]):
    """A part of a long document that was sent with the question."""

    file = serializers.UUIDField(source="file_id")
    name = serializers.CharField()
    page = serializers.IntegerField(help_text="Page of the document. 0: it has no pages.")
    part = serializers.IntegerField(help_text="Number of the part in the document, from 1.")
    start = serializers.IntegerField(
        help_text="Position of the first character in the document's text, in code points."
    )
    end = serializers.IntegerField(help_text="Position after the last character, in code points.")
    score = serializers.FloatField(
        allow_null=True,
        help_text="Relevance, higher is better. Null: the turn is from before scores were stored.",
    )
    words = serializers.ListField(
        child=serializers.CharField(),
        help_text="Stems of the words that the part shares with the question.",
    )


class TurnDetailOut(TurnOut):
    """A turn with its text, the receipts of its calls, and the compaction decision."""

    partial_text = serializers.CharField(
        help_text="Text of the running step so far. Empty: no step is running."
    )
    reply = MessageOut(
        allow_null=True, help_text="Last message of the reply. Null: no reply is stored."
    )
    receipts = ReceiptOut(many=True, source="receipts_in_order")
    references = ReferenceOut(
        many=True,
        source="references_in_order",
        help_text=(
            "Excerpts of earlier messages in the prompt, in prompt order. If empty, `notes` "
            "of the receipts has the reason."
        ),
    )
    file_excerpts = FileExcerptOut(
        many=True,
        source="file_excerpts_in_order",
        help_text="Parts of long documents in the prompt, in prompt order.",
    )
    compaction = SkipReasonOut(
        help_text="Decision about a compaction after this turn, with its reason."
    )


class AcceptedOut(serializers.Serializer[Any]):
    """A stored message and the turn that replies to it."""

    message = MessageOut()
    turn = TurnOut()


class NewChatOut(ChatOut):
    """A new chat. `message` and `turn` are null unless `text` was sent."""

    message = MessageOut(allow_null=True)
    turn = TurnOut(allow_null=True)


class BranchOut(serializers.Serializer[Branch]):
    """A branch of a chat. It shares its parent's messages up to `fork_seq`."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="chat_id")
    parent = serializers.UUIDField(  # type: ignore[assignment]  # DRF's metaclass removes fields
        source="parent_id",
        allow_null=True,
        help_text="Id of the branch that this one was created from. Null: the first branch.",
    )
    fork_seq = serializers.IntegerField(
        help_text="Seq of the last message shared with the parent branch. 0: none."
    )
    message_count = serializers.IntegerField(
        source="last_seq", help_text="Number of messages on the branch, including the shared ones."
    )
    active = serializers.SerializerMethodField(
        help_text="True: this is the chat's active branch, where new messages are added."
    )
    compaction = serializers.UUIDField(
        source="active_compaction_id",
        allow_null=True,
        help_text="Id of the active compaction. Null: none.",
    )
    context_revision = serializers.IntegerField(
        help_text=(
            "Counter that increases with each change of summaries, windows, pins or exclusions."
        )
    )
    compaction_paused = serializers.BooleanField(
        help_text="True: automatic compaction is paused, since an undo, until it is resumed."
    )
    paused_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time of the undo that paused automatic compaction. Null: not paused.",
    )
    compaction_asked_at = serializers.DateTimeField(
        source="asked_at",
        allow_null=True,
        help_text=(
            "Time of a compaction request that no worker has started yet. Null: none is queued."
        ),
    )
    created_at = serializers.DateTimeField()

    def get_active(self, branch: Branch) -> bool:
        return branch.chat.active_branch_id == branch.pk


class PinRoomOut(serializers.Serializer[Any]):
    """Tokens of the pinned messages, by the local tokenizer, and the policy's limit."""

    used = serializers.IntegerField(help_text="Number of tokens of all pinned messages.")
    limit = serializers.IntegerField(
        help_text="Maximum number of tokens of all pinned messages, set by the policy."
    )


class SourceOut(serializers.Serializer[Mapping[str, Any]]):
    """The policy that set a value: its level (such as `group`), slug and version, and whether it
    locks the value.
    """

    level = serializers.CharField(
        help_text="Level of the policy: `instance`, `group`, `user`, `agent` or `chat`."
    )
    policy = serializers.CharField(help_text="Slug of the policy.")
    version = serializers.IntegerField(help_text="Number of the policy's active version.")
    locked = serializers.BooleanField(
        help_text="True: policies of more specific levels cannot override the value."
    )


class AdjustmentOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that was lowered because values of several policies conflict: the value set
    (`wanted`) and the one that applies (`used`).
    """

    field = serializers.CharField(help_text="Name of the field of the policy.")
    wanted = serializers.JSONField(help_text="Value that the policies set.")
    used = serializers.JSONField(
        help_text="Lower value that applies, because the values of the policies conflict."
    )


class SystemTextOut(serializers.Serializer[Mapping[str, Any]]):
    """The size and hash of a system text that the policy may hide."""

    hidden = serializers.BooleanField(help_text="True: the policy hides the text from users.")
    characters = serializers.IntegerField(help_text="Length of the text in characters.")
    sha256 = serializers.CharField(help_text="SHA-256 of the text, in hex.")


class PolicyOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a chat: its values and the policies that set them."""

    digest = serializers.CharField(
        help_text="Digest of the effective policy: SHA-256 of its values and sources, in hex."
    )
    label = serializers.CharField()  # type: ignore[assignment]  # DRF's metaclass removes fields
    values = serializers.DictField(
        help_text=f"Values by name: {', '.join(PolicyValues().to_json())}."
    )
    system_text = SystemTextOut()
    sources = serializers.DictField(
        child=SourceOut(), help_text="Policy that sets each value, by field name."
    )
    adjusted = AdjustmentOut(
        many=True, help_text="Values that were lowered because values of several policies conflict."
    )


class LostOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that another policy overrides, and the reason."""

    value = serializers.JSONField(allow_null=True)
    source = SourceOut(help_text="Policy that sets the overridden value.")  # type: ignore[assignment]  # DRF's metaclass removes fields
    reason = serializers.ChoiceField(
        choices=list(LOST.items()), help_text="Reason the value does not apply."
    )


class ExplainedFieldOut(serializers.Serializer[Mapping[str, Any]]):
    """One field of a policy: the effective value, its source, and overridden values."""

    field = serializers.CharField(help_text="Name of the field of the policy.")
    value = serializers.JSONField(allow_null=True, help_text="Value that applies. Null: not set.")
    wanted = serializers.JSONField(
        allow_null=True,
        help_text=(
            "Value that the policies set, if the model requires another one. Null: `value` is "
            "that value."
        ),
    )
    source = SourceOut(help_text="Policy that sets the value that applies.")  # type: ignore[assignment]  # removed by DRF
    reason = serializers.ChoiceField(
        choices=list(WON.items()), help_text="Reason this value applies."
    )
    used = serializers.BooleanField(help_text="False: the policy's strategy ignores this field.")
    lost = LostOut(many=True, help_text="Values of other policies that do not apply.")


class ExplanationOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a person, field by field, with overridden values."""

    person = serializers.CharField(help_text="User name of the person whose policy is explained.")
    chat = serializers.UUIDField(
        allow_null=True, help_text="Id of the chat whose policies count. Null: no chat."
    )
    agent = serializers.CharField(
        allow_null=True, help_text="Id of the agent's role. Null: no agent."
    )
    model = serializers.CharField(
        allow_null=True, help_text="Id of the model. Null: no model is chosen."
    )
    fields = ExplainedFieldOut(many=True, help_text="All fields of the policy.")  # type: ignore[assignment]  # removed by DRF


class FixedWarningOut(serializers.Serializer[Mapping[str, Any]]):
    """A conflict (`error`: cannot be saved), a `risk` or a `note` about a policy, with suggested
    fixes.
    """

    code = serializers.CharField(help_text="Stable code of the warning.")
    field = serializers.CharField(help_text="Name of the field that the warning is about.")
    level = serializers.ChoiceField(
        choices=["error", "risk", "note"],
        help_text=(
            "`error`: the values cannot be saved. `risk`: they work, with side effects. "
            "`note`: information."
        ),
    )
    message = serializers.CharField(
        help_text="Sentence that explains the warning, in the language of the request."
    )
    mend = serializers.DictField(
        help_text=(
            'Suggested fix: the new value of each field. `"not set"`: remove the field. '
            "Empty: no suggestion."
        )
    )


class PreviewRefusalOut(serializers.Serializer[Mapping[str, Any]]):
    """The reason why no prompt can be built: a stable `code`, and a localized `message`."""

    code = serializers.CharField()
    message = serializers.CharField()


class EstimateOut(serializers.Serializer[Mapping[str, Any]]):
    """An estimate of future compactions and costs, based on the latest turns of the chat."""

    summary_tokens = serializers.IntegerField(
        allow_null=True,
        help_text=("Estimated tokens of the next summary. Null: the strategy writes no summaries."),
    )
    summaries = serializers.IntegerField(
        help_text=(
            "Number of earlier summaries by the same model on which `summary_tokens` is "
            "based. 0: it is the policy's limit."
        )
    )
    turns_to_compaction = serializers.ListField(
        child=serializers.IntegerField(allow_null=True),
        allow_null=True,
        help_text=(
            "Number of turns until the next compaction, as [short, typical, long turns]. "
            "Null: none within 500 turns."
        ),
    )
    by_turns = serializers.IntegerField(
        help_text="Number of earlier turns on which the estimate is based."
    )
    cost_of_100_turns = MoneyOut(
        allow_null=True,
        help_text=(
            "Estimated cost of the next 100 turns, with the provider's cache. Null: the model "
            "has no price."
        ),
    )
    cached_share = serializers.FloatField(
        help_text="Estimated share of input tokens read from the provider's cache, 0 to 1."
    )


class PreviewSideOut(serializers.Serializer[Mapping[str, Any]]):
    """The next prompt under one policy.

    Token counts are as the provider counts. Other numbers are messages.
    """

    refused = PreviewRefusalOut(
        allow_null=True, help_text="Reason no prompt can be built. Null: it can."
    )
    tokens = serializers.IntegerField(help_text="Number of tokens of the prompt.")
    limit = serializers.IntegerField(help_text="Prompt limit in tokens.")
    parts = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=("Tokens of each part of the prompt, such as `system`, `summary` or `history`."),
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
            "Opaque value that changes when one of the two prompts changes. Null: the values "
            "are invalid."
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


class EventOut(serializers.Serializer[Any]):
    """An audit event. Its hash covers its data and `previous_hash`, the hash of the previous event
    of the same `scope` (`instance` or a chat).
    """

    scope = serializers.CharField()
    seq = serializers.IntegerField()
    type = serializers.CharField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(
        help_text=(
            "Who caused the event: `user:<id>`, or a part of the server, such as "
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
        help_text="Hash of the previous event of the same chain, in hex."
    )
    hash = serializers.CharField(help_text="SHA-256 of `previous_hash` and the event, in hex.")


class ModelOut(serializers.Serializer[Any]):
    """A model that the instance offers."""

    id = serializers.CharField(
        source="spec.slug", help_text="Id of the model, for `model` of a request."
    )
    label = serializers.CharField(source="spec", help_text="Name of the model on pages.")  # type: ignore[assignment]  # removed by DRF
    provider = serializers.CharField(source="provider_name", help_text="Name of the provider.")
    context_window = serializers.IntegerField(
        source="spec.window",
        allow_null=True,
        help_text="Maximum number of tokens of prompt and reply together. Null: unknown.",
    )
    max_output = serializers.IntegerField(
        source="spec.max_output",
        allow_null=True,
        help_text="Maximum number of tokens of a reply. Null: unknown.",
    )
    allowed = serializers.BooleanField(
        help_text="True: your policy allows the model in a new chat."
    )
    why_not = serializers.SerializerMethodField()
    default = serializers.BooleanField(
        source="current", help_text="True: new chats use the model if they name none."
    )
    is_demo = serializers.BooleanField(
        help_text="True: a built-in demonstration model without a provider."
    )
    cannot_stream = serializers.BooleanField(
        source="spec.cannot_stream", help_text="True: replies arrive as a whole, not as a stream."
    )

    def get_why_not(self, choice: Any) -> str:
        """Sentence that says which policy forbids the model. Empty: the model is allowed."""
        return "" if choice.allowed else choice.why_not


class KeyOut(serializers.Serializer[ApiKey]):
    """An API key without its secret. `prefix` has its first characters."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField(
        help_text="First characters of the secret, to recognise the key."
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=keys.SCOPES),
        help_text="Scopes of the key. It can do nothing else.",
    )
    unmanaged = serializers.BooleanField(
        help_text=("True: requests to `/v1` are passed through unchanged, and no text is stored.")
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(help_text="Time from which the key no longer works.")
    last_used_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time of the last request, accurate to a minute. Null: never used.",
    )
    revoked_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the key was revoked. Null: not revoked."
    )


class NewKeyOut(KeyOut):
    """A new API key with its secret, which no later response contains."""

    secret = serializers.CharField(
        help_text=(
            "The API key for the `Authorization` header. It is shown only once; store it now."
        )
    )


class ErrorOut(serializers.Serializer[Mapping[str, Any]]):
    """An error. Programs should check `code`, which is stable; `message` is for people."""

    message = serializers.CharField(
        help_text="Sentence for people, in the language of the request."
    )
    type = serializers.CharField()
    param = serializers.CharField(
        allow_null=True,
        help_text="Name of the field or parameter that caused the error. Null: none.",
    )
    code = serializers.CharField(help_text="Stable error code.")
    request_id = serializers.CharField(
        help_text="Id of the request, which the server log also contains."
    )
    details = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text=(
            "Only for refused policies: each problem with `code`, `fields` and `message`, or "
            "each field that another version changed."
        ),
    )


class ErrorBody(serializers.Serializer[Mapping[str, Any]]):
    """The body of every error response."""

    error = ErrorOut()


def build_page_serializer(
    kind: type[serializers.Serializer[Any]],
) -> type[serializers.Serializer[Any]]:
    """Return a serializer of `{data, next_cursor}`, with items of this kind."""
    fields = {
        "data": kind(many=True),
        "next_cursor": serializers.CharField(allow_null=True, help_text="Null on the last page."),
    }
    return type(f"{kind.__name__.removesuffix('Out')}Page", (serializers.Serializer,), fields)


def serialize_row(kind: type[serializers.Serializer[Any]], row: object) -> dict[str, Any]:
    answered: dict[str, Any] = _made(kind).to_representation(row)
    return answered


@cache
def _made(kind: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """Return a cached serializer, which keeps no state of a row. Creating one copies its fields."""
    return kind()


def serialize_rows(kind: type[serializers.Serializer[Any]], rows: Iterable[object]) -> list[Any]:
    return [serialize_row(kind, row) for row in rows]
