"""Forms of the message box: a message of a chat, or the first message of a new chat."""

import uuid
from typing import Any

from django import forms

from chats.ground.texts import sanitise_text
from chats.web.forms import DomainField, PageForm, TextField


class MessageTextField(TextField):
    """The text of a message. Characters that cannot be stored become U+FFFD."""

    def to_python(self, value: Any) -> str:
        return sanitise_text(super().to_python(value))


class FileIdsField(DomainField):
    """Ids of files. A malformed id becomes the nil UUID, which matches no file."""

    widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[uuid.UUID]:
        found = []
        for text in value or ():
            try:
                found.append(uuid.UUID(text))
            except ValueError:
                found.append(uuid.UUID(int=0))
        return found


class FilesForm(PageForm):
    """The files in the message box."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Forms have another attribute with this name.
        self.fields["files"] = FileIdsField()


class MessageForm(FilesForm):
    """A message. `key`: its idempotency key; `as`: the role in whose name the user writes."""

    text = MessageTextField()
    key = TextField()
    # Send files by name only if they could not be read.
    unread = forms.BooleanField(required=False)
    # True if a reply was running when the message box was rendered.
    replying = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # A keyword of Python, so it cannot be an attribute.
        self.fields["as"] = TextField()


class NewChatForm(MessageForm):
    """A message with the settings of the chat that it creates."""

    model = TextField()
    team = TextField()
    temporary = forms.BooleanField(required=False)
