"""Chats as lists of UI messages, for requests of the AI SDK's `useChat`.

The client chooses the ids of its chat and messages; both are stored. The stored chat is
authoritative: only the last message of a request is read, and the previous message determines its
position.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.actions import branching, lifecycle
from chats.exchange.ui_actions import UIAction, UIMessageNotFound
from chats.exchange.ui_approvals import (
    NOTHING_KNOWN,
    KnownParts,
    decide_approvals,
)
from chats.exchange.ui_files import OWN_FILE, identify_image, name_file_addresses
from chats.exchange.ui_lookup import (
    find_chat,
    find_message,
    get_ui_chat,
    is_empty_chat,
    is_unfinished,
    load_branch,
)
from chats.exchange.ui_regenerate import UIRegeneration
from chats.exchange.ui_repeats import (
    find_current_turn,
    is_in_progress,
    matches_sent_message,
)
from chats.exchange.ui_requests import UIRequest, UnsupportedUIMessage, join_message_texts
from chats.files.attach import check_file_number, load_image_copies
from chats.files.inline import InlineFile, store_inline_files
from chats.ground.refusals import Refusal
from chats.models import ApiKey, Chat, Message, MessageFile, Turn
from chats.record import history
from chats.record.idempotency import IdempotencyKeyReused
from chats.record.images import Bytes
from chats.record.locking import lock_chat_for_writing
from chats.turns.start import replay_request, start_turn
from contextpolicy.engine.messages.given_parts import KEPT
from contextpolicy.engine.messages.messages import (
    FilePart,
    parse_parts,
)
from contextpolicy.engine.messages.ui_messages import UIMessage


class HistoryNotStored(Refusal):
    """The request continues messages that are not in the chat. Import them first."""

    code = "history_not_stored"
    status = 409
    sentence = gettext_noop(
        "The earlier messages in this request are not in this chat. Load the chat’s "
        "messages, or import the chat first (POST /imports)."
    )


class UIMessageIdReused(IdempotencyKeyReused):
    """The chat has a message with the last message's ID but other content, or it was erased."""

    sentence = gettext_noop(
        "A message with this ID was already sent in this chat, with other content. To replace it, "
        "send its ID as `messageId`. For a new message, use a new ID."
    )
    param = "messages"


@dataclass(frozen=True, slots=True)
class UIReply:
    """The turn that a client follows, and the parts of the reply that the client already has."""

    chat: Chat
    turn: Turn
    known: KnownParts = NOTHING_KNOWN


def reply_to_ui_request(
    request: UIRequest,
    *,
    user: User,
    now: datetime,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
) -> UIReply:
    """Execute a request: send, edit, regenerate, or answer requests for consent.

    A chat that does not exist is created with its first message. A repeated request returns the
    turn of the first one. Raises `UnsupportedUIMessage`, `HistoryNotStored`, `UIMessageNotFound`,
    `UIMessageIdReused`, `NotFound` for a deleted chat, and the refusals of the action.
    """
    kind = UIRegeneration if request.trigger == "regenerate-message" else UISubmission
    act = kind(request, user=user, now=now, api_key=api_key, idempotency_key=idempotency_key)
    if isinstance(act, UIRegeneration):
        return UIReply(*act.regenerate())
    return act.decide() if request.approvals else UIReply(*act.submit())


