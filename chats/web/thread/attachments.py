"""Files on pages: those attached in the message box, and those of messages."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext, ngettext

from chats.files.attach import estimate_image_tokens
from chats.files.uploads import list_files
from chats.models import StoredFile
from chats.web.words import format_number
from contextpolicy.engine.messages.files import parse_document_reference
from contextpolicy.wording import join_items

State = StoredFile.State


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached in the message box."""

    file: StoredFile

    @property
    def is_pending(self) -> bool:
        """True until a worker has read the file."""
        return bool(self.file.state == State.PENDING)

    @property
    def is_failed(self) -> bool:
        """True if the file could not be read."""
        return bool(self.file.state == State.FAILED)

    @property
    def words(self) -> str:
        """The state of the file, or its kind and size."""
        if self.is_pending:
            return gettext("Reading…")
        if self.is_failed:
            return self.file.localized_reason
        if self.file.width:
            return join_items(
                [
                    f"{self.file.get_kind_display()}, {self.file.width} × {self.file.height}",
                    format_tokens(estimate_image_tokens(self.file)),
                ]
            )
        return join_items(describe_size(self.file))


@dataclass(frozen=True, slots=True)
class ShownFile:
    id: str
    name: str
    words: str


def describe_size(file: StoredFile) -> list[str]:
    """Return the kind of a document, its page count if it has pages, and its token count."""
    facts = [str(file.get_kind_display())]
    if file.pages:
        facts.append(format_pages(file.pages))
    return [*facts, format_tokens(file.tokens)]


def format_tokens(tokens: int) -> str:
    words = ngettext("{n} token", "{n} tokens", tokens)
    return words.format(n=format_number(tokens))


def format_pages(pages: int) -> str:
    return ngettext("{n} page", "{n} pages", pages).format(n=format_number(pages))


def load_attachments(user: User, ids: Collection[uuid.UUID]) -> list[Attachment]:
    """Return the user's files in the given order, except deleted ones."""
    if not ids:
        return []
    rows = {row.pk: row for row in list_files(user).filter(pk__in=ids)}
    return [Attachment(rows[pk]) for pk in dict.fromkeys(ids) if pk in rows]


def list_documents(parts: Sequence[Mapping[str, str]]) -> list[ShownFile]:
    files = [part for part in parts if part["type"] == "file"]
    found = [(part["name"], parse_document_reference(part["reference"])) for part in files]
    return [
        ShownFile(
            document.id,
            name,
            join_items(
                [
                    filesizeformat(document.size),
                    *([format_pages(document.pages)] if document.pages else []),
                ]
            ),
        )
        for name, document in found
        if document is not None
    ]
