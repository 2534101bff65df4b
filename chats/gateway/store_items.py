"""Stores the items of a request as messages of a chat, with their images and files.

Everything runs in the caller's transaction, which has locked the chat.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User

from chats.files import attach, uploads
from chats.gateway import request_files
from chats.gateway.matching.conversation import Conversation, Item
from chats.gateway.request_files import ItemFiles
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Message
from chats.prompt import model_choice
from chats.record import images, message_text, messages
from chats.record.message_commitments import Sealed
from chats.turns.start import ChatFull
from contextpolicy.engine.messages.messages import (
    Part,
    ToolCallPart,
    find_result_images,
    name_result_image,
)
from contextpolicy.engine.messages.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class ItemSource:
    """The request from which new items come.

    `field` is the name of the field with its messages, for error messages.
    """

    user: User
    conversation: Conversation
    choice: model_choice.ChosenModel
    field: str


def store_items(
    items: Sequence[Item],
    *,
    source: ItemSource,
    branch: Branch,
    completed: Item | None = None,
    counter: TokenCounter,
    now: datetime,
) -> tuple[list[Message], list[Sealed]]:
    """Store new items at the end of a branch.

    `completed`: the last reply of the branch with the results of its calls, which are added to it.
    Returns the new messages, and the new commitment to that reply. Raises the refusals of
    `check_texts` and `attach_new_files`. The caller saves the chat's `accepted_count`.
    """
    chat = branch.chat
    if completed is not None:
        check_result_images(completed, source=source)
    held = attach_new_files(items, source=source)
    new = [each.item for each in held]
    check_texts(new, limit=source.choice.values.input_length_limit, field=source.field)
    sealed = []
    if completed is not None:
        sealed = [complete_tool_calls(branch, completed, source=source, counter=counter)]
    rows = messages.append_sent(
        chat=chat, branch=branch, said=[(i.role, i.parts) for i in new], counter=counter, now=now
    )
    store_item_images(rows, source=source)
    store_message_files(chat, rows, held=held)
    return rows, sealed


def check_chat_room(branch: Branch, *, number: int) -> None:
    """Raise `ChatFull` if adding `number` messages would exceed the limit per chat."""
    if branch.last_seq + number > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)


def attach_new_files(items: Sequence[Item], *, source: ItemSource) -> list[ItemFiles]:
    """Return the new messages with their files, which are locked until they are stored.

    Raises the refusals of `attach.build_attached_files`.
    """
    with request_files.blame_field(source.field):
        held = [
            request_files.attach_documents(
                item, said=source.conversation, user=source.user, choice=source.choice
            )
            for item in items
        ]
        files = {file.file_id: file for each in held for file in each.files}
        attach.lock_attached_files(list(files.values()))
    return held


def store_item_images(rows: Sequence[Message], *, source: ItemSource) -> None:
    """Store the images of new messages or results. The caller has locked the user.

    Raises `FileQuotaExceeded`.
    """
    found = source.conversation.images
    with request_files.blame_field(source.field):
        uploads.check_image_quota(source.user.pk, rows, found=found, name=attach.IMAGE_NAME)
    images.store_message_images(rows, found=found)


def store_message_files(chat: Chat, rows: Sequence[Message], *, held: Sequence[ItemFiles]) -> None:
    """Store the files of new messages, and mark the chat if it now has truncated documents."""
    for row, each in zip(rows, held, strict=True):
        for file in each.files:
            messages.store_message_file(row, file=file)
    parts = (file.part for each in held for file in each.files)
    attach.mark_chat_documents(chat, parts=parts)


def check_texts(items: Sequence[Item], *, limit: int, field: str) -> None:
    """Check the text of new user messages. Raises the refusals of `message_text.check_text`."""
    for item in items:
        if item.role == "user" and item.text.strip():
            try:
                message_text.check_text(item.text, limit=limit)
            except Refusal as refusal:
                refusal.param = field
                raise


def check_result_images(item: Item, *, source: ItemSource) -> None:
    """Raise the refusals of `attach.check_file_policy` for the images of new tool results."""
    shown = Item("assistant", item.result_images)
    with request_files.blame_field(source.field):
        request_files.attach_documents(
            shown, said=source.conversation, user=source.user, choice=source.choice
        )


def complete_tool_calls(
    branch: Branch, item: Item, *, source: ItemSource, counter: TokenCounter
) -> Sealed:
    """Add the tool results to the last reply of a branch, under its own call ids.

    Returns the new commitment to the reply.
    """
    reply = Message.objects.get(branch=branch, seq=branch.last_seq)
    given = [part["call_id"] for part in reply.parts if part["type"] == "tool_call"]
    called = [part.call_id for part in item.parts if isinstance(part, ToolCallPart)]
    own = dict(zip(called, given, strict=True))
    results: list[Part] = []
    for each in item.results:
        for offset, image in find_result_images(item.parts).get(each.call_id, ()):
            results.append(name_result_image(image, call_id=own[each.call_id], offset=offset))
        results.append(replace(each, call_id=own[each.call_id]))
    sealed = messages.add_results(reply, results=results, counter=counter)
    store_item_images([reply], source=source)
    return sealed
