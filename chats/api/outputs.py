"""The outputs of the API: each field by name, so that a new column never leaks out by itself."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.api.money import MoneyOut
from chats.api.receipt_outputs import ReceiptOut
from chats.compaction.report.skip_reasons import CompactionOutcome
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
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.explanation import LOST, WON


class ChatOut(serializers.Serializer[Chat]):
    """A chat."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    model = serializers.CharField(source="model.slug", default=None, allow_null=True)
    team = serializers.UUIDField(source="team_id", allow_null=True)
    pinned = serializers.BooleanField()
    archived = serializers.BooleanField()
    folder = serializers.UUIDField(source="folder_id", allow_null=True)
    temporary = serializers.BooleanField()
    unread = serializers.BooleanField()
    message_count = serializers.IntegerField(source="active_branch.last_seq", default=0)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    deleted_at = serializers.DateTimeField(
        allow_null=True, help_text="Null, but in the list of deleted chats."
    )
    erase_at = serializers.DateTimeField(
        allow_null=True, help_text="Until then a deleted chat can be brought back."
    )


class FolderOut(serializers.Serializer[Folder]):
    """A folder of a person's chats."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    memory = serializers.SerializerMethodField()

    def get_memory(self, row: Folder) -> bool:
        """Tell whether the chats use and fill their owner's memory."""
        return not row.without_memory


class OneChatOut(ChatOut):
    """A chat with its own system text and whether it has a memory."""

    memory = serializers.SerializerMethodField()

    def get_memory(self, row: Chat) -> bool:
        """Tell whether the chat uses and fills its owner's memory."""
        return not (row.without_memory or row.temporary)

    system_text = serializers.CharField(help_text="Empty: none. Lists of chats leave it out.")


class MessageOut(serializers.Serializer[Message]):
    """A message. `seq` is null while it waits to be taken up by a turn."""

    id = serializers.UUIDField()
    seq = serializers.IntegerField(allow_null=True)
    waiting = serializers.SerializerMethodField()
    role = serializers.ChoiceField(choices=Message.Role.choices)
    text = serializers.CharField(help_text="The text parts joined: the bytes that were sent.")
    speaker = serializers.DictField(
        allow_null=True,
        help_text="The member of a team that said it: `roleId`, `roleName`, `type`.",
    )
    addressees = serializers.ListField(
        child=serializers.CharField(), help_text="The members it is for; none: everybody."
    )
    parts = serializers.ListField(child=serializers.DictField())
    finish = serializers.CharField(help_text="Why a reply ended; empty for a user's message.")
    model = serializers.CharField(source="model_name")
    turn = serializers.UUIDField(source="turn_id", allow_null=True)
    token_count = serializers.IntegerField(allow_null=True)
    pinned = serializers.SerializerMethodField()
    excluded = serializers.BooleanField()
    kept = serializers.BooleanField()
    erased = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()

    def get_waiting(self, message: Message) -> bool:
        """Tell whether it is accepted and not yet taken up."""
        return message.seq is None

    def get_pinned(self, message: Message) -> bool:
        """Tell whether a person keeps it in the prompt."""
        return message.pinned_at is not None

    def get_erased(self, message: Message) -> bool:
        """Tell whether its text was removed for good."""
        return message.erased_at is not None


class ProofOut(serializers.Serializer[Any]):
    """A proof of what was erased, for whoever still has the words.

    The salt is kept nowhere: this response is the only one that has it.
    """

    salt = serializers.CharField(help_text="32 bytes in hex: the key.")
    commitment = serializers.CharField(
        help_text="HMAC-SHA-256 in hex, as the certificate in the ledger has it. Of a message: over"
        " its parts as canonical JSON (sorted keys, no spaces, ASCII only). Of a chat: over a line"
        " for each message in the order of acceptance, its id, a blank, its parts, a line feed."
    )


class MessageProofOut(ProofOut):
    """A proof of the words of one message."""

    message = serializers.UUIDField()


class ErasedOut(MessageOut):
    """A message without its words."""

    proofs = serializers.ListField(
        child=MessageProofOut(),
        help_text="One for each message that this call erased; none when it was erased before.",
    )
    quoted_by = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="The messages of the chat that still have at least 40 characters of it word for"
        " word, or all of it if it was shorter. What was said in other words is not found.",
    )


class OriginOut(serializers.Serializer[Mapping[str, Any]]):
    """The origin of a value of the state."""

    seq = serializers.IntegerField(help_text="The newest message it takes into account.")
    by = serializers.ChoiceField(choices=ChatState.Kind.choices)
    at = serializers.DateTimeField()


