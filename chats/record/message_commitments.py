"""Commits the ledger to messages when they are stored, and verifies stored messages against it.

The event that stores a message, in the same transaction, has a commitment to its role, parts and
speaker. A large import has one digest of all its commitments. An erasure deletes the salt, so that
the erased text cannot be guessed; the commitment stays, because a digest may include it.
"""

import hashlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chats.ground.commitments import compute_commitment, new_salt
from chats.models import Chat, Message, Turn
from chats.record.commitment_check import ENDINGS, ERASURE, SCOPE
from chats.record.images import has_changed_image
from contextpolicy import ledger, rollback
from contextpolicy.ledger import Break
from contextpolicy.models import AuditEvent

# The keys of event data: pairs of message and commitment, or the digest of many.
STORED, DIGEST = "stored", "stored_digest"
# An event with more messages than this has their digest instead.
MOST_LISTED = 20
STARTED = "turn.started"
EVENTS = ("chat.imported", "team.imported", "team.message_added", STARTED, *ENDINGS)
# Findings, in English. Pages translate them.
MOVED = "was moved to another position"
ENTRY_CHANGED = "the messages of this entry were changed, added or removed"
UNSAID = "is marked as erased without an audit log entry"
MESSAGE_WITHOUT_ENTRY = "no audit log entry names message {pk}"
# The states of a turn whose last steps no event names yet.
OPEN = (Turn.Status.QUEUED, Turn.Status.RUNNING)
# A chat that changes during the check is read again this many times.
LOOKS = 3
PAGE = 200
COLUMNS = (
    "branch",
    "seq",
    "accepted",
    "role",
    "parts",
    "speaker",
    "turn",
    "salt",
    "commitment",
    "erased_at",
)
rollback.PROTECTED[("chats", "message")] = frozenset({"salt", "commitment"})
rollback.COMMITTED_BY[("chats", "message")] = (STORED, DIGEST)


class Sealed(NamedTuple):
    """A stored message: its position in the chat's order of acceptance, its id and commitment.

    `previous` is its commitment before tool results were added.
    """

    accepted: int
    pk: uuid.UUID
    commitment: str
    previous: str = ""

    def listed(self) -> list[str]:
        """Return the message as an event lists it: id, commitment, and the previous one if any."""
        return [str(self.pk), self.commitment, *([self.previous] if self.previous else [])]


def seal_message(message: Message) -> Message:
    """Set the salt and the commitment of a message that is about to be stored or completed.

    Also sets `contains_files`, which follows from the parts.
    """
    message.contains_files = message.has_files
    message.salt = message.salt or new_salt()
    message.commitment = compute_message_commitment(message)
    return message


def compute_message_commitment(message: Message) -> str:
    """Return the commitment to the current content of a message."""
    said = {
        "id": str(message.pk),
        "branch": str(message.branch_id),
        "role": str(message.role),
        "parts": message.parts,
        "speaker": message.speaker,
    }
    # Databases may return the numbers of a part in another form.
    text = json.dumps(ledger.normalise_event_data(said), sort_keys=True, separators=(",", ":"))
    return compute_commitment(text, salt=message.salt)


def seal_again(message: Message, *, has_changed: bool) -> Sealed:
    """Commit to a stored message to which tool results were added.

    `has_changed`: the content did not match its commitment before the results were added.
    The old commitment then stays, so that verification finds the change.
    """
    previous = message.commitment
    if not has_changed:
        seal_message(message)
    return Sealed(message.accepted, message.pk, message.commitment, previous)


def has_changed_content(message: Message) -> bool:
    """Return True if the content of a message does not match its own commitment."""
    return bool(message.commitment) and not is_message_committed(message, message.commitment)


def build_stored_data(rows: Iterable[Message | Sealed]) -> dict[str, Any]:
    """Return the commitments to stored messages, as data for the event that records them.

    Many messages get one digest of their commitments instead. It covers the chat's messages from
    acceptance number `first` to `last`.
    """
    sealed = [
        row if isinstance(row, Sealed) else Sealed(row.accepted, row.pk, row.commitment)
        for row in rows
        if row.commitment
    ]
    if len(sealed) <= MOST_LISTED:
        return {STORED: [row.listed() for row in sealed]} if sealed else {}
    sealed.sort()
    digest = hashlib.sha256()
    for row in sealed:
        digest.update(format_digest_line(row.pk, row.commitment))
    first, last = sealed[0].accepted, sealed[-1].accepted
    return {DIGEST: {"first": first, "last": last, "sha256": digest.hexdigest()}}


def format_digest_line(pk: uuid.UUID, commitment: str) -> bytes:
    """Return the line of one message, from which a digest is computed."""
    return f"{pk} {commitment}\n".encode()


def list_turn_replies(turn_id: uuid.UUID) -> list[Sealed]:
    """Return the assistant messages of a turn with their commitments, one per step."""
    rows = Message.objects.filter(turn=turn_id, role=Message.Role.ASSISTANT).order_by("accepted")
    return [Sealed(*row) for row in rows.values_list("accepted", "pk", "commitment")]


