"""The messages from which a chat's title was derived."""

from chats.models import Message, Receipt


def is_title_source(message: Message) -> bool:
    """Return True if the chat's title was derived from the message."""
    rows = Receipt.objects.filter(
        turn__branch__chat=message.branch.chat_id, step=Receipt.AFTERWARDS, call=Receipt.BESIDE
    )
    pk = str(message.pk)
    return any(segment[1] == pk for row in rows.only("segments") for segment in row.segments)