class StateOut(serializers.Serializer[Mapping[str, Any]]):
    """The state of a chat. `version` is 0, and nothing known, before the first message."""

    branch = serializers.UUIDField()
    version = serializers.IntegerField(help_text="To be sent with a correction.")
    values = serializers.DictField()
    origins = serializers.DictField(child=OriginOut())
    to_seq = serializers.IntegerField(help_text="Messages up to here are in it.")
    model = serializers.CharField(help_text="What read it; empty after a correction.")
    updated_at = serializers.DateTimeField(allow_null=True)
    policy = serializers.CharField(help_text="The policy that keeps it.")
    schema = serializers.DictField(help_text="The JSON Schema of the values.")


class FailureOut(serializers.Serializer[Mapping[str, str]]):
    """The reason why a turn failed."""

    code = serializers.CharField()
    message = serializers.CharField()


class TurnOut(serializers.Serializer[Turn]):
    """A turn: a user message and what it caused."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="branch.chat_id")
    status = serializers.ChoiceField(choices=Turn.Status.choices)
    over = serializers.BooleanField(source="is_over", help_text="Nothing will change any more.")
    message = serializers.UUIDField(source="trigger_id", allow_null=True)
    continues = serializers.UUIDField(source="continues_id", allow_null=True)
    absorbed_by = serializers.UUIDField(source="absorbed_by_id", allow_null=True)
    model = serializers.CharField(source="model_name")
    round = serializers.UUIDField(
        source="round_id", allow_null=True, help_text="Of an agent's reply: its round."
    )
    hop = serializers.IntegerField(allow_null=True, help_text="Its number in the round.")
    agent = serializers.CharField(
        source="agent.name", default=None, allow_null=True, help_text="Who replies, in a team."
    )
    attempt = serializers.IntegerField()
    step = serializers.IntegerField()
    error = serializers.SerializerMethodField()
    usage = serializers.DictField()
    queued_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    first_token_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    waiting_until = serializers.DateTimeField(
        allow_null=True, help_text="The provider asked to wait until then."
    )

    @extend_schema_field(FailureOut(allow_null=True))
    def get_error(self, turn: Turn) -> dict[str, str] | None:
        """Return the failure, if there was one."""
        if not turn.error_code:
            return None
        return {"code": turn.error_code, "message": turn.error_sentence}


class WhyNotOut(serializers.Serializer[CompactionOutcome]):
    """The decision about compaction after a turn."""

    code = serializers.CharField(help_text="Stable; `started` when a summary was begun.")
    message = serializers.CharField(source="sentence")
    started = serializers.BooleanField(source="was_started")
    tokens = serializers.IntegerField(help_text="The prompt's, as the provider counts.")
    mark = serializers.IntegerField(help_text="The tokens that the prompt had passed; 0: none.")


class ReferenceOut(serializers.Serializer[TurnReference]):
    """A part of an earlier message, often of another chat, that went along with the question."""

    chat = serializers.UUIDField(source="message.branch.chat_id")
    message = serializers.UUIDField(source="message_id")
    seq = serializers.IntegerField(source="message.seq")
    start = serializers.IntegerField(help_text="The first character of the message's text.")
    end = serializers.IntegerField(help_text="The one behind the last.")
    score = serializers.FloatField(help_text="Compares it with the others of this turn.")


class TurnDetailOut(TurnOut):
    """A turn with its text, the receipts of its calls, and the decision about compaction."""

    partial_text = serializers.CharField(help_text="The running step's text so far.")
    reply = MessageOut(allow_null=True)
    receipts = ReceiptOut(many=True, source="receipts_in_order")
    references = ReferenceOut(
        many=True,
        source="references_in_order",
        help_text="What went along from elsewhere, in its order; the notes of the receipts say why "
        "there is nothing.",
    )
    compaction = WhyNotOut(help_text="Why this turn was followed by a summary, or by none.")


class AcceptedOut(serializers.Serializer[Any]):
    """An accepted message and the turn that will answer it."""

    message = MessageOut()
    turn = TurnOut()


class NewChatOut(ChatOut):
    """A new chat; `message` and `turn` are null unless it began with a text."""

    message = MessageOut(allow_null=True)
    turn = TurnOut(allow_null=True)


class BranchOut(serializers.Serializer[Branch]):
    """One path through a chat; it shares its parent's messages up to `fork_seq`."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="chat_id")
    parent = serializers.UUIDField(  # type: ignore[assignment]  # the metaclass takes fields out
        source="parent_id", allow_null=True
    )
    fork_seq = serializers.IntegerField()
    message_count = serializers.IntegerField(source="last_seq")
    active = serializers.SerializerMethodField(help_text="New messages go here.")
    compaction = serializers.UUIDField(
        source="active_compaction_id", allow_null=True, help_text="What is in force."
    )
    context_revision = serializers.IntegerField(help_text="Grows with each change of what is sent.")
    compaction_paused = serializers.BooleanField(help_text="Since an undo; resume ends it.")
    paused_at = serializers.DateTimeField(allow_null=True)
    compaction_asked_at = serializers.DateTimeField(
        source="asked_at", allow_null=True, help_text="Of a request that no worker has begun."
    )
    created_at = serializers.DateTimeField()

    def get_active(self, branch: Branch) -> bool:
        """Tell whether it is the chat's active branch."""
        return branch.chat.active_branch_id == branch.pk


