"""Serializers for turns, and for a message with its turn."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.api.chats.message_outputs import MessageOut
from chats.api.core.receipt_outputs import ReceiptOut
from chats.compaction.report.skip_reasons import SENTENCES, CompactionOutcome
from chats.files.sent_excerpts import SentExcerpt
from chats.models import ToolCall, Turn, TurnReference
from chats.turns.consents import WaitingCall


class FailureOut(serializers.Serializer[Mapping[str, str]]):
    """The reason why a turn failed: a stable `code`, and a localized `message`."""

    code = serializers.CharField(help_text="Stable error code.")
    message = serializers.CharField(
        help_text="Human-readable message in the language of the request."
    )


class TurnOut(serializers.Serializer[Turn]):
    """A turn: one reply of a model or an agent, and the message that it replies to."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="branch.chat_id", help_text="Id of the chat.")
    status = serializers.ChoiceField(
        choices=Turn.Status.choices,
        help_text=(
            "`queued` (also while a tool call waits for consent), `running`, `completed`, "
            "`stopped` (by a user), `failed` (see `error`) or `absorbed` (the turn in "
            "`absorbed_by` also replies to its message, or a team's round waits for another person "
            "or is at a limit)."
        ),
    )
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
        help_text="Id of the user's message that the turn replies to. Null: it continues a reply.",
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
    model = serializers.CharField(
        source="model_name",
        help_text="Name of the model at its provider, which can differ from its id.",
    )
    round = serializers.UUIDField(
        source="round_id",
        allow_null=True,
        help_text="Id of the round to which an agent's reply belongs. Null: no team replies.",
    )
    hop = serializers.IntegerField(
        allow_null=True,
        help_text="Position of the reply in its round, starting at 1. Null: no round.",
    )
    agent = serializers.CharField(
        source="agent.name",
        default=None,
        allow_null=True,
        help_text="Name of the agent that replies. Null: no team replies.",
    )
    attempt = serializers.IntegerField(
        help_text=(
            "Attempt number, starting at 1. A new attempt starts if a worker is lost or "
            "restarts, and after a wait for consent. 0: not started."
        )
    )
    step = serializers.IntegerField(
        help_text=(
            "Model call number in the attempt, starting at 1. Each tool result leads to another "
            "call. 0: no call yet."
        )
    )
    error = serializers.SerializerMethodField()
    usage = serializers.DictField(
        help_text=(
            "Tokens as reported by the provider: `input`, `output`, `cached` and `written` (to "
            "its cache), and `reasoning` (part of the output) if it reports them. Empty: not "
            "reported."
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
        allow_null=True,
        help_text="Time at which a user requested to stop the reply. Null: no stop was requested.",
    )
    waiting_until = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time until which the turn waits because the provider requested a delay. Null: it "
            "does not wait."
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
        help_text="\n".join(f"- `{code}`: {sentence}" for code, sentence in SENTENCES.items())
    )
    message = serializers.CharField(
        source="sentence",
        help_text="Human-readable explanation of `code`, in the language of the request.",
    )
    started = serializers.BooleanField(
        source="was_started", help_text="True: a compaction was started."
    )
    tokens = serializers.IntegerField(
        help_text="Number of tokens in the prompt, as counted by the provider."
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
    seq = serializers.IntegerField(
        source="message.seq", help_text="Sequence number of the message in its chat."
    )
    start = serializers.IntegerField(
        help_text="Position of the first character in the message's text, in code points."
    )
    end = serializers.IntegerField(
        help_text="Position after the last character of the excerpt, in code points."
    )
    score = serializers.FloatField(
        help_text="Relevance, higher is better. Comparable only with excerpts of the same turn."
    )
    reason = serializers.CharField(
        help_text=(
            "`match`: the message matches the question. `nearby`: it is near a message that "
            "matches the question. Empty: the turn ran before reasons were stored."
        )
    )
    match_seq = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Sequence number of the message that matches the question: `seq` itself, or a message "
            "near it "
            "in the same chat. Null: the turn ran before reasons were stored."
        ),
    )


