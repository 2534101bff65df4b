"""Chats as lists of UI messages, for requests of the AI SDK's `useChat`.

The client chooses the ids of its chat and messages; both are stored. The stored chat is
authoritative: only the last message of a request is read, and the previous message determines its
position.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, cast

from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, gettext_noop

from chats.actions import branching, lifecycle
from chats.exchange.ui_approvals import (
    NOTHING_KNOWN,
    KnownParts,
    ToolApproval,
    decide_approvals,
    mark_denied_calls,
    parse_approvals,
)
from chats.exchange.ui_files import OWN_FILE, name_file_addresses
from chats.exchange.writing import order_metadata, to_milliseconds
from chats.files.inline import InlineFile, store_inline_files
from chats.ground.refusals import NotFound, Refusal
from chats.models import ApiKey, Branch, Chat, Message, MessageFile, Turn
from chats.models.turns import UNFINISHED
from chats.record import access, history, messages
from chats.turns.start import Accepted, retry_turn, start_turn
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    parse_parts,
)
from contextpolicy.engine.messages.ui_messages import (
    MalformedUIMessage,
    UIMessage,
    parse_ui_message,
    serialize_ui_message,
)
from contextpolicy.engine.text import names

LONGEST_ID = 200
# Bytes of a message's metadata and `data-…` parts, as JSON.
MOST_EXTRAS = 65_536
# Types of parts that a user message can have, in addition to `data-…`.
STORED_PARTS = frozenset({"text", "file", "step-start"})
Trigger = Literal["submit-message", "regenerate-message"]


class InvalidUIRequest(Refusal):
    """The body is not a request of `useChat`. The error message gives the reason."""

    code = "invalid_ui_request"
    status = 422
    sentence = gettext_noop("This is not a request of `useChat`: {problem}")


class UnsupportedUIMessage(Refusal):
    """The last message is neither a user message with text or files nor a reply with approvals."""

    code = "unsupported_ui_message"
    status = 422
    sentence = gettext_noop(
        "The last message must be a user message with text and files. Files are data URLs or "
        "addresses of your uploads. An edited message keeps its files, so send other files in "
        "a new message. An assistant message is accepted only if it answers requests for "
        "consent. Results of client tools are not supported."
    )


class HistoryNotStored(Refusal):
    """The request continues messages that are not in the chat. Import them first."""

    code = "history_not_stored"
    status = 409
    sentence = gettext_noop(
        "The earlier messages of this request are not in this chat. Load the messages of the "
        "chat, or import the chat first (POST /imports)."
    )


@dataclass(frozen=True, slots=True)
class UIRequest:
    """A parsed request of `useChat`: the chat's id, the last message, the trigger and the model."""

    # Id of the chat: ours, or one that the client made up.
    chat_id: str
    trigger: Trigger
    # The message to replace or to regenerate; None: none was named.
    message_id: str | None
    # The last message, and the id of the previous one. None: the request has no such message.
    last: UIMessage | None = None
    previous_id: str | None = None
    # Number of messages in the request. A single `message` is one.
    count: int = 0
    # The `data-…` parts of the last message.
    extras: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    # The answers to requests for consent in the last message.
    approvals: Sequence[ToolApproval] = field(default_factory=tuple)
    # Slug of the model to use from now on. Empty: no change.
    model: str = ""


@dataclass(frozen=True, slots=True)
class UIReply:
    """The turn that a client follows, and the parts of the reply that the client already has."""

    chat: Chat
    turn: Turn
    known: KnownParts = NOTHING_KNOWN


