"""Finds the chat of an earlier import of the same original, and its missing messages."""

import json
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.utils.crypto import salted_hmac

from chats.exchange.drafts import ChatDraft, Node
from chats.exchange.message_positions import PAGE
from chats.exchange.originals import set_document_ids
from chats.models import Chat, ImportedChat, Message
from chats.record import message_erasure
from contextpolicy.engine.messages.messages import serialize_parts

# Maximum number of similar chats without an id that are compared.
MOST_ALIKE = 5


def find_imported_chat(draft: ChatDraft, *, owner: AbstractBaseUser, form: str) -> Chat | None:
    """Return the chat from which a draft was exported, or to which it was imported before.

    The chat may be deleted. None if the owner has no such chat.
    """
    if draft.here:
        itself = Chat.objects.filter(pk=draft.here, owner=owner.pk).first()
        if itself is not None:
            return itself
    rows = ImportedChat.objects.filter(owner=owner.pk, form=form).select_related("chat")
    row = rows.filter(source_id=draft.source).first()
    if row is None and not draft.has_id:
        # A chat without an id is found if a file contains all its messages, word for word. The file
        # can be longer, or have another title.
        some = rows.filter(details__beginning=digest_first_message(draft)).order_by("-created_at")
        row = next((one for one in some[:MOST_ALIKE] if contains_messages(draft, one.chat)), None)
    return row.chat if row else None


def digest_first_message(draft: ChatDraft) -> str:
    """Return a keyed digest of the first message of a draft."""
    first = json.dumps([draft.nodes[0].id, serialize_neutral_parts(draft.nodes[0])])
    return salted_hmac("chats.exchange.beginning", first, algorithm="sha256").hexdigest()


def contains_messages(draft: ChatDraft, chat: Chat) -> bool:
    """Return True if a draft contains all messages of an imported chat unchanged."""
    known = find_known_messages(chat, draft)
    if known is None or known[1]:
        return False
    brought = Message.objects.filter(branch__chat=chat, metadata__source__id__isnull=False)
    return brought.count() <= len(known[0])


def find_known_messages(chat: Chat, draft: ChatDraft) -> tuple[set[str], int] | None:
    """Return the draft's messages that a chat already has, and how many of them differ in text.

    An erased message is recognised by a keyed digest of its id. None: the chat cannot be extended,
    because it was written here, was deleted, or has erased messages without such a digest.
    """
    if str(chat.pk) == draft.here or chat.deleted_at is not None:
        return None
    parts = {node.id: node for node in draft.nodes}
    digests = set()
    found: set[str] = set()
    changed = 0
    rows = Message.objects.filter(branch__chat=chat).values_list("metadata", "parts", "erased_at")
    for metadata, listed, erased_at in rows.iterator(chunk_size=PAGE):
        own = str((metadata.get("source") or {}).get("id") or "")
        if own in parts:
            found.add(own)
            changed += serialize_neutral_parts(parts[own]) != set_document_ids(listed, ids={})
        elif erased_at is not None and message_erasure.ERASED_ID not in metadata:
            return None
        else:
            digests.add(metadata.get(message_erasure.ERASED_ID, ""))
    digests.discard("")
    if digests:
        found |= {own for own in parts if message_erasure.digest_of_id(own) in digests}
    return found, changed


def serialize_neutral_parts(node: Node) -> list[dict[str, Any]]:
    """Return the parts of a message without document ids, which differ between imports."""
    return set_document_ids(serialize_parts(node.parts), ids={})


def list_missing_messages(chat: Chat, draft: ChatDraft) -> tuple[Node, ...]:
    known = find_known_messages(chat, draft)
    return tuple(n for n in draft.nodes if n.id not in known[0]) if known is not None else ()
