"""Regenerates replies for requests of `useChat` clients."""

import json

from django.db import transaction

from chats.actions import branching
from chats.exchange.ui_actions import UIAction, UIMessageNotFound
from chats.exchange.ui_lookup import find_chat, find_message, load_branch, select_path
from chats.exchange.ui_repeats import (
    find_current_turn,
    find_latest_attempt,
    find_named_turn,
    find_newest_unfinished,
    find_replacement,
    is_in_progress,
)
from chats.ground.refusals import NotFound
from chats.models import Chat, Message, Turn
from chats.record import history
from chats.record.locking import lock_chat_for_writing
from chats.turns.start import Accepted, replay_request


class UIRegeneration(UIAction):
    """A request for another reply."""

    def regenerate(self) -> tuple[Chat, Turn]:
        """Replace a reply with another, or reply again to a message whose reply failed.

        A repeated request returns the turn of the first one. Raises `NotFound` for an unknown chat,
        and `UIMessageNotFound`.
        """
        chat = find_chat(self.request.chat_id, user=self.user)
        if chat is None:
            raise NotFound
        self.choose_model(chat)
        return chat, self.make_once(chat)

    @transaction.atomic
    def make_once(self, chat: Chat) -> Turn:
        """Start another reply unless the request is repeated; return its turn.

        Raises `UIMessageNotFound`.
        """
        body = json.dumps([self.request.message_id, self.request.model])
        keyed = self.build_keyed("ui-regenerate", chat, body=body)
        chat = lock_chat_for_writing(chat.pk)
        if known := keyed.find(now=self.now):
            return replay_request(known).turn
        repeated = None if self.idempotency_key else self.find_repeated_regeneration(chat)
        if repeated is not None:
            return repeated
        accepted = self.make_reply(chat)
        self.remember(keyed, accepted)
        return accepted.turn

    def make_reply(self, chat: Chat) -> Accepted:
        """Regenerate a reply, or the reply to a user message. Retry a message without a reply.

        Raises `UIMessageNotFound`.
        """
        try:
            message = self.find_target(chat)
        except UIMessageNotFound:
            # Its place on the active branch may be taken by a reply that failed.
            turn = find_named_turn(chat, str(self.request.message_id))
            latest = find_latest_attempt(chat, turn) if turn else None
            if latest is None:
                raise
            return self.reply_in_place(latest)
        if message.role == Message.Role.USER:
            steps = history.select_step_messages(message.turn_id) if message.turn_id else None
            reply = steps.last() if steps is not None else None
            if reply is None:
                return Accepted(message, self.retry(message), repeated=False)
            message = reply
        return self.regenerate_message(message)

    def regenerate_message(self, message: Message) -> Accepted:
        """Start another reply in place of a reply."""
        return branching.regenerate_once(
            user=self.user, message=message, now=self.now, api_key=self.api_key
        )

    def reply_in_place(self, turn: Turn) -> Accepted:
        """Regenerate the reply of a turn, or retry the turn if it has no text.

        Raises `UIMessageNotFound`.
        """
        step = history.select_step_messages(turn.pk).last()
        if step is not None:
            return self.regenerate_message(step)
        message = turn.trigger or (turn.continues.reply if turn.continues else None)
        if message is None:
            raise UIMessageNotFound
        return Accepted(message, self.start_again(turn), repeated=False)

    def find_repeated_regeneration(self, chat: Chat) -> Turn | None:
        """Return the turn that an earlier request of this kind started, or None.

        Without a `messageId`, this is the unfinished reply. With the id of a user message, it is
        the message's reply until it ends: for a message with a complete reply, the client may want
        another one. Raises `UIMessageNotFound`.
        """
        named = self.request.message_id
        if named is None:
            turn = find_newest_unfinished(chat)
        elif reply := find_named_turn(chat, named):
            turn = find_replacement(chat, reply)
        else:
            message = self.find_target(chat)
            turn = find_current_turn(chat, message) if message.role == Message.Role.USER else None
            turn = turn if turn is not None and is_in_progress(turn) else None
        return None if turn is None or self.wants_other_model(turn) else turn

    def find_target(self, chat: Chat) -> Message:
        """Return the named message, or the last message of the chat.

        Raises `UIMessageNotFound`, and `NotFound` in a chat without messages.
        """
        if self.request.message_id:
            found = find_message(chat, self.request.message_id)
            if found is None:
                raise UIMessageNotFound
            return found
        last = select_path(load_branch(chat)).last()
        if last is None:
            raise NotFound
        return last