def parse_ui_request(body: Mapping[str, Any]) -> UIRequest:
    """Parse the body of a request: `id`, `messages` or `message`, `trigger`, `messageId`, `model`.

    Other fields are ignored, because front ends add their own. Raises `InvalidUIRequest`, and
    `UnsupportedUIMessage` for a new message with parts that would not be stored.
    """
    trigger = body.get("trigger", "submit-message")
    if trigger not in ("submit-message", "regenerate-message"):
        raise InvalidUIRequest(
            problem=gettext_lazy("`trigger` must be submit-message or regenerate-message.")
        )
    message_id, model = body.get("messageId"), body.get("model") or ""
    if message_id is not None:
        check_id(message_id, name="messageId")
    if not isinstance(model, str):
        raise InvalidUIRequest(problem=gettext_lazy("`model` must be the ID of a model."))
    request = UIRequest(check_id(body.get("id"), name="id"), trigger, message_id, model=model)
    listed = [body["message"]] if "message" in body else body.get("messages")
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise InvalidUIRequest(problem=gettext_lazy("`messages` must be a list of messages."))
    if not listed:
        return request
    last = parse_last_message(listed[-1])
    if trigger == "submit-message" and last.role == "user":
        check_stored_parts(listed[-1]["parts"])
    extras = [
        part
        for part in listed[-1]["parts"]
        if isinstance(part, dict) and str(part.get("type")).startswith("data-")
    ]
    if len(json.dumps([last.metadata, extras])) > MOST_EXTRAS:
        sentence = gettext_lazy(
            "the metadata and data parts of a message may have at most {limit:,} bytes in total."
        )
        raise InvalidUIRequest(problem=format_lazy(sentence, limit=MOST_EXTRAS))
    previous = check_id(listed[-2].get("id"), name="messages") if len(listed) > 1 else None
    return replace(
        request,
        last=last,
        previous_id=previous,
        count=len(listed),
        extras=tuple(extras),
        approvals=parse_approvals(listed[-1]["parts"]) if last.role == "assistant" else (),
    )


def check_stored_parts(parts: Sequence[Any]) -> None:
    """Raise `UnsupportedUIMessage` if a user message has parts other than text, files and data."""
    for part in parts:
        kind = str(part.get("type") if isinstance(part, dict) else "")
        if kind not in STORED_PARTS and not kind.startswith("data-"):
            raise UnsupportedUIMessage