@dataclass(slots=True)
class DigestClaim:
    """The digest in an event, and the digest of the messages read so far."""

    seq: int
    claimed: Mapping[str, Any]
    found: Any = field(default_factory=hashlib.sha256)
    # The position of the last message read, by branch. Later messages have later positions.
    ends: dict[uuid.UUID, int] = field(default_factory=dict)
    moved: str = ""

    def covers(self, row: Message) -> bool:
        """Return True if the digest includes a message."""
        return bool(self.claimed["first"] <= row.accepted <= self.claimed["last"])

    def hear(self, row: Message) -> bool:
        """Add a message to the digest. Return True if the digest covers the message."""
        if not self.covers(row):
            return False
        self.found.update(format_digest_line(row.pk, row.commitment))
        if (row.seq or 0) <= self.ends.get(row.branch_id, 0):
            self.moved = self.moved or str(row.pk)
        self.ends[row.branch_id] = row.seq or 0
        return True


class TurnReply(NamedTuple):
    """The reply of a turn, as recorded in the event that ended the turn."""

    key: str
    place: int
    seq: int


@dataclass(slots=True)
class MessageClaims:
    """The ledger's commitments to the messages of one chat."""

    # The newest commitment of each message, and the number of its event.
    listed: dict[str, tuple[str, int]] = field(default_factory=dict)
    digests: list[DigestClaim] = field(default_factory=list)
    erased: set[str] = field(default_factory=set)
    # The messages that were compared so far.
    read: set[str] = field(default_factory=set)
    # The messages of each event, and the message and the reply of each turn.
    orders: list[tuple[int, list[str]]] = field(default_factory=list)
    triggers: dict[uuid.UUID, str] = field(default_factory=dict)
    replies: dict[uuid.UUID, TurnReply] = field(default_factory=dict)
    # The branch and the position of each listed message.
    places: dict[str, tuple[uuid.UUID, int | None]] = field(default_factory=dict)
    # Rows that no event names, although one should.
    unnamed: list[Message] = field(default_factory=list)
    # True if the first messages of the chat have commitments, so that all later ones need some.
    is_complete: bool | None = None
    # The first message whose commitments of two events contradict each other, and the second event.
    contradiction: tuple[str, int] | None = None

    def hear_event(
        self, seq: int, kind: str, data: Mapping[str, Any], turn_id: uuid.UUID | None
    ) -> None:
        """Add the commitments of an event."""
        listed = data.get(STORED, ())
        if self.is_complete is None and kind != ERASURE:
            self.is_complete = bool(listed) or DIGEST in data
        for each in listed:
            self.hear(seq, each)
        # A message with a third value is an older one to which results were added.
        self.orders.append((seq, [each[0] for each in listed if len(each) == 2]))
        if DIGEST in data:
            self.digests.append(DigestClaim(seq, data[DIGEST]))
        if turn_id is not None and kind == STARTED and "message" in data:
            self.triggers[turn_id] = data["message"]
        if turn_id is not None and kind in ENDINGS and "reply" in data and "seq" in data:
            self.replies[turn_id] = TurnReply(data["reply"], data["seq"], seq)

    def hear(self, seq: int, listed: Sequence[str]) -> None:
        """Add a message that an event lists.

        A second event must have the same commitment, or name it as the previous one.
        """
        key, commitment, *previous = listed
        known, _ = self.listed.get(key, ("", 0))
        if known and known != [commitment, *previous][-1]:
            self.contradiction = self.contradiction or (key, seq)
        self.listed[key] = (commitment, seq)

    def find_moved(self) -> tuple[str, int] | None:
        """Return the first message at another position, and the event that shows it.

        An event lists messages in order, and names the position of a reply. The message to which a
        turn replies precedes its reply. None if no message was moved.
        """
        for turn_id, (key, place, seq) in self.replies.items():
            branch_id, found = self.places.get(key, (None, place))
            if found != place:
                return key, seq
            trigger = self.triggers.get(turn_id, "")
            other_id, before = self.places.get(trigger, (None, None))
            if branch_id is not None and other_id == branch_id and not 0 < (before or 0) < place:
                return trigger, seq
        for seq, keys in self.orders:
            ends: dict[uuid.UUID, int] = {}
            for key in keys:
                branch_id, found = self.places.get(key, (None, None))
                if branch_id is None or found is None:
                    continue
                if found <= ends.get(branch_id, 0):
                    return key, seq
                ends[branch_id] = found
        return None


class MessageComparison(NamedTuple):
    """The result for one chat: the first fault, and the number of its ledger event.

    `compared` and `not_comparable` count messages.
    """

    fault: str = ""
    seq: int = 0
    compared: int = 0
    not_comparable: int = 0