class FileExcerptOut(serializers.Serializer[SentExcerpt]):
    """A part of a document that was sent with the question."""

    file = serializers.UUIDField(source="file_id", help_text="Id of the file.")
    name = serializers.CharField(help_text="Name of the file.")
    page = serializers.IntegerField(
        help_text="Page number in the document, starting at 1. 0: the document has no pages."
    )
    part = serializers.IntegerField(help_text="Part number in the document, starting at 1.")
    start = serializers.IntegerField(
        help_text="Position of the first character in the document's text, in code points."
    )
    end = serializers.IntegerField(
        help_text="Position after the last character of the excerpt, in code points."
    )
    score = serializers.FloatField(
        allow_null=True,
        help_text="Relevance, higher is better. Null: the turn ran before scores were stored.",
    )
    words = serializers.ListField(
        child=serializers.CharField(),
        help_text="Words of the question that the part contains, in any inflection.",
    )


class WaitingCallOut(serializers.Serializer[WaitingCall]):
    """A tool call that waits for the user's consent."""

    id = serializers.IntegerField(help_text="Id of the call, to send as `call` with a decision.")
    server = serializers.CharField(help_text="Slug of the tool server.")
    tool = serializers.CharField(help_text="Name of the tool on its server.")
    arguments = serializers.CharField(help_text="Arguments of the call: JSON that the model wrote.")
    expires_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the call is denied unless the user answers the request first.",
    )


class ToolCallOut(serializers.Serializer[ToolCall]):
    """A call to a tool on a tool server: sizes, duration and outcome, without arguments or
    result."""

    id = serializers.IntegerField()
    step = serializers.IntegerField(
        help_text="Number of the model call that requested the tool call, starting at 1."
    )
    server = serializers.CharField(help_text="Slug of the tool server.")
    tool = serializers.CharField(help_text="Name of the tool on its server.")
    outcome = serializers.CharField(
        help_text=(
            "`open` (in progress, or waiting for consent), `ok`, `error` (reported by the tool), "
            "`refused` (not called), "
            "`failed` (an error before the call) or `unknown` (the tool may have run)."
        )
    )
    code = serializers.CharField(
        help_text="Code of the reason why the call was refused or failed. Empty: neither."
    )
    argument_bytes = serializers.IntegerField(help_text="Size of the arguments in bytes.")
    result_bytes = serializers.IntegerField(help_text="Size of the result in bytes.")
    milliseconds = serializers.IntegerField(
        allow_null=True,
        help_text="Duration of the call in milliseconds. Null: the call has not ended.",
    )


class TurnDetailOut(TurnOut):
    """A turn with its text, the receipts of its calls, and the compaction decision."""

    partial_text = serializers.CharField(
        help_text=(
            "Text of the running step so far. Empty: no step is running, or it has no text yet."
        )
    )
    reply = MessageOut(
        allow_null=True, help_text="Last message of the reply. Null: no reply is stored."
    )
    receipts = ReceiptOut(
        many=True,
        source="receipts_in_order",
        help_text="Receipts of the model calls of all attempts, in order.",
    )
    references = ReferenceOut(
        many=True,
        source="references_in_order",
        help_text=(
            "Excerpts of earlier messages in the prompt, in prompt order. If the policy retrieves "
            "context and there are none, the receipts' `notes` give the reason."
        ),
    )
    file_excerpts = FileExcerptOut(
        many=True,
        source="file_excerpts_in_order",
        help_text="Parts of documents in the prompt, in prompt order.",
    )
    tool_calls = ToolCallOut(
        many=True,
        source="tool_calls_in_order",
        help_text="Calls to tools of tool servers, in the order in which they were made.",
    )
    waiting_calls = WaitingCallOut(
        many=True, help_text="Tool calls that wait for consent. Empty: none."
    )
    compaction = SkipReasonOut(
        help_text="Decision about a compaction after this turn, and the reason."
    )


class AcceptedOut(serializers.Serializer[Any]):
    """A stored message and the turn that replies to it."""

    message = MessageOut()
    turn = TurnOut()
