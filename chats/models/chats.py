"""Chats, branches and messages. Append-only, apart from the few marks named here."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from chats.models.parts import PartsField
from contextpolicy.engine.messages import JOINT
from contextpolicy.models.base import Stored


class Folder(Stored):
    """A person's own group of chats."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=200)
    # In its chats nothing is noted of the person, and nothing that was noted is sent.
    without_memory = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "name"], name="folder_name_once")
        ]

    def __str__(self) -> str:
        return self.name


# What the sidebar lists one by one: the pinned chats, and those that lie in no folder.
IN_SIDEBAR = Q(archived=False, deleted_at=None) & (Q(pinned=True) | Q(folder=None))


class Chat(Stored):
    """One conversation of one person."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    title = models.CharField(max_length=200, blank=True, default="")
    # Then it was made of what the model was sent; an erasure of that takes it along.
    titled_by_model = models.BooleanField(default=False)
    folder = models.ForeignKey(Folder, null=True, blank=True, on_delete=models.SET_NULL)
    pinned = models.BooleanField(default=False)
    archived = models.BooleanField(default=False)
    system_text = models.TextField(blank=True, default="")
    # The agents who reply here; None: the chat's model does.
    team = models.ForeignKey(
        "Team", null=True, blank=True, on_delete=models.SET_NULL, db_index=False
    )
    # The task of a team that speaks here; None: nobody set one.
    team_task = models.TextField(null=True, blank=True)  # noqa: DJ001 - empty is a task, None is none
    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    # A policy that the program which opened the chat asked for, nearer than its owner's; see /v1.
    policy = models.ForeignKey(
        "contextpolicy.ContextPolicy",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
    )
    active_branch = models.ForeignKey(
        "Branch", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # The number of messages and turns ever accepted here. Raised in the transaction that accepts
    # one, it gives them their order; a timestamp could not (clocks jump).
    accepted_count = models.PositiveBigIntegerField(default=0)
    unread = models.BooleanField(default=False)
    # Erased when its owner signs out, or some time after its last message.
    temporary = models.BooleanField(default=False)
    # As in a folder without memory, for this chat.
    without_memory = models.BooleanField(default=False, db_default=False)
    # A deleted chat is hidden from everybody until its owner brings it back, or it is erased.
    deleted_at = models.DateTimeField(null=True, blank=True)
    erase_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            # By conditions: SQLite does not use an index on the column for "not archived".
            models.Index(
                fields=["owner", "-pinned", "-updated_at", "-id"],
                condition=IN_SIDEBAR,
                name="chat_sidebar",
            ),
            models.Index(
                fields=["folder", "-updated_at", "-id"],
                condition=Q(archived=False, deleted_at=None, pinned=False, folder__isnull=False),
                name="chat_in_folder",
            ),
            models.Index(
                fields=["owner", "-updated_at", "-id"],
                condition=Q(archived=True, deleted_at=None),
                name="chat_archived",
            ),
            models.Index(
                fields=["owner", "-updated_at", "-id"],
                condition=Q(deleted_at=None),
                name="chat_recent",
            ),
            # Few, and for few days: these two serve the sweep.
            models.Index(
                fields=["erase_at"], condition=Q(erase_at__isnull=False), name="chat_to_erase"
            ),
            models.Index(fields=["updated_at"], condition=Q(temporary=True), name="chat_temporary"),
        ]

    def __str__(self) -> str:
        return self.title or f"chat {self.pk}"

    @property
    def is_provisional(self) -> bool:
        """True as long as nothing shows that the chat, which a program opened, goes on."""
        return self.archived and self.erase_at is not None and self.deleted_at is None


class Branch(Stored):
    """One path through a chat. A child shares its parent's messages up to `fork_seq`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="branches")
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE)
    fork_seq = models.PositiveBigIntegerField(default=0)
    # The highest seq on this path; seqs are gap-free from 1.
    last_seq = models.PositiveBigIntegerField(default=0)
    active_compaction = models.ForeignKey(
        "Compaction", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    context_revision = models.PositiveBigIntegerField(default=0)
    # A team's message is called `msg-N`: its seq and this, unless it was imported with an id.
    team_id_offset = models.BigIntegerField(default=0)
    # Time zone of the dates in its prompts, set by the first of them. Empty: the owner's zone.
    time_zone = models.CharField(max_length=64, blank=True, default="", db_default="")
    # Undoing a compaction pauses the automatic ones here until someone resumes them.
    compaction_paused = models.BooleanField(default=False)
    # The program behind it leaves out old messages itself: nothing of ours stands for them.
    client_windowed = models.BooleanField(default=False, db_default=False)
    # A prompt left messages out, so each later one offers the model the search of the chat.
    search_offered = models.BooleanField(default=False, db_default=False)
    paused_at = models.DateTimeField(null=True, blank=True)
    # A request of a person that no worker has begun yet: trigger, focus, model, compaction, by.
    asked = models.JSONField(default=dict, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    # What became of the last one: `reason` or `compaction`, and `after`, the last turn before it.
    request_outcome = models.JSONField(null=True, blank=True)
    # The time since which its next summary waits for a place or a worker (`compaction.places`).
    summary_due_at = models.DateTimeField(null=True, blank=True)
    # Failures before this moment no longer count.
    breaker_reset_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(parent__isnull=False) | Q(fork_seq=0), name="root_forks_at_zero"
            ),
            models.CheckConstraint(
                condition=Q(last_seq__gte=models.F("fork_seq")), name="branch_grows_from_fork"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["asked_at"], condition=Q(asked_at__isnull=False), name="branch_asked"
            ),
            models.Index(
                fields=["summary_due_at"],
                condition=Q(summary_due_at__isnull=False),
                name="branch_summary_due",
            ),
        ]

    def __str__(self) -> str:
        return f"branch {self.pk}"


