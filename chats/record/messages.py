"""The only writer of messages: check, accept, take up, append, mark, erase."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.utils.crypto import salted_hmac

from chats.ground.refusals import Refusal
from chats.ground.seals import commitment, new_salt
from chats.ground.texts import UNSTORABLE as UNSTORABLE
from chats.models import Branch, Chat, Message, Turn
from chats.record import statements
from contextpolicy import ledger
from contextpolicy.engine.messages import (
    Part,
    Role,
    ToolResultPart,
    parts_from_json,
    parts_to_json,
)
from contextpolicy.engine.team import TeamMessage, speaker_json
from contextpolicy.engine.tokens import TokenCounter, message_tokens
from speed import prepared

# No policy may allow more: the ceiling of one message, in code points.
MESSAGE_CEILING = 200_000
# In the metadata of an erased message: a digest of the id that it was imported with.
ERASED_ID = "erasedId"


class MessageEmpty(Refusal):
    """The message has nothing, or only white space."""

    code = "message_empty"
    status = 422
    sentence = "The message is empty. Write something first."
    param = "text"


class InvalidCharacter(Refusal):
    """The message has a NUL or half of a surrogate pair: no store keeps them byte for byte."""

    code = "invalid_character"
    status = 422
    sentence = "The message has a character that cannot be stored, at position {position}."
    param = "text"


class MessageTooLong(Refusal):
    """The message is longer than the chat's policy allows. Refused, never cut."""

    code = "message_too_long"
    status = 422
    sentence = (
        "This message has {length:,} characters; this chat allows {limit:,}."
        " Shorten it by {over:,}."
    )
    param = "text"


class Proof(NamedTuple):
    """A proof for the person who erases, shown once: with the words it proves what was said."""

    salt: str
    commitment: str


class Counted(NamedTuple):
    """A number of tokens, and the version of the counter that found it."""

    tokens: int
    version: str


def check_text(text: str, *, limit: int) -> None:
    """Raise `MessageEmpty`, `InvalidCharacter` or `MessageTooLong`; `limit` in code points."""
    found = UNSTORABLE.search(text)
    if found:
        raise InvalidCharacter(position=found.start())
    if not text.strip():
        raise MessageEmpty
    allowed = min(limit, MESSAGE_CEILING)
    if len(text) > allowed:
        raise MessageTooLong(length=len(text), limit=allowed, over=len(text) - allowed)


def next_accepted(*, chat: Chat) -> int:
    """Return the next number in the chat's order of acceptance.

    The caller locked the chat's row before it read it, and saves `accepted_count` after this.
    """
    chat.accepted_count += 1
    return chat.accepted_count


def accept(
    *,
    chat: Chat,
    branch: Branch,
    text: str,
    now: datetime,
    addressees: Sequence[str] = (),
    speaker: Mapping[str, str] | None = None,
) -> Message:
    """Store a user message as waiting: it has no seq until a turn takes it up.

    `speaker`: the person of a team in whose name it is said.
    """
    message = Message(
        branch=branch,
        accepted=next_accepted(chat=chat),
        role=Message.Role.USER,
        parts=[{"type": "text", "text": text}],
        speaker=speaker,
        addressees=list(addressees),
        created_at=now,
    )
    prepared.insert(message)
    return message


def waiting(*, branch_id: uuid.UUID) -> Sequence[Message]:
    """Return the messages not yet taken up, in order of acceptance."""
    return statements.WAITING_MESSAGES.rows(branch=branch_id)


def any_waiting(*, branch_id: uuid.UUID) -> bool:
    """Tell whether there are messages not yet taken up."""
    return bool(statements.FIRST_WAITING.tuples(branch=branch_id))