def check_id(value: object, *, name: str) -> str:
    """Return an id from the client. Raises `InvalidUIRequest` if it is invalid."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and names.is_allowed_name(value):
        return value
    sentence = gettext_lazy("`{name}` needs an ID of 1 to {limit} characters.")
    raise InvalidUIRequest(problem=format_lazy(sentence, name=name, limit=LONGEST_ID))


def parse_last_message(value: Mapping[str, Any]) -> UIMessage:
    """Parse the last message of a request. Raises `InvalidUIRequest`."""
    check_id(value.get("id"), name="messages")
    try:
        return parse_ui_message(value)[0]
    except MalformedUIMessage as error:
        raise InvalidUIRequest(problem=str(error)) from error


def reply_to_ui_request(
    request: UIRequest,
    *,
    user: User,
    now: datetime,
    api_key: ApiKey | None = None,
    idempotency_key: str = "",
) -> UIReply:
    """Execute a request: send, edit, regenerate, or answer requests for consent.

    A chat that does not exist is created with its first message. Repeating a sent message returns
    its turn. Raises `UnsupportedUIMessage`, `HistoryNotStored`, `NotFound` for a deleted chat, and
    the refusals of the action.
    """
    act = UIAction(request, user=user, now=now, api_key=api_key, idempotency_key=idempotency_key)
    if request.trigger == "regenerate-message":
        return UIReply(*act.regenerate())
    if request.approvals:
        return act.decide()
    return UIReply(*act.submit())


class UIAction:
    """A person's `useChat` request, applied to their chat: send, replace or regenerate."""

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
        # The uploads of the last message.
        self.files: Sequence[uuid.UUID] = ()

    def submit(self) -> tuple[Chat, Turn]:
        """Send the last message, or replace an earlier message with it."""
        text = self.text()
        chat = find_chat(self.request.chat_id, user=self.user)
        self.files = self.store_files()
        if chat is None:
            return self.open(text)
        self.choose_model(chat)
        return chat, self.submit_to(chat, text).turn

    def decide(self) -> UIReply:
        """Store the answers to consent requests in the last message. Raises `NotFound`."""
        chat = get_ui_chat(self.request.chat_id, user=self.user)
        last = cast(UIMessage, self.request.last)
        calls = frozenset(part.call_id for part in last.parts if isinstance(part, ToolCallPart))
        turn, known = decide_approvals(
            self.request.approvals, chat=chat, calls=calls, user=self.user, now=self.now
        )
        return UIReply(chat, turn, known)

    def text(self) -> str:
        """Return the text of the last message. Raises `UnsupportedUIMessage`."""
        last = self.request.last
        if last is None or last.role != "user":
            raise UnsupportedUIMessage
        if not all(isinstance(part, TextPart | FilePart) for part in last.parts):
            raise UnsupportedUIMessage
        return "\n\n".join(part.text for part in last.parts if isinstance(part, TextPart))

    def store_files(self) -> list[uuid.UUID]:
        """Store the files of the last message and return their ids, before any transaction.

        Raises `UnsupportedUIMessage` for an address other than that of an upload, and the refusals
        of uploads.
        """
        found: list[uuid.UUID] = []
        for part in self.request.last.parts if self.request.last else ():
            if not isinstance(part, FilePart):
                continue
            known = OWN_FILE.fullmatch(part.reference)
            if known is not None:
                found.append(uuid.UUID(known[1]))
            elif part.reference.startswith("data:"):
                file = InlineFile(part.name, part.reference)
                # The size of the request is limited already.
                found += store_inline_files([file], owner=self.user, now=self.now, limit=None)
            else:
                raise UnsupportedUIMessage
        return found

    def open(self, text: str) -> tuple[Chat, Turn]:
        """Create the chat with its first message, in one transaction. Raises `HistoryNotStored`."""
        if self.request.count > 1:
            raise HistoryNotStored
        with transaction.atomic():
            # There is no chat to lock, so the person's row serialises two requests.
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
            return chat, self.send(chat, text).turn

    def choose_model(self, chat: Chat) -> None:
        """Change the chat's model if the request names another one."""
        slug = self.request.model
        if slug and (chat.model is None or chat.model.slug != slug):
            actor = f"user:{self.user.pk}"
            lifecycle.choose_model(chat=chat, model_slug=slug, actor=actor, now=self.now)

    def submit_to(self, chat: Chat, text: str) -> Accepted:
        """Send a message to an existing chat: at its end, after a message, or replacing one.

        Raises `UnsupportedUIMessage` for an edit with new files.
        """
        named = self.request.message_id
        replaced = find_message(chat, named) if named else None
        if replaced is not None:
            links = MessageFile.objects.filter(message=replaced).values_list("file", flat=True)
            if not set(self.files) <= set(links):
                raise UnsupportedUIMessage
            return branching.edit_message(
                user=self.user,
                message=replaced,
                text=text,
                now=self.now,
                idempotency_key=self.idempotency_key,
                api_key=self.api_key,
                metadata=self.metadata(),
            )
        before = self.find_previous(chat)
        if before is None:
            return self.send(chat, text)
        with transaction.atomic():
            # The client removed the messages after this one.
            branching.branch_from_message(user=self.user, message=before, now=self.now)
            chat.refresh_from_db()
            return self.send(chat, text)

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

    def send(self, chat: Chat, text: str) -> Accepted:
        """Send the message at the end of the chat.

        A repeated request with the message's id returns its turn.
        """
        own = self.request.last.id if self.request.last else ""
        key = self.idempotency_key or f"ui-{hashlib.sha256(own.encode()).hexdigest()}"
        return start_turn(
            user=self.user,
            chat=chat,
            text=text,
            now=self.now,
            idempotency_key=key,
            api_key=self.api_key,
            metadata=self.metadata(),
            files=self.files,
        )

    def metadata(self) -> dict[str, Any]:
        """Return the client's id, metadata and data parts, to store with the message."""
        last = cast(UIMessage, self.request.last)
        own: dict[str, Any] = {"id": last.id, "metadata": dict(last.metadata), "sent": True}
        if self.request.extras:
            own["parts"] = list(self.request.extras)
        return {"source": own}

    def regenerate(self) -> tuple[Chat, Turn]:
        """Replace a reply with another, or reply again to a message whose reply failed.

        Raises `NotFound`.
        """
        chat = find_chat(self.request.chat_id, user=self.user)
        if chat is None:
            raise NotFound
        self.choose_model(chat)
        message = self.find_target(chat)
        if message.role == Message.Role.USER:
            reply = (
                history.select_step_messages(message.turn_id).last() if message.turn_id else None
            )
            if reply is None:
                return chat, self.retry(message)
            message = reply
        accepted = branching.regenerate_once(
            user=self.user,
            message=message,
            now=self.now,
            idempotency_key=self.idempotency_key,
            api_key=self.api_key,
        )
        return chat, accepted.turn

    def find_target(self, chat: Chat) -> Message:
        """Return the named message, or the last message of the chat. Raises `NotFound`."""
        if self.request.message_id:
            found = find_message(chat, self.request.message_id)
        else:
            found = select_path(load_branch(chat)).last()
        if found is None:
            raise NotFound
        return found

    def retry(self, message: Message) -> Turn:
        """Reply again to a message whose turn ended without a reply. Raises `NotFound`."""
        turn = Turn.objects.filter(trigger=message).order_by("-accepted").first()
        if turn is None:
            raise NotFound
        return retry_turn(user=self.user, turn=turn, now=self.now, api_key=self.api_key)


