"""The base of the actions of `useChat` requests, and their refusals."""

from datetime import datetime

from django.contrib.auth.models import User
from django.utils.translation import gettext_noop

from chats.actions import branching, lifecycle
from chats.exchange.ui_requests import UIRequest
from chats.ground.refusals import NotFound
from chats.models import ApiKey, Chat, Message, Turn
from chats.record.idempotency import IdempotentRequest
from chats.turns.follow_up_turns import retry_turn
from chats.turns.start import Accepted


class UIMessageNotFound(NotFound):
    """The chat has no message with the ID in `messageId`."""

    sentence = gettext_noop(
        "This chat has no message with the ID in `messageId`, so nothing was replaced. Load the "
        "chat’s messages. To send a new message, leave out `messageId`."
    )
    param = "messageId"


class UIAction:
    """A user's `useChat` request, applied to their chat."""

    def __init__(
        self,
        request: UIRequest,
        *,
        user: User,
        now: datetime,
        api_key: ApiKey | None,
        idempotency_key: str,
    ) -> None:
        self.request = request
        self.user = user
        self.now = now
        self.api_key = api_key
        self.idempotency_key = idempotency_key

    def choose_model(self, chat: Chat) -> None:
        """Change the chat's model if the request names a different model."""
        slug = self.request.model
        if slug and (chat.model is None or chat.model.slug != slug):
            actor = f"user:{self.user.pk}"
            lifecycle.choose_model(chat=chat, model_slug=slug, actor=actor, now=self.now)

    def wants_other_model(self, turn: Turn) -> bool:
        """Return True if the request names a different model from the turn's.

        An agent with its own model does not use the chat's model. Its turn has no model before the
        agent is chosen.
        """
        if turn.agent.model_id if turn.agent else turn.round_id:
            return False
        own = turn.model.slug if turn.model else ""
        return bool(self.request.model) and self.request.model != own

    def build_keyed(self, route: str, chat: Chat, *, body: str) -> IdempotentRequest:
        """Return the record of the `Idempotency-Key`. Without a key, it finds nothing.

        Its route names the chat, because an action changes which message an id refers to.
        """
        return IdempotentRequest(
            user=self.user, route=f"{route}:{chat.pk}", key=self.idempotency_key, body=body
        )

    def remember(self, keyed: IdempotentRequest, accepted: Accepted) -> None:
        """Store the result for the `Idempotency-Key`, if there is one."""
        result = {"message": str(accepted.message.pk), "turn": str(accepted.turn.pk)}
        keyed.remember(result=result, now=self.now)

    def retry(self, message: Message) -> Turn:
        """Reply again to a message whose turn ended without a reply. Raises `NotFound`."""
        turns = Turn.objects.filter(trigger=message).order_by("-accepted")
        active = message.branch.chat.active_branch_id
        turn = turns.filter(branch=active).first() or turns.first()
        if turn is None:
            raise NotFound
        if turn.absorbed_by is not None:
            # Its message was answered together with others.
            turn = turn.absorbed_by
        return self.start_again(turn)

    def start_again(self, turn: Turn) -> Turn:
        """Start another reply in place of a turn without a reply.

        If the turn is still stopping, the new reply starts in a new branch. Raises the refusals of
        `retry_turn` and `reply_beside_turn`.
        """
        if not turn.is_over and turn.stop_requested_at is not None:
            return branching.reply_beside_turn(
                user=self.user, turn=turn, now=self.now, api_key=self.api_key
            )
        return retry_turn(user=self.user, turn=turn, now=self.now, api_key=self.api_key)
