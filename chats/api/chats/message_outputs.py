"""Serializers for messages, their erasure and its proofs."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.models import Message


class MessageOut(serializers.Serializer[Message]):
    """A message. `seq` is null until a turn includes the message."""

    id = serializers.UUIDField()
    seq = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Position of the message on its branch, starting at 1. Null: the message is queued."
        ),
    )
    waiting = serializers.SerializerMethodField()
    role = serializers.ChoiceField(
        choices=Message.Role.choices,
        help_text="`user`: written by a person. `assistant`: written by a model.",
    )
    text = serializers.CharField(
        help_text="Text parts of the message, joined. Empty if it was erased or has no text."
    )
    speaker = serializers.DictField(
        allow_null=True,
        help_text=(
            "Team member who wrote the message: `roleId`, `roleName` and `type` (`human` or "
            "`ai`). Null: the message is not from a team member."
        ),
    )
    addressees = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names of the team members that the message addresses. Empty: all.",
    )
    parts = serializers.SerializerMethodField(
        help_text=(
            "Parts of the message: text, reasoning, tool calls and results, and files (without "
            "their text)."
        )
    )
    finish = serializers.CharField(
        help_text=(
            "Reason why the reply ended: `stop`, `tool_calls`, `length` (the model's limit), "
            "`limit` (this server's limit), `incomplete` (an error) or `stopped` (by a user). "
            "Empty: a user's message, or an imported reply without a reason."
        )
    )
    model = serializers.CharField(
        source="model_name",
        help_text=(
            "Name of the model that wrote the message, as used by its provider. Empty: a user "
            "wrote the message, or the model is unknown."
        ),
    )
    turn = serializers.UUIDField(
        source="turn_id",
        allow_null=True,
        help_text="Id of the turn that replies to this message or that wrote it. Null: none.",
    )
    token_count = serializers.IntegerField(
        allow_null=True,
        help_text="Number of tokens, as counted by the local tokenizer. Null: not counted yet.",
    )
    pinned = serializers.SerializerMethodField()
    excluded = serializers.BooleanField(
        help_text="True: prompts exclude the message and every summary that covers it."
    )
    kept = serializers.BooleanField(
        help_text="True: a user kept this incomplete reply, so later prompts include it."
    )
    erased = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    undated = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ListField(child=serializers.DictField()))
    def get_parts(self, message: Message) -> list[dict[str, Any]]:
        """The parts of the message, without the text of files."""
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
        """True: the message is pinned, so prompts include its full text.

        If the pins exceed the policy's limit later, the oldest ones are left out.
        """
        return message.pinned_at is not None

    def get_erased(self, message: Message) -> bool:
        """True: the text was permanently erased."""
        return message.erased_at is not None

    def get_undated(self, message: Message) -> bool:
        """True: the imported file has no time for the message; `created_at` only orders it."""
        return bool(message.undated)


class ProofOut(serializers.Serializer[Any]):
    """A proof with which the holder of a copy can verify the erased text.

    The salt is not stored, so only this response contains it.
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
        help_text="Proofs of the messages that this request erased. Empty: the message was erased "
        "before.",
    )
    quoted_by = serializers.ListField(
        child=serializers.UUIDField(),
        help_text=(
            "Ids of the other messages of the chat that quote this message: at least 40 "
            "characters of it, or all of it if it has 16 to 39. Paraphrases are not found. "
            "Messages that this request erased are not listed."
        ),
    )