def find_chat(chat_id: str, *, user: AbstractBaseUser) -> Chat | None:
    """Return the person's chat with our id or the client's id, or None.

    Raises `NotFound` for a deleted chat and for another person's chat.
    """
    own = parse_own_id(chat_id)
    if own is not None and Chat.objects.filter(pk=own).exists():
        return access.get_chat(user=user, chat_id=own)
    known = Chat.objects.filter(owner=user.pk, client_id=chat_id).first()
    return access.get_chat(user=user, chat_id=known.pk) if known else None


def get_ui_chat(chat_id: str, *, user: AbstractBaseUser) -> Chat:
    """Return the person's chat with our id or the client's id. Raises `NotFound`."""
    chat = find_chat(chat_id, user=user)
    if chat is None:
        raise NotFound
    return chat


def find_running_turn(chat: Chat) -> Turn | None:
    """Return the oldest unfinished turn of the active branch, which a client can follow.

    None if all turns have ended.
    """
    rows = Turn.objects.filter(branch=chat.active_branch_id, status__in=UNFINISHED)
    return rows.order_by("accepted").first()


def is_unfinished(chat: Chat, ui_id: str) -> bool:
    """Return True if a UI message is a reply in progress, or a message that is still queued."""
    own = parse_own_id(ui_id)
    running = Turn.objects.filter(branch=chat.active_branch_id, status__in=UNFINISHED)
    if own is not None and running.filter(pk=own).exists():
        return True
    return select_by_ui_id(
        Message.objects.filter(branch=chat.active_branch_id, seq=None), ui_id
    ).exists()


def find_message(chat: Chat, ui_id: str) -> Message | None:
    """Return the newest message on the active path that belongs to a UI message.

    Otherwise a queued message that belongs to it, or None.
    """
    found = select_by_ui_id(select_path(load_branch(chat)), ui_id).last()
    return (
        found
        or select_by_ui_id(
            Message.objects.filter(branch=chat.active_branch_id, seq=None), ui_id
        ).first()
    )


def select_by_ui_id(rows: QuerySet[Message], ui_id: str) -> QuerySet[Message]:
    """Return the stored messages of a UI message, by our id, the client's, or a turn's.

    For a turn, these are its user message and its steps; without a reply, only the user message.
    """
    own = parse_own_id(ui_id)
    wanted = Q(metadata__source__id=ui_id)
    if own is not None:
        wanted |= Q(pk=own)
        turn = resolve_turn(own)
        if turn is not None:
            wanted |= Q(turn=turn.pk) | Q(pk=turn.trigger_id)
    return rows.filter(wanted)


def resolve_turn(turn_id: uuid.UUID) -> Turn | None:
    """Return the turn that replies: the given one, or the turn that absorbed it.

    None if no turn has this id.
    """
    turn = Turn.objects.select_related("absorbed_by").filter(pk=turn_id).first()
    return turn.absorbed_by or turn if turn else None


def parse_own_id(text: str) -> uuid.UUID | None:
    """Parse one of our UUIDs; None for an id that the client chose."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def load_branch(chat: Chat) -> Branch:
    """Reload the active branch of a chat."""
    return Branch.objects.select_related("parent").get(pk=cast(uuid.UUID, chat.active_branch_id))


def select_path(branch: Branch) -> QuerySet[Message]:
    """Return the messages on the branch's path, oldest first."""
    return history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")


