"""The messages that a model read to write a chat's title."""

from chats.models import Message, Receipt


def is_title_source(message: Message) -> bool:
    """Return True if a call that wrote a title for the chat contained the message."""
    rows = Receipt.objects.filter(
        turn__branch__chat=message.branch.chat_id, step=Receipt.AFTERWARDS, call=Receipt.BESIDE
    )
    pk = str(message.pk)
    return any(segment[1] == pk for row in rows.only("segments") for segment in row.segments)
