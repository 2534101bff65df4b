"""Types for a parsed gateway request and its place in a chat."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.contrib.auth.models import User

from chats.gateway.choice import NamedModel
from chats.gateway.matching.conversation import Conversation
from chats.gateway.matching.hashes import build_room_key
from chats.gateway.matching.identity import INVALID, Identity
from chats.gateway.matching.side_calls import SIDE, is_side_call
from chats.models import ApiKey, Branch, Chat, GatewayChat, Turn
from chats.record.idempotency import IdempotentRequest
from contextpolicy.models import ContextPolicy

Decision = Literal["new", "continue", "branch", "repeat", "retry"]


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """The end of a branch, from which a request to a conversation continues.

    The request's items begin with the messages `first` to `last` (seqs); `first` is larger if there
    are none. `is_open`: the last one is a reply whose calls the request completes.
    """

    branch: Branch
    first: int
    last: int
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A parsed request: its messages, options and owner."""

    user: User
    api_key: ApiKey
    wanted: NamedModel
    conversation: Conversation
    identity: Identity
    # Stored with the turn: tools, parameters and the maximum reply tokens.
    client: Mapping[str, Any]
    # The idempotency key, if any, and the body that it belongs to.
    keyed: IdempotentRequest
    # The branch of the previous response.
    earlier: Branch | None = None
    # The end of the conversation that the request continues by id.
    end: BranchEnd | None = None
    # Name of the field with the messages.
    field: str = "messages"

    @property
    def chat(self) -> Chat | None:
        """The chat that the request names: directly, by a previous response or a conversation.

        None if there is none.
        """
        branch = self.end.branch if self.end else self.earlier
        return self.wanted.chat or (branch.chat if branch else None)

    @property
    def policy(self) -> ContextPolicy | None:
        """The policy that the request names, or that of its API key. None if neither is set."""
        return self.wanted.policy or self.api_key.policy

    @property
    def is_named(self) -> bool:
        """True if the request has a conversation id or names a chat."""
        return bool(self.identity.value) or self.chat is not None

    @property
    def room(self) -> str:
        """The scope key of the end user and conversation id.

        Requests match only chats with the same key.
        """
        chat, known = self.chat, self.identity
        if chat is not None:
            # A chat created by a client keeps the room that its messages were hashed with.
            row = GatewayChat.objects.filter(chat=chat).first()
            if row is not None:
                return row.room
            return build_room_key(
                owner_id=self.user.pk, end_user="", source="chat", value=str(chat.pk)
            )
        source = "" if known.source.startswith(INVALID) else known.source
        if is_side_call(self.conversation, tools=self.client.get("tools")):
            source = f"{SIDE}{source}"
        return build_room_key(
            owner_id=self.user.pk, end_user=known.end_user, source=source, value=known.value
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """The turn that replies to a request, and where the request was placed.

    `repeat` counts the requests with the same idempotency key after the first.
    """

    turn: Turn
    decision: Decision
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """The branch for the new messages, which start at index `shared` of the request.

    The message at position `n` (from 1) of the request has the seq `n + offset`. `completes`: the
    last message of the branch receives its tool results.
    """

    branch: Branch
    shared: int
    offset: int
    decision: Decision
    completes: bool = False