def list_ui_messages(
    chat: Chat, *, limit: int, before: str = ""
) -> tuple[list[dict[str, Any]], bool]:
    """Return the newest UI messages of the active path, and whether there are earlier ones.

    `limit` counts stored messages; a reply with tool calls has several. `before`: the id of the
    first UI message that the client has. Raises `NotFound` for an unknown id.
    """
    branch = load_branch(chat)
    waiting = [] if before else list(messages.list_waiting_messages(branch_id=branch.pk))
    branch.refresh_from_db(fields=["last_seq"])
    path = select_path(branch)
    if before:
        found = list(select_by_ui_id(path, before))
        if not found:
            raise NotFound
        steps = [row for row in found if row.role == Message.Role.ASSISTANT]
        path = path.filter(seq__lt=(steps or found)[0].seq)
    newest = list(path.order_by("-seq")[: limit + 1])
    has_earlier = len(newest) > limit
    rows = newest[:limit][::-1]
    if has_earlier:
        # A reply is never split.
        split = newest[limit].turn_id
        while len(rows) > 1 and split and is_step(rows[0]) and rows[0].turn_id == split:
            rows = rows[1:]
    taken = {row.pk for row in rows}
    rows += [row for row in waiting if row.pk not in taken]
    return list(serialize_ui_rows(rows, branch=branch)), has_earlier


def is_step(row: Message) -> bool:
    """Return True if a message is a step of a turn."""
    return row.role == Message.Role.ASSISTANT and row.turn_id is not None


def serialize_ui_rows(rows: Sequence[Message], *, branch: Branch) -> Iterator[dict[str, Any]]:
    """Yield UI messages. Consecutive steps of a turn form one message."""
    running = set(
        Turn.objects.filter(branch=branch, status__in=UNFINISHED).values_list("pk", flat=True)
    )
    written: set[uuid.UUID] = set()
    for (turn_id, _), group in groupby(rows, key=get_group):
        steps = list(group)
        if turn_id is None:
            yield from (serialize_one(row) for row in steps)
        elif turn_id not in running:
            # Steps after a message that was accepted during the turn get another id.
            own = turn_id if turn_id not in written else steps[0].pk
            written.add(turn_id)
            yield serialize_steps(steps, own_id=str(own))


def get_group(row: Message) -> tuple[uuid.UUID | None, str]:
    """Return the turn to whose reply a step belongs. Other messages form groups of one."""
    return (row.turn_id, "") if is_step(row) else (None, str(row.pk))


def serialize_one(row: Message) -> dict[str, Any]:
    """Return a message that is not a step, with all data from its client."""
    source = row.metadata.get("source") or {}
    role = "user" if row.role == Message.Role.USER else "assistant"
    metadata = {**describe_row(row), **dict(source.get("metadata") or {})}
    own = str(source.get("id") or row.pk)
    parts: tuple[Part, ...] = name_file_addresses(row, parse_parts(row.parts)) or (TextPart(""),)
    made: dict[str, Any] = serialize_ui_message(
        UIMessage(own, cast(Any, role), parts, order_metadata(metadata))
    )
    made["parts"] += list(source.get("parts") or [])
    return made


def serialize_steps(rows: Sequence[Message], *, own_id: str) -> dict[str, Any]:
    """Return a reply: the parts of all its steps, each step after a `step-start` part."""
    last, parts = rows[-1], []
    for row in rows:
        step = parse_parts(row.parts)
        made: dict[str, Any] = serialize_ui_message(UIMessage(own_id, "assistant", step, {}))
        own = [part for part in made["parts"] if part["type"] != "step-start"]
        parts += [{"type": "step-start"}, *mark_denied_calls(own)]
    metadata = {"model": last.model_name, "finish": last.finish, **describe_row(last)}
    return {"id": own_id, "role": "assistant", "parts": parts, "metadata": metadata}


def describe_row(row: Message) -> dict[str, object]:
    return {} if row.undated else {"ts": to_milliseconds(row.created_at)}
