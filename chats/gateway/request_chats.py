"""Finds, creates and titles the chats that store the requests of API clients."""

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User

from chats.actions import lifecycle
from chats.gateway.matching.conversation import Conversation
from chats.gateway.request_types import Sent
from chats.models import Branch, Chat, GatewayChat, Message
from chats.record import history
from chats.turns.derived_titles import derive_title, find_first_text, is_derived_title
from contextpolicy.engine.messages.messages import FilePart, TextPart
from speed import prepared

# Maximum number of messages of a conversation that are searched for its title.
MOST_TITLE_MESSAGES = 20
# Title of a chat that a request without a text opened, for example with an image.
NO_TITLE = "…"


def find_room_chat(sent: Sent, *, room: str) -> uuid.UUID | None:
    """Return the id of the chat that a request names, or to which its conversation id belongs.

    None if there is no such chat.
    """
    if sent.chat is not None:
        return sent.chat.pk
    if not sent.is_named:
        return None
    rows = GatewayChat.objects.filter(room=room, chat__owner=sent.user, chat__deleted_at=None)
    # Clients continue no chats of teams. If the owner added a team, another chat is opened.
    rows = rows.filter(chat__team=None)
    return rows.order_by("-chat__created_at").values_list("chat", flat=True).first()


def create_provisional_chat(sent: Sent, *, room: str, now: datetime) -> Chat:
    """Create a provisional chat, which is hidden until a second request continues it.

    It neither reads nor writes its owner's memory. Raises `TooManyChats`.
    """
    title = derive_request_title(sent.conversation) or NO_TITLE
    chat = lifecycle.create_chat(owner=sent.user, now=now, title=title)
    chat.archived, chat.without_memory = True, True
    chat.erase_at = now + timedelta(hours=settings.GATEWAY_PROVISIONAL_HOURS)
    prepared.save_row_fields(chat, "archived", "without_memory", "erase_at")
    prepared.insert_row(GatewayChat(chat=chat, room=room, source=sent.identity.source[:40]))
    return chat


def derive_request_title(said: Conversation) -> str:
    """Return a title for the chat that a request opens.

    Taken from the user's first text, a file name or the system text; empty if there is none of
    them.
    """
    parts = [part for item in said.items if item.role == "user" for part in item.parts]
    texts = (part.text for part in parts if isinstance(part, TextPart))
    files = (part.name for part in parts if isinstance(part, FilePart) and part.name)
    first = find_first_text(texts) or next(files, "") or find_first_text(said.system)
    return derive_title(first)


def make_chat_permanent(chat: Chat) -> bool:
    """Make a provisional chat permanent once a request contains one of its replies.

    Return True for the first such request.
    """
    is_first = GatewayChat.objects.filter(chat=chat, proven=False).update(proven=True)
    if is_first and chat.is_provisional:
        chat.archived, chat.erase_at = False, None
        chat.save(update_fields=["archived", "erase_at"])
    return bool(is_first)


def title_after_conversation(chat: Chat, *, branch: Branch, user: User, now: datetime) -> None:
    """Derive a chat's title from the branch that its client continues.

    The chat may have been opened under the same id by a request about the conversation, such as one
    for its title. A title that a user chose stays.
    """
    asked = Message.objects.filter(branch__chat=chat, role=Message.Role.USER, seq=1)
    opened = [find_first_text([row.text]) for row in asked]
    begun = history.select_path_messages(branch, after=0, before=MOST_TITLE_MESSAGES + 1)
    first = find_first_text(row.text for row in begun if row.role == Message.Role.USER)
    title = derive_title(first)
    if title != chat.title and any(is_derived_title(chat.title, text=text) for text in opened):
        lifecycle.rename_chat(chat=chat, title=title, actor=f"user:{user.pk}", now=now)
