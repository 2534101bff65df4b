"""Serializers for chats, folders, branches and the state of a chat."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from chats.api.chats.message_outputs import MessageOut
from chats.api.chats.turn_outputs import TurnOut
from chats.models import Branch, Chat, ChatState, Folder


class ChatOut(serializers.Serializer[Chat]):
    """A chat without its messages. `message_count` counts the messages of the active branch."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    model = serializers.CharField(
        source="model.slug",
        default=None,
        allow_null=True,
        help_text="Id of the chat's model. Null: none was chosen, so the default model is used.",
    )
    team = serializers.UUIDField(
        source="team_id",
        allow_null=True,
        help_text="Id of the team that replies. Null: a model replies.",
    )
    pinned = serializers.BooleanField(
        help_text="True: pages list the chat before the others. Lists of this API do not."
    )
    archived = serializers.BooleanField(
        help_text="True: pages list the chat only under archived chats."
    )
    folder = serializers.UUIDField(
        source="folder_id",
        allow_null=True,
        help_text="Id of the folder that contains the chat. Null: no folder.",
    )
    temporary = serializers.BooleanField(
        help_text=(
            "True: the chat is erased when you sign out, or 24 hours (the default of "
            "`TEMPORARY_CHAT_HOURS`) after its last message."
        )
    )
    unread = serializers.BooleanField(
        help_text="True: the chat has a reply that you have not seen."
    )
    message_count = serializers.IntegerField(
        source="active_branch.last_seq",
        default=0,
        help_text="Number of messages on the active branch, without queued ones.",
    )
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField(
        help_text="Time of the last use. The list of chats is ordered by this time."
    )
    deleted_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of deletion. Null: the chat is not deleted."
    )
    erase_at = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time after which the chat is erased, unless a legal hold covers it. Set for a "
            "deleted chat, which can be restored until then, and for an archived chat that a "
            "`/v1` request opened and no later request continued. Null: not set."
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
        """True: the chat uses your memory and can add preferences to it.

        Always false for temporary chats.
        """
        return not (row.without_memory or row.temporary)

    system_text = serializers.CharField(
        help_text="The chat's own system text. Empty: none. Lists of chats do not include it."
    )


class OriginOut(serializers.Serializer[Mapping[str, Any]]):
    """The origin of one value in the state."""

    seq = serializers.IntegerField(
        help_text="Sequence number of the newest message that the value takes into account."
    )
    by = serializers.ChoiceField(
        choices=ChatState.Kind.choices,
        help_text="Kind of the version that set the value, as in the list of versions.",
    )
    at = serializers.DateTimeField(help_text="Time at which the value was set.")


class StateOut(serializers.Serializer[Mapping[str, Any]]):
    """The state of a chat.

    Until the first version is saved, `version` is 0 and `values` is empty.
    """

    branch = serializers.UUIDField(help_text="Id of the active branch, to which the state belongs.")
    version = serializers.IntegerField(
        help_text="Latest version number. Send it as `version` with a correction."
    )
    values = serializers.DictField(help_text="Current values, by field name.")
    origins = serializers.DictField(
        child=OriginOut(), help_text="Origin of each value, by field name."
    )
    to_seq = serializers.IntegerField(
        help_text=(
            "Sequence number of the last message that the state takes into account. 0: no version "
            "is saved yet."
        )
    )
    model = serializers.CharField(
        help_text=(
            "Name of the model that extracted the latest version, at its provider. Empty: no "
            "model wrote it, or no version is saved yet."
        )
    )
    updated_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the latest version. Null: no version is saved yet."
    )
    policy = serializers.CharField(
        help_text=(
            "Name and version of the most specific policy of the chat, such as `Support v7`."
        )
    )
    schema = serializers.DictField(help_text="JSON Schema of `values`, as the policy defines it.")


class NewChatOut(ChatOut):
    """A new chat. `message` and `turn` are null unless `text` or files were sent."""

    message = MessageOut(
        allow_null=True,
        help_text="First message. Null: the chat was created without `text` or files.",
    )
    turn = TurnOut(
        allow_null=True,
        help_text=(
            "Turn that replies to the message. Null: the chat was created without `text` or files."
        ),
    )


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
        help_text="Sequence number of the last message shared with the parent branch. 0: none."
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
            "Counter that increases when the active compaction changes, or when a message of the "
            "branch is erased. It also increases when a message in the range of the active "
            "summary is pinned, unpinned, excluded, included or kept."
        )
    )
    compaction_paused = serializers.BooleanField(
        help_text=(
            "True: automatic compaction is paused, because a compaction was undone or because an "
            "API client shortens the history itself."
        )
    )
    paused_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time of the undo that paused automatic compaction. Null: no undo paused it.",
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
    """Number of tokens in the pinned messages (local tokenizer), and the policy's limit."""

    used = serializers.IntegerField(help_text="Number of tokens in all pinned messages.")
    limit = serializers.IntegerField(
        help_text=(
            "Maximum number of tokens in all pinned messages: the policy's limit, or half of the "
            "prompt limit if the policy sets none."
        )
    )
