"""Request bodies and query parameters about messages and their files."""

from typing import Any

from rest_framework import serializers

from chats.api.core.inputs import Flag, Identifier, MessageText, PageQuery, PlainText, Strict


class InlineFileIn(Strict):
    """A small file inside a request."""

    name = PlainText(default="", help_text="Name of the file. Empty: `file`.")
    url = PlainText(
        help_text=(
            "Content as a base64 data URL: `data:text/plain;base64,…`. The type is detected from "
            "the content."
        ),
    )


class WithUploads(Strict):
    """Uploaded files of a message."""

    files = serializers.ListField(
        child=Identifier(),
        default=list,
        max_length=1_000,
        help_text=(
            "Ids of your uploads, in order. At most 20 files with 100 MiB in total (the defaults "
            "of `FILES_PER_MESSAGE` and `MESSAGE_FILES_BYTES`), or fewer if the policy sets "
            "lower limits."
        ),
    )
    allow_unread = Flag(
        default=False,
        help_text=(
            "True: if a file is not read yet or could not be read, only its name is sent. False: "
            "the request is refused (`file_not_ready`, `file_not_read`)."
        ),
    )


class WithFiles(WithUploads):
    """Files of a message: uploads, and files inside the request."""

    inline_files = serializers.ListField(
        child=InlineFileIn(),
        default=list,
        max_length=1_000,
        help_text=(
            "Small files sent in the request body instead of as uploads, up to 1 MiB in total. "
            "They come after the files in `files`. The request waits up to 45 seconds for the "
            "server to read them."
        ),
    )


class RegenerateRequest(Strict):
    """Options for regenerating a reply in a team."""

    play_on = Flag(
        default=False,
        help_text=(
            "True: in a team, the agents that replied after this one also reply again. False: "
            "only this agent replies again."
        ),
    )


class NewMessage(WithFiles):
    """A message to send. NUL and lone surrogates become U+FFFD."""

    text = MessageText(
        required=False,
        help_text="Text of the message. Can be empty or left out only if the message has files.",
    )
    stream = Flag(
        default=False,
        help_text="True: the response is the event stream of the reply (200) instead of a 202.",
    )
    as_role = PlainText(
        default="",
        help_text=(
            "Id of a human role in the chat's team that writes the message. Empty: the user."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a message with neither text nor files."""
        if "text" not in attrs and not (attrs["files"] or attrs["inline_files"]):
            words = self.fields["text"].error_messages["required"]
            raise serializers.ValidationError({"text": [words]}, code="required")
        attrs.setdefault("text", "")
        return attrs


class EditRequest(Strict):
    """The new text of a message. NUL and lone surrogates become U+FFFD."""

    text = MessageText(
        help_text="New text of the message. Can be empty only if the message has files."
    )


class MessagesQuery(PageQuery):
    """The range of messages to list, such as the originals of a compaction."""

    from_seq = serializers.IntegerField(
        min_value=1,
        required=False,
        help_text="Only messages with this sequence number (`seq`) or a higher one.",
    )
    to_seq = serializers.IntegerField(
        min_value=1,
        required=False,
        help_text="Only messages with this sequence number (`seq`) or a lower one.",
    )