class UISubmission(UIAction):
    """A request that sends or replaces a message, or answers requests for consent."""

    # The uploads of the last message, and the hashes or addresses of its other images.
    files: Sequence[uuid.UUID] = ()
    images: frozenset[str] = frozenset()
    # The images among the uploads, loaded from the file storage.
    copies: Mapping[uuid.UUID, Bytes] | None = None

    def submit(self) -> tuple[Chat, Turn]:
        """Send the last message, or replace an earlier message with it."""
        text = self.text()
        chat = find_chat(self.request.chat_id, user=self.user)
        self.files = self.store_files()
        if chat is None:
            return self.open(text)
        self.choose_model(chat)
        return chat, self.submit_to(chat, text)

    def decide(self) -> UIReply:
        """Store the answers to consent requests in the last message. Raises `NotFound`."""
        chat = get_ui_chat(self.request.chat_id, user=self.user)
        turn, known = decide_approvals(
            self.request.approvals,
            chat=chat,
            calls=self.request.calls,
            user=self.user,
            now=self.now,
        )
        return UIReply(chat, turn, known)

    def text(self) -> str:
        """Return the text of the last message. Raises `UnsupportedUIMessage`.

        Its reasoning and tool parts are only stored: models get them from replies alone.
        """
        last = self.request.last
        if last is None or last.role != "user":
            raise UnsupportedUIMessage
        return join_message_texts(last)

    def store_files(self) -> list[uuid.UUID]:
        """Store the files of the last message and return their ids, before any transaction.

        Raises `UnsupportedUIMessage` for a URL other than that of an upload, unless the
        message is edited, and the refusals of uploads.
        """
        last = self.request.last
        parts = [part for part in last.parts if isinstance(part, FilePart)] if last else []
        uploads: list[uuid.UUID | InlineFile] = []
        for part in parts:
            known = OWN_FILE.fullmatch(part.reference)
            if known is not None:
                uploads.append(uuid.UUID(known[1]))
            elif part.reference.startswith("data:"):
                uploads.append(InlineFile(part.name, part.reference))
            elif self.request.message_id:
                self.images |= {identify_image(part.reference)}
            else:
                raise UnsupportedUIMessage
        inline = [file for file in uploads if isinstance(file, InlineFile)]
        if inline:
            # Before the first file is stored.
            check_file_number(len(parts))
        # The size of the request is limited already.
        stored = iter(store_inline_files(inline, owner=self.user, now=self.now, limit=None))
        return [next(stored) if isinstance(file, InlineFile) else file for file in uploads]

    def load_images(self) -> None:
        """Load the images of the message, before any transaction. Raises `FileMissing`."""
        self.copies = load_image_copies(self.files, user=self.user)

    def open(self, text: str) -> tuple[Chat, Turn]:
        """Create the chat with its first message, in one transaction.

        Raises `HistoryNotStored` and `UnsupportedUIMessage`.
        """
        if self.request.count > 1:
            raise HistoryNotStored
        if self.images:
            raise UnsupportedUIMessage
        self.load_images()
        with transaction.atomic():
            # There is no chat to lock, so the user's row serialises two requests.
            User.objects.select_for_update(no_key=True).get(pk=self.user.pk)
            chat = find_chat(self.request.chat_id, user=self.user)
            if chat is None:
                slug = self.request.model
                chat = lifecycle.create_chat(
                    owner=self.user,
                    now=self.now,
                    model=lifecycle.find_model(slug) if slug else None,
                    client_id=self.request.chat_id,
                )
                return chat, self.send(chat, text)
        # A concurrent request created it. Its row is locked before the user's, as everywhere.
        self.choose_model(chat)
        return chat, self.submit_to(chat, text)

    def submit_to(self, chat: Chat, text: str) -> Turn:
        """Send a message to an existing chat: at its end, after a message, or in place of it.

        Raises `UnsupportedUIMessage` for an edit with new files, and `UIMessageNotFound`.
        """
        turn = self.replace(chat, text) if self.request.message_id else None
        if turn is not None:
            return turn
        if self.images:
            raise UnsupportedUIMessage
        self.load_images()
        return self.append(chat, text)

    @transaction.atomic
    def append(self, chat: Chat, text: str) -> Turn:
        """Send the message after the previous message of the request. Raises `HistoryNotStored`.

        A new branch starts there if the client removed the messages after it.
        """
        # Two copies of a request would create two branches from the same end of the chat.
        chat = lock_chat_for_writing(chat.pk)
        before = self.find_previous(chat)
        if before is not None:
            branching.branch_from_message(user=self.user, message=before, now=self.now)
            chat.refresh_from_db()
        return self.send(chat, text)

    @transaction.atomic
    def replace(self, chat: Chat, text: str) -> Turn | None:
        """Replace the named message, unless the request is repeated.

        None if the chat lacks the message but has the previous one of the request: an earlier
        request did not arrive, so the message is new. Raises `UIMessageNotFound` if its
        position is unknown, and `UnsupportedUIMessage`.
        """
        named = str(self.request.message_id)
        body = json.dumps([named, text, self.metadata()], sort_keys=True)
        keyed = self.build_keyed("ui-edit", chat, body=body)
        # A concurrent request may have changed the active branch since the chat was read.
        chat = lock_chat_for_writing(chat.pk)
        if known := keyed.find(now=self.now):
            return replay_request(known).turn
        repeated = None if self.idempotency_key else self.find_repeated_edit(chat, text)
        if repeated is not None:
            return repeated
        replaced = find_message(chat, named)
        if replaced is None:
            if self.request.previous_id is None and not is_empty_chat(chat):
                raise UIMessageNotFound
            return None
        self.check_kept_files(replaced)
        accepted = branching.edit_message(
            user=self.user,
            message=replaced,
            text=text,
            now=self.now,
            api_key=self.api_key,
            metadata=self.metadata(),
        )
        self.remember(keyed, accepted)
        return accepted.turn

    def find_repeated_edit(self, chat: Chat, text: str) -> Turn | None:
        """Return the turn of the last user message if an edit would not change that message.

        A reply that failed or was stopped before its first text is started again. None for any
        other edit, and if another model is to reply. Raises `UnsupportedUIMessage`.
        """
        stored = find_message(chat, cast(UIMessage, self.request.last).id)
        if stored is None or not matches_sent_message(
            stored, text=text, source=self.metadata()["source"]
        ):
            return None
        turn = find_current_turn(chat, stored)
        if turn is None or self.wants_other_model(turn):
            return None
        self.check_kept_files(stored)
        if is_in_progress(turn) or turn.status == Turn.Status.COMPLETED:
            return turn
        return None if history.select_step_messages(turn.pk).exists() else self.retry(stored)

    def check_kept_files(self, replaced: Message) -> None:
        """Raise `UnsupportedUIMessage` for a file that the edited message does not have."""
        links = MessageFile.objects.filter(message=replaced).values_list("file", flat=True)
        listed = name_file_addresses(replaced, parse_parts(replaced.parts))
        known = {identify_image(part.reference) for part in listed if isinstance(part, FilePart)}
        if not (set(self.files) <= set(links) and self.images <= known):
            raise UnsupportedUIMessage

    def find_previous(self, chat: Chat) -> Message | None:
        """Return the message after which the client continues; None for the end of the chat.

        Raises `HistoryNotStored` for a message that the chat does not have.
        """
        previous = self.request.previous_id
        if previous is None:
            return None
        if is_unfinished(chat, previous):
            return None
        before = find_message(chat, previous)
        if before is None:
            raise HistoryNotStored
        is_last = before.seq is None or before.seq == load_branch(chat).last_seq
        return None if is_last or self.is_repeated(chat) else before

    def is_repeated(self, chat: Chat) -> bool:
        """Return True if the last message of the request is already stored."""
        last = self.request.last
        return last is not None and find_message(chat, last.id) is not None

    def send(self, chat: Chat, text: str) -> Turn:
        """Send the message at the end of the chat.

        A repeated request with the message's id returns its turn. Raises `UIMessageIdReused` for
        an id that was sent with different text.
        """
        own = self.request.last.id if self.request.last else ""
        key = self.idempotency_key or f"ui-{hashlib.sha256(own.encode()).hexdigest()}"
        try:
            return start_turn(
                user=self.user,
                chat=chat,
                text=text,
                now=self.now,
                idempotency_key=key,
                api_key=self.api_key,
                metadata=self.metadata(),
                files=self.files,
                copies=self.copies,
            ).turn
        except IdempotencyKeyReused:
            if self.idempotency_key:
                raise
            raise UIMessageIdReused from None

    def metadata(self) -> dict[str, Any]:
        """Return the client's id, metadata and further parts, to store with the message."""
        last = cast(UIMessage, self.request.last)
        own: dict[str, Any] = {"id": last.id, "metadata": dict(last.metadata), "sent": True}
        if self.request.extras:
            own["parts"] = list(self.request.extras)
        if self.request.kept:
            own[KEPT] = dict(self.request.kept)
        return {"source": own}