def verify_message_commitments(
    chat_id: uuid.UUID, *, shown: Collection[str]
) -> tuple[Break | None, MessageComparison]:
    """Compare a chat's messages with the ledger.

    Returns the first difference as a `Break`, or None, and the comparison with its counts.
    `shown`: the messages that were compared with sent prompts.
    """
    found = MessageComparison()
    for _ in range(LOOKS):
        found = compare_messages(chat_id, shown=shown)
        if not found.fault:
            return None, found
    if not Chat.objects.filter(pk=chat_id).exists():
        # The check of model calls reports a missing chat.
        return None, MessageComparison()
    return Break(f"{SCOPE}{chat_id}", found.seq, found.fault), found


def compare_messages(chat_id: uuid.UUID, *, shown: Collection[str]) -> MessageComparison:
    """Compare each message of a chat with its commitment.

    Claims are read first: a message is stored and changed in the transaction of its event.
    """
    claims = load_message_claims(chat_id)
    if claims.contradiction is not None:
        key, seq = claims.contradiction
        return MessageComparison(f"message {key} was changed before this entry", seq)
    found = MessageComparison()
    rows = Message.objects.filter(branch__chat=chat_id).only(*COLUMNS).order_by("accepted", "pk")
    for row in rows.iterator(chunk_size=PAGE):
        found = compare_message(row, claims, before=found, is_shown=str(row.pk) in shown)
        if found.fault:
            return found
    return find_chat_fault(chat_id, claims) or found


def find_chat_fault(chat_id: uuid.UUID, claims: MessageClaims) -> MessageComparison | None:
    """Return the first fault of a chat whose messages match, or None.

    A message can be missing, added or moved, or a digest of many messages can differ.
    """
    for key in claims.listed.keys() - claims.read:
        return MessageComparison(f"message {key} is missing", claims.listed[key][1])
    for each in claims.digests:
        if each.found.hexdigest() != each.claimed["sha256"]:
            return MessageComparison(ENTRY_CHANGED, each.seq)
        if each.moved:
            return MessageComparison(f"message {each.moved} {MOVED}", each.seq)
    if moved := claims.find_moved():
        return MessageComparison(f"message {moved[0]} {MOVED}", moved[1])
    if added := find_added_message(chat_id, claims):
        return MessageComparison(MESSAGE_WITHOUT_ENTRY.format(pk=added))
    return None


def find_added_message(chat_id: uuid.UUID, claims: MessageClaims) -> str:
    """Return the id of a message that should be in an event but is not; empty if there is none.

    The steps of a turn are recorded when it ends. A message from an older version has no
    commitment.
    """
    rows = claims.unnamed
    if not rows:
        return ""
    # Before the events: the transaction that ends a turn names its steps.
    running = Turn.objects.filter(pk__in=[row.turn_id for row in rows if row.turn_id])
    open_turns = set(running.filter(status__in=OPEN).values_list("pk", flat=True))
    later = load_message_claims(chat_id)
    for row in rows:
        is_named = str(row.pk) in later.listed or any(each.covers(row) for each in later.digests)
        is_step = row.role == Message.Role.ASSISTANT and row.turn_id in open_turns
        if not is_named and not is_step:
            return str(row.pk)
    return ""


def compare_message(
    row: Message, claims: MessageClaims, *, before: MessageComparison, is_shown: bool
) -> MessageComparison:
    key = str(row.pk)
    claims.read.add(key)
    # A list: every digest must read the row.
    covering = [each.seq for each in claims.digests if each.hear(row)]
    if row.erased_at is not None and not row.parts and key in claims.erased:
        return before
    claimed = claims.listed.get(key)
    if claimed is not None:
        claims.places[key] = (row.branch_id, row.seq)
    if claimed is None and not covering:
        if row.commitment or claims.is_complete:
            claims.unnamed.append(row)
        is_left = not is_shown and row.erased_at is None
        return before._replace(
            compared=before.compared + is_shown, not_comparable=before.not_comparable + is_left
        )
    committed, seq = claimed or (row.commitment, covering[0])
    if has_changed_image(row):
        return MessageComparison(f"an image of message {key} was changed", seq)
    if is_message_committed(row, committed):
        return before._replace(compared=before.compared + 1)
    reason = UNSAID if row.erased_at else "was changed"
    return MessageComparison(f"message {key} {reason}", seq)


def load_message_claims(chat_id: uuid.UUID) -> MessageClaims:
    """Return the ledger's commitments to the messages of a chat."""
    claims = MessageClaims()
    rows = AuditEvent.objects.filter(scope=f"{SCOPE}{chat_id}", type__in=[*EVENTS, ERASURE])
    read = rows.order_by("seq").values_list("seq", "type", "data", "turn_id")
    for seq, kind, data, turn_id in read.iterator(chunk_size=2000):
        # Events of the first form do not name the message.
        if kind == ERASURE and "message" in data:
            claims.erased.add(data["message"])
        claims.hear_event(seq, kind, data, turn_id)
    return claims


def is_message_committed(row: Message, committed: str) -> bool:
    """Return True if the content of a message matches the ledger's commitment."""
    has_salt = bool(row.salt) and row.commitment == committed
    return has_salt and compute_message_commitment(row) == committed
