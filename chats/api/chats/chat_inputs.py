"""Request bodies and query parameters about chats and folders."""

from typing import Any

from rest_framework import serializers

from chats.api.chats.message_inputs import WithFiles
from chats.api.core.inputs import (
    LARGEST_PAGE,
    Flag,
    Identifier,
    MessageText,
    PageQuery,
    PlainText,
    Strict,
    WholeNumber,
)


class NewChat(WithFiles):
    """Settings of a new chat, and its first message if it has text or files."""

    title = PlainText(
        default="",
        help_text="Title, at most 200 characters. Empty: the first message provides it.",
    )
    model = PlainText(
        default="",
        help_text=(
            "Id of the model that replies, from the list of models. Empty: the default model."
        ),
    )
    text = MessageText(
        required=False,
        help_text=(
            "Text of the first message, to which the model replies. The status is then 202. Can be "
            "left out if the message has files."
        ),
    )
    temporary = Flag(
        default=False,
        help_text=(
            "True: the chat is erased when you sign out, or 24 hours (the default of "
            "`TEMPORARY_CHAT_HOURS`) after its last message. Your policy must allow it."
        ),
    )
    team = Identifier(
        default=None,
        allow_null=True,
        help_text="Id of the team that replies in the chat. Null: a model replies.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Accept a message that has files but no text."""
        if attrs["files"] or attrs["inline_files"]:
            attrs.setdefault("text", "")
        return attrs


class ChatChange(Strict):
    """The fields of a chat to change. Omitted fields keep their values."""

    title = PlainText(
        required=False,
        help_text="Title of the chat, at most 200 characters. Empty: the title does not change.",
    )
    model = PlainText(
        required=False,
        help_text="Id of the model that replies from the next turn on, from the list of models.",
    )
    system_text = PlainText(
        required=False,
        help_text=(
            "System text of this chat, at most 20,000 characters. The policy decides whether "
            "it is allowed, and whether it follows or replaces the policy's text. Empty: none."
        ),
    )

    team = Identifier(
        required=False,
        allow_null=True,
        help_text=(
            "Id of the team that replies from the next message on. A chat without a task gets "
            "the team's task. Null: no team; the model replies."
        ),
    )
    memory = Flag(
        required=False,
        help_text=(
            "True: the chat uses your memory and can add preferences to it. Always false for "
            "temporary chats."
        ),
    )
    pinned = Flag(
        required=False,
        help_text="True: pages list the chat before the others. Lists of this API do not.",
    )
    archived = Flag(
        required=False,
        help_text="True: pages list the chat only under archived chats.",
    )
    folder = Identifier(
        required=False,
        allow_null=True,
        help_text="Id of the folder that contains the chat. Null: remove it from its folder.",
    )


class FolderChange(Strict):
    """The fields of a folder to change. Omitted fields keep their values."""

    name = PlainText(
        required=False,
        help_text="New name, 1 to 100 characters, unique among your folders, ignoring case.",
    )
    memory = Flag(
        required=False,
        help_text="True: the chats of the folder use your memory and can add preferences to it.",
    )


class FolderName(Strict):
    """The name of a new folder."""

    name = PlainText(
        help_text="Name, 1 to 100 characters, unique among your folders, ignoring case."
    )


class StateChange(Strict):
    """A correction of the state. Omitted fields keep their values."""

    version = WholeNumber(
        help_text=(
            "Version number that the correction is based on. Returns 409 if it is not the latest "
            "version."
        )
    )
    values = serializers.DictField(
        default=dict, help_text="New values by field name. Other fields keep their values."
    )
    remove = serializers.ListField(
        child=PlainText(),
        default=list,
        help_text="Names of the fields to remove from the state. Empty: none.",
    )


class StateRestoration(Strict):
    """The version to restore, and the latest version that the client knows."""

    version = WholeNumber(
        help_text=(
            "Latest version number that you have read. Returns 409 if there is a newer version."
        )
    )
    to = WholeNumber(help_text="Version number to restore.")


class ErasureRequest(Strict):
    """Options for erasing a message."""

    quotes = serializers.ChoiceField(
        choices=["keep", "erase"],
        default="keep",
        help_text=(
            "`erase`: also erase the messages that quote this message word for word. `keep` "
            "(default): only list them."
        ),
    )


class ChatsQuery(PageQuery):
    """Filters for the list of chats."""

    archived = serializers.BooleanField(
        required=False,
        help_text=(
            "True: only archived chats. False: only chats that are not archived. Absent: both."
        ),
    )
    folder = Identifier(
        required=False, help_text="Only chats in the folder with this id. Absent: all folders."
    )
    deleted = serializers.BooleanField(
        default=False,
        help_text=(
            "True: only deleted chats that can still be restored. False: only chats that are "
            "not deleted."
        ),
    )


class ArchiveQuery(Strict):
    """Keywords and a speaker to find among the original messages of a chat."""

    q = PlainText(
        help_text="Keywords or a question, at most 500 characters. Messages that contain more "
        "of the words come first."
    )
    speaker = PlainText(
        default="",
        help_text=(
            "Only messages of this speaker: the id or name of a role, ignoring case, spaces and "
            "hyphens, or the owner's user name. `user` or `assistant`: messages without a role. "
            "Empty: all."
        ),
    )
    limit = serializers.IntegerField(
        min_value=1,
        max_value=LARGEST_PAGE,
        default=20,
        help_text="Maximum number of messages, 1 to 100. Default: 20.",
    )


class SearchQuery(Strict):
    """Keywords and filters for your chats."""

    q = PlainText(
        help_text="Keywords or a question, at most 400 characters. Results that match more "
        "words of the query rank higher; rare words count more."
    )
    chat = Identifier(
        required=False, help_text="Only results in the chat with this id. Absent: all your chats."
    )
    folder = Identifier(
        required=False,
        help_text="Only results in the folder with this id. Absent: all folders.",
    )
    role = serializers.ChoiceField(
        choices=["user", "assistant", "summary"],
        required=False,
        help_text=(
            "Only messages of `user` or `assistant`, or only summaries (`summary`). Absent: all."
        ),
    )
    speaker = PlainText(
        default="", help_text="Only messages of the team role with this name. Empty: all."
    )
    after = serializers.DateTimeField(
        required=False,
        help_text=(
            "Only messages and summaries written at this time or later (ISO 8601). Absent: no "
            "limit."
        ),
    )
    before = serializers.DateTimeField(
        required=False,
        help_text=(
            "Only messages and summaries written before this time (ISO 8601). Absent: no limit."
        ),
    )
    page = serializers.IntegerField(
        min_value=1, max_value=10, default=1, help_text="Page number, 1 to 10. Default: 1."
    )


class ExplainQuery(Strict):
    """The agent and the model for which to explain a chat's policy."""

    agent = PlainText(
        required=False,
        max_length=80,
        help_text=(
            "Role id of the agent whose policy is explained. Absent: the chat's policy, without "
            "an agent."
        ),
    )
    model = PlainText(
        required=False,
        max_length=60,
        help_text=(
            "Id of the model for which the policy is explained. Empty: the model that would reply."
        ),
    )


class EffectiveQuery(ExplainQuery):
    """The user, chat, agent and model for which to explain the policy."""

    person = PlainText(max_length=150, help_text="Name of the user whose policy is explained.")
    chat = Identifier(
        required=False,
        help_text=(
            "Id of a chat of `person`. The policies assigned to the chat also apply. Absent: no "
            "chat."
        ),
    )


class RecentQuery(Strict):
    """The maximum number of recent messages, and optionally their chat."""

    limit = serializers.IntegerField(
        min_value=1,
        required=False,
        help_text=(
            "Maximum number of messages. The policy's window is the default and the upper limit; "
            "never more than 500."
        ),
    )
    chat = Identifier(
        required=False, help_text="Only messages of the chat with this id. Absent: all chats."
    )