class PinRoomOut(serializers.Serializer[Any]):
    """The tokens (≈) that the pinned messages take, and may take."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField()


class SourceOut(serializers.Serializer[Mapping[str, Any]]):
    """The source of a policy value."""

    level = serializers.CharField()
    policy = serializers.CharField()
    version = serializers.IntegerField()
    locked = serializers.BooleanField()


class AdjustmentOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that was lowered because the policies together could not work."""

    field = serializers.CharField()
    wanted = serializers.JSONField()
    used = serializers.JSONField()


class SystemTextOut(serializers.Serializer[Mapping[str, Any]]):
    """A system text that the policy hides, by its size and hash."""

    hidden = serializers.BooleanField()
    characters = serializers.IntegerField()
    sha256 = serializers.CharField()


class PolicyOut(serializers.Serializer[Mapping[str, Any]]):
    """The effective policy of a chat."""

    digest = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the metaclass takes fields out
    values = serializers.DictField(help_text=f"By the names {', '.join(PolicyValues().to_json())}.")
    system_text = SystemTextOut()
    sources = serializers.DictField(child=SourceOut())
    adjusted = AdjustmentOut(many=True)


class LostOut(serializers.Serializer[Mapping[str, Any]]):
    """A value that another policy set aside."""

    value = serializers.JSONField(allow_null=True)
    source = SourceOut()  # type: ignore[assignment]  # the metaclass takes fields out
    reason = serializers.ChoiceField(choices=list(LOST.items()))


class ExplainedFieldOut(serializers.Serializer[Mapping[str, Any]]):
    """One field of a policy: what is in effect, why, and what lost."""

    field = serializers.CharField()
    value = serializers.JSONField(allow_null=True)
    wanted = serializers.JSONField(
        allow_null=True, help_text="What the policies say, where the model made another necessary."
    )
    source = SourceOut()  # type: ignore[assignment]  # as above
    reason = serializers.ChoiceField(choices=list(WON.items()))
    used = serializers.BooleanField(help_text="False: the strategy never reads it.")
    lost = LostOut(many=True)


class ExplanationOut(serializers.Serializer[Mapping[str, Any]]):
    """The policy of somebody, field by field."""

    person = serializers.CharField()
    chat = serializers.UUIDField(allow_null=True)
    agent = serializers.CharField(allow_null=True)
    model = serializers.CharField(allow_null=True)
    fields = ExplainedFieldOut(many=True)  # type: ignore[assignment]  # as above


class MendedFindingOut(serializers.Serializer[Mapping[str, Any]]):
    """One thing to know of a policy, and the values that would end it."""

    code = serializers.CharField()
    field = serializers.CharField()
    level = serializers.ChoiceField(choices=["error", "risk", "note"])
    message = serializers.CharField()
    mend = serializers.DictField(help_text='By field; "not set": leave the field out.')


class PreviewRefusalOut(serializers.Serializer[Mapping[str, Any]]):
    """The reason why no prompt can be made."""

    code = serializers.CharField()
    message = serializers.CharField()


class EstimateOut(serializers.Serializer[Mapping[str, Any]]):
    """An estimate of what follows, as if the next turns were like the newest ones."""

    summary_tokens = serializers.IntegerField(
        allow_null=True, help_text="Of the next summary; null: this strategy writes none."
    )
    summaries = serializers.IntegerField(
        help_text="How many of the same writer say so; 0: by the policy's limit."
    )
    turns_to_compaction = serializers.ListField(
        child=serializers.IntegerField(allow_null=True),
        allow_null=True,
        help_text="With short turns, usual ones and long ones; null: none within 500.",
    )
    by_turns = serializers.IntegerField(help_text="The number of turns that this goes by.")
    cost_of_100_turns = MoneyOut(allow_null=True, help_text="With the provider's cache.")
    cached_share = serializers.FloatField(help_text="Of their input.")


