"""Exports one chat to a file in any of the formats."""

import tempfile
from contextlib import ExitStack
from datetime import datetime
from typing import IO, cast

from chats.exchange import documents, writing
from chats.models import Chat

LINES = "application/x-ndjson"
# Bytes held in memory; a larger file is on disk until it is sent.
IN_MEMORY = 4 * 1024 * 1024


def export_chat_file(
    chat: Chat, *, form: str, scope: str, actor: str, now: datetime
) -> tuple[str, IO[bytes]]:
    """Export a chat. Return the content type and the rewound file, which the caller closes.

    `form` is `ui`, `bundle`, or one of `documents.FORMS`. The ledger records the export. Raises
    `NotFound` if the chat is erased during the export.
    """
    reach = cast(writing.Scope, scope)
    writing.record_export(chat, scope=reach, form=form, actor=actor, now=now)
    with ExitStack() as kept:
        held = kept.enter_context(tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))
        if form == "ui":
            kind = LINES
            for part in writing.Writer(chat, scope=reach).lines():
                held.write(part)
        elif form == "bundle":
            kind = "application/zip"
            writing.write_bundle(chat, into=cast(IO[bytes], held))
        else:
            kind = documents.KINDS[form]
            documents.write_document(chat, form=form, into=cast(IO[bytes], held))
        held.seek(0)
        kept.pop_all()
    return kind, cast(IO[bytes], held)