def take_up(*, turn: Turn, counter: TokenCounter, now: datetime) -> list[Message]:
    """Give every waiting message of the turn's branch its seq, and absorb the turns behind them.

    Runs in the caller's transaction, which holds the turn's lease. Returns the messages in order.
    """
    # Only the one running turn of a branch moves its end, and the caller holds that turn.
    branch = turn.branch
    taken = list(waiting(branch_id=branch.pk))
    for message in taken:
        branch.last_seq += 1
        message.seq = branch.last_seq
        message.turn = turn
        set_token_count(message, counter=counter)
        prepared.save(message, "seq", "turn", "token_count", "counter_version")
    if taken:
        prepared.save(branch, "last_seq")
        absorb(turn=turn, taken=taken, chat_id=branch.chat_id, now=now)
    return taken


def absorb(*, turn: Turn, taken: Sequence[Message], chat_id: uuid.UUID, now: datetime) -> None:
    """End the queued turns whose messages this turn took up."""
    if all(message.pk == turn.trigger_id for message in taken):
        return
    others = Turn.objects.filter(trigger__in=taken, status=Turn.Status.QUEUED).exclude(pk=turn.pk)
    if turn.lane:
        # Beside it others of its round reply to the same message.
        others = others.exclude(round=turn.round_id, lane__gt=0)
    # Locked before it is checked: somebody may stop one of them now.
    ended = list(others.select_for_update(no_key=True).order_by("accepted"))
    end_absorbed(ended, by=turn, chat_id=chat_id, now=now)


def end_absorbed(ended: Sequence[Turn], *, by: Turn, chat_id: uuid.UUID, now: datetime) -> None:
    """End queued turns that another turn makes needless; the caller locked them."""
    for other in ended:
        other.status = Turn.Status.ABSORBED
        other.absorbed_by = by
        other.finished_at = now
        other.save(update_fields=["status", "absorbed_by", "finished_at"])
    # The ledger's head is locked last, as everywhere: a stop of one of these turns locks the turn
    # first too.
    for other in ended:
        ledger.record(
            "turn.absorbed",
            actor="worker",
            now=now,
            chat_id=chat_id,
            turn_id=other.pk,
            data={"by": str(by.pk)},
        )


def append_step(
    *,
    turn: Turn,
    chat: Chat,
    parts: Sequence[Mapping[str, Any]],
    finish: str,
    counted: Counted,
    now: datetime,
    speaker: Mapping[str, str] | None = None,
    addressees: Sequence[str] = (),
) -> Message:
    """Store one assistant message at the end of the branch, in the caller's transaction.

    `speaker` and `addressees`: of an agent of a team. The caller holds the turn, locked the chat,
    and saves the chat's `accepted_count` after this.
    """
    branch = turn.branch
    branch.last_seq += 1
    prepared.save(branch, "last_seq")
    message = Message(
        branch=branch,
        seq=branch.last_seq,
        accepted=next_accepted(chat=chat),
        role=Message.Role.ASSISTANT,
        parts=list(parts),
        speaker=speaker,
        addressees=list(addressees),
        turn=turn,
        model_name=turn.model_name,
        finish=finish,
        created_at=now,
    )
    message.token_count, message.counter_version = counted
    prepared.insert(message)
    return message


def append_spoken(
    *,
    chat: Chat,
    branch: Branch,
    said: TeamMessage,
    counted: Counted,
    now: datetime,
) -> Message:
    """Store what a member of a team said at the end of the branch, in the caller's transaction.

    The caller locked the chat, in which no turn is under way, and saves its `accepted_count`.
    """
    branch.last_seq += 1
    prepared.save(branch, "last_seq")
    message = spoken(said)
    message.branch, message.seq = branch, branch.last_seq
    message.accepted, message.created_at = next_accepted(chat=chat), now
    message.token_count, message.counter_version = counted
    prepared.insert(message)
    return message


def spoken(said: TeamMessage) -> Message:
    """Return a row, without a place yet, of what a member of a team said."""
    is_ai = said.speaker.type == "ai"
    return Message(
        role=Message.Role.ASSISTANT if is_ai else Message.Role.USER,
        parts=[{"type": "text", "text": said.content}],
        speaker=speaker_json(said.speaker),
        addressees=list(said.addressees),
        finish=Message.Finish.STOP if is_ai else "",
    )