class Message(Stored):
    """One message of a person or a model. Parts never change after the row was written.

    `seq` is empty while the message waits to be taken up. `accepted` orders the waiting ones. Only
    `chats.record.messages` writes here, and only seq (once), the marks, the token count and an
    erasure may ever change.
    """

    class Role(models.TextChoices):
        USER = "user", "User"
        ASSISTANT = "assistant", "Assistant"

    class Finish(models.TextChoices):
        STOP = "stop", "Complete"
        TOOL_CALLS = "tool_calls", "Step with tool calls"
        LENGTH = "length", "Cut at the model's output limit"
        LIMIT = "limit", "Cut at this server's limit"
        INCOMPLETE = "incomplete", "Cut by a fault"
        STOPPED = "stopped", "Stopped by a person"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="messages")
    seq = models.PositiveBigIntegerField(null=True, blank=True)
    accepted = models.PositiveBigIntegerField()
    role = models.CharField(max_length=10, choices=Role.choices)
    parts = PartsField()
    # {"roleId": …, "roleName": …, "type": "human" or "ai"}; empty: the chat's owner, or its model.
    speaker = models.JSONField(null=True, blank=True)
    addressees = models.JSONField(default=list, blank=True)
    # The turn that took a user message up, or whose step an assistant message is.
    turn = models.ForeignKey(
        "Turn", null=True, blank=True, on_delete=models.SET_NULL, related_name="messages"
    )
    model_name = models.CharField(max_length=200, blank=True, default="")
    finish = models.CharField(max_length=12, choices=Finish.choices, blank=True, default="")
    token_count = models.PositiveIntegerField(null=True, blank=True)
    counter_version = models.CharField(max_length=40, blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
    pinned_at = models.DateTimeField(null=True, blank=True)
    excluded = models.BooleanField(default=False)
    kept = models.BooleanField(default=False)
    erased_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["branch", "seq"], name="message_seq_once"),
            models.UniqueConstraint(fields=["branch", "accepted"], name="message_accepted_once"),
            models.CheckConstraint(condition=Q(seq__isnull=True) | Q(seq__gt=0), name="seq_from_1"),
            models.CheckConstraint(
                condition=Q(role="user") | Q(seq__isnull=False), name="replies_never_wait"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["branch", "accepted"], condition=Q(seq__isnull=True), name="message_waiting"
            ),
            # Few messages bear a mark; a prompt looks for them in the whole range it does not send.
            models.Index(
                fields=["branch", "seq"],
                condition=Q(pinned_at__isnull=False),
                name="message_pinned",
            ),
            models.Index(
                fields=["branch", "seq"],
                condition=Q(excluded=True) | Q(erased_at__isnull=False),
                name="message_withdrawn",
            ),
        ]

    def __str__(self) -> str:
        return f"message {self.seq or 'waiting'} of {self.branch_id}"

    @property
    def text(self) -> str:
        """The visible words: every text part, in order, apart as models get them."""
        return JOINT.join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def said_by(self) -> str:
        """The name over the message: a member of a team has its own."""
        if self.speaker:
            return str(self.speaker["roleName"])
        return "You" if self.role == self.Role.USER else "Assistant"

    @property
    def is_incomplete(self) -> bool:
        """True for a reply cut by a fault and not kept by a person: later prompts leave it out."""
        return self.finish == self.Finish.INCOMPLETE and not self.kept


class MessageImage(Stored):
    """The bytes of an image that a message has; its part names them by their hash."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="images")
    sha256 = models.CharField(max_length=64)
    media_type = models.CharField(max_length=20)
    data = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["message", "sha256"], name="message_image_once")
        ]

    def __str__(self) -> str:
        return f"image of message {self.message_id}"


class Rendering(Stored):
    """A message text as safe HTML, made once per text and renderer version."""

    digest = models.CharField(max_length=64, primary_key=True)
    html = models.TextField()

    def __str__(self) -> str:
        return self.digest


class IdempotencyRecord(Stored):
    """The result of a request with an `Idempotency-Key`, so that a repetition does nothing new."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    route = models.CharField(max_length=200)
    key = models.CharField(max_length=255)
    # A commitment to the body, to notice another one; both are empty once its words were erased.
    salt = models.CharField(max_length=64, blank=True)
    body_commitment = models.CharField(max_length=64, blank=True)
    result = models.JSONField()
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "route", "key"], name="idempotency_once")
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