class PreviewSideOut(serializers.Serializer[Mapping[str, Any]]):
    """The next prompt under one policy: tokens as the provider counts, messages by their number."""

    refused = PreviewRefusalOut(allow_null=True)
    tokens = serializers.IntegerField()
    limit = serializers.IntegerField()
    parts = serializers.DictField(child=serializers.IntegerField())
    full = serializers.IntegerField()
    cut = serializers.IntegerField()
    summarised = serializers.IntegerField()
    left_out = serializers.DictField(child=serializers.IntegerField(), help_text="By reason.")
    due = serializers.ChoiceField(choices=["none", "prepare", "swap"])
    due_reason = serializers.CharField(allow_blank=True)
    estimate = EstimateOut(allow_null=True, help_text="Null where the next message is refused.")


class PolicyPreviewOut(serializers.Serializer[Mapping[str, Any]]):
    """Findings of a policy, and the next prompt now and with it."""

    findings = MendedFindingOut(many=True)
    state = serializers.CharField(
        allow_null=True, help_text="Stays the same as long as both sides hold."
    )
    now = PreviewSideOut(allow_null=True)
    proposed = PreviewSideOut(allow_null=True)


class EventOut(serializers.Serializer[Any]):
    """One audit event, chained to the one before by its hash."""

    scope = serializers.CharField()
    seq = serializers.IntegerField()
    type = serializers.CharField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    chat = serializers.UUIDField(source="chat_id", allow_null=True)
    turn = serializers.UUIDField(source="turn_id", allow_null=True)
    data = serializers.DictField()  # type: ignore[assignment]  # the metaclass takes fields out
    previous_hash = serializers.CharField()
    hash = serializers.CharField()


class ModelOut(serializers.Serializer[Any]):
    """A model that can be chosen."""

    id = serializers.CharField(source="spec.slug")
    label = serializers.CharField(source="spec")  # type: ignore[assignment]  # as above
    provider = serializers.CharField(source="provider_name")
    context_window = serializers.IntegerField(source="spec.window", allow_null=True)
    max_output = serializers.IntegerField(source="spec.max_output", allow_null=True)
    allowed = serializers.BooleanField()
    why_not = serializers.SerializerMethodField()
    default = serializers.BooleanField(source="current")
    is_demo = serializers.BooleanField()
    cannot_stream = serializers.BooleanField(
        source="spec.cannot_stream", help_text="Its replies come in one piece."
    )

    def get_why_not(self, choice: Any) -> str:
        """Name the policy that forbids it; empty when none does."""
        return "" if choice.allowed else choice.why_not


class KeyOut(serializers.Serializer[ApiKey]):
    """A key without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=keys.SCOPES))
    unmanaged = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewKeyOut(KeyOut):
    """A new key; its secret is shown this once."""

    secret = serializers.CharField()


class ErrorOut(serializers.Serializer[Mapping[str, Any]]):
    """An error: `code` is stable, `message` is for people."""

    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    request_id = serializers.CharField()
    details = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="Of a refused policy: each reason with its fields, or each field that differs.",
    )


class ErrorBody(serializers.Serializer[Mapping[str, Any]]):
    """The body of every response that is no success."""

    error = ErrorOut()


def listed(kind: type[serializers.Serializer[Any]]) -> type[serializers.Serializer[Any]]:
    """Make the schema of a page of such items."""
    fields = {
        "data": kind(many=True),
        "next_cursor": serializers.CharField(allow_null=True, help_text="Null after the last."),
    }
    return type(f"{kind.__name__.removesuffix('Out')}Page", (serializers.Serializer,), fields)


def one(kind: type[serializers.Serializer[Any]], row: object) -> dict[str, Any]:
    """Return the row as it is sent."""
    answered: dict[str, Any] = _made(kind).to_representation(row)
    return answered


@cache
def _made(kind: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """Make the serializer, which keeps nothing of a row: making it copies each of its fields."""
    return kind()


def items(kind: type[serializers.Serializer[Any]], rows: Iterable[object]) -> list[Any]:
    """Return the rows as they are sent."""
    return [one(kind, row) for row in rows]