def append_sent(
    *,
    chat: Chat,
    branch: Branch,
    said: Sequence[tuple[Role, Sequence[Part]]],
    counter: TokenCounter,
    now: datetime,
) -> list[Message]:
    """Store messages that a program sent at the end of the branch, in the caller's transaction.

    The caller locked the chat; no turn is under way on the branch. It saves the chat's
    `accepted_count` after this.
    """
    rows = []
    for role, parts in said:
        branch.last_seq += 1
        row = Message(
            branch=branch,
            seq=branch.last_seq,
            accepted=next_accepted(chat=chat),
            role=Message.Role.USER if role == "user" else Message.Role.ASSISTANT,
            parts=parts_to_json(parts),
            finish="" if role == "user" else Message.Finish.STOP,
            created_at=now,
        )
        set_token_count(row, counter=counter)
        rows.append(row)
    if len(rows) == 1:
        prepared.insert(rows[0])
    else:
        Message.objects.bulk_create(rows, batch_size=200)
    prepared.save(branch, "last_seq")
    return rows


def add_results(
    message: Message, *, results: Sequence[ToolResultPart], counter: TokenCounter
) -> None:
    """Put the results of a program's tools behind the calls of a reply, once, as they come in.

    Runs in the caller's transaction, which locked the chat.
    """
    message.parts = [*message.parts, *parts_to_json(results)]
    message.token_count = None
    set_token_count(message, counter=counter)
    message.save(update_fields=["parts", "token_count", "counter_version"])


def set_token_count(message: Message, *, counter: TokenCounter) -> None:
    """Count the message as it would be sent; stored so that a prompt is a sum."""
    if message.token_count is None or message.counter_version != counter.version:
        counted = tokens_of(message.parts, role=message.role, counter=counter)
        message.token_count, message.counter_version = counted


def tokens_of(parts: Sequence[Mapping[str, Any]], *, role: str, counter: TokenCounter) -> Counted:
    """Count the tokens of a message of these parts, and name the counter."""
    read = parts_from_json(parts)
    return Counted(message_tokens(read, cast(Role, role), counter), counter.version)


def mark(message: Message, *, actor: str, event: str, now: datetime, **values: Any) -> Message:
    """Set the marks of a message and tell the ledger, in the caller's transaction.

    `values`: `pinned_at`, `excluded` or `kept`; further ones go to the event only, as `data`.
    """
    data = values.pop("data", {})
    for name, value in values.items():
        setattr(message, name, value)
    message.save(update_fields=list(values))
    ledger.record(
        event,
        actor=actor,
        now=now,
        chat_id=message.branch.chat_id,
        data={"message": str(message.pk), "seq": message.seq, **data},
    )
    return message


def canonical(parts: Sequence[Mapping[str, Any]]) -> str:
    """Write the parts of a message as canonical JSON: sorted keys, no spaces, ASCII only."""
    return json.dumps(list(parts), sort_keys=True, separators=(",", ":"))


def digest_of_id(own_id: str) -> str:
    """Return a digest, made with the server's key, of the id that a message was imported with."""
    return salted_hmac("chats.record.messages.id", own_id, algorithm="sha256").hexdigest()


def erase(message: Message, *, now: datetime) -> Proof:
    """Take the words out of a message for good; its id and place stay.

    Returns a commitment to the parts as canonical JSON, and its salt, which is kept nowhere. Runs
    in the caller's transaction.
    """
    salt = new_salt()
    proof = Proof(salt, commitment(canonical(message.parts), salt=salt))
    message.parts = []
    message.speaker = None
    message.addressees = []
    source = message.metadata.get("source") or {}
    # So that no newer file brings an imported message back.
    digest = digest_of_id(str(source["id"])) if source.get("id") else ""
    message.metadata = {ERASED_ID: digest} if digest else {}
    message.token_count = 0
    message.erased_at = now
    message.save(
        update_fields=["parts", "speaker", "addressees", "metadata", "token_count", "erased_at"]
    )
    return proof
