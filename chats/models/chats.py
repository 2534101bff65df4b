"""Chats, branches and messages. Rows are append-only except for the columns named here."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext, gettext_lazy

from chats.models.parts import PartsField
from contextpolicy.engine.messages.messages import JOINT
from contextpolicy.models.base import Stored


class Folder(Stored):
    """A user's folder, which groups chats."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=200)
    # Chats in this folder save and send no preferences, and other chats get no excerpts of them.
    without_memory = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "name"], name="folder_name_once")
        ]

    def __str__(self) -> str:
        return self.name


# Chats the sidebar lists individually: pinned chats and chats outside folders.
IN_SIDEBAR = Q(archived=False, deleted_at=None) & (Q(pinned=True) | Q(folder=None))


class Chat(Stored):
    """A user's conversation: its settings, branches, and the counter that orders its messages."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    title = models.CharField(max_length=200, blank=True, default="")
    # True if a model generated the title from messages. Erasing those messages clears it.
    titled_by_model = models.BooleanField(default=False)
    folder = models.ForeignKey(Folder, null=True, blank=True, on_delete=models.SET_NULL)
    pinned = models.BooleanField(default=False)
    archived = models.BooleanField(default=False)
    system_text = models.TextField(blank=True, default="")
    # Agents who reply in this chat. None: the chat's model replies.
    team = models.ForeignKey(
        "Team", null=True, blank=True, on_delete=models.SET_NULL, db_index=False
    )
    # Task for the team in this chat. None: no task is set.
    team_task = models.TextField(null=True, blank=True)  # noqa: DJ001 - empty is a task, None is none
    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    # Policy requested by the client that opened the chat (/v1). It overrides the owner's policy.
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
    # Number of messages and turns accepted in this chat. The transaction that accepts one
    # increments the counter, which defines the order. Timestamps could not: clocks jump.
    accepted_count = models.PositiveBigIntegerField(default=0)
    # Id that a client of the UI message protocol gave the chat. Empty: opened in another way.
    client_id = models.CharField(max_length=200, blank=True, default="", db_default="")
    unread = models.BooleanField(default=False)
    # A message has a document with text.
    has_documents = models.BooleanField(default=False, db_default=False)
    # A prompt has only a part of the text of an attached document, or none of it.
    has_cut_files = models.BooleanField(default=False, db_default=False)
    # Erased when the owner signs out, or a fixed time after the last message.
    temporary = models.BooleanField(default=False)
    # Same as `Folder.without_memory`, for this chat.
    without_memory = models.BooleanField(default=False, db_default=False)
    # A deleted chat is hidden until the owner restores it or it is erased. Until then, the archive
    # of the owner's data contains it.
    deleted_at = models.DateTimeField(null=True, blank=True)
    erase_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            # First: of two indexes that fit equally, SQLite uses the one created later.
            models.Index(
                fields=["owner", "-updated_at", "-id"],
                condition=Q(deleted_at=None),
                name="chat_recent",
            ),
            # Partial indexes: SQLite does not use an index on the column for "not archived".
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
            # Small indexes for the cleanup job: few rows match, and only for a few days.
            models.Index(
                fields=["erase_at"], condition=Q(erase_at__isnull=False), name="chat_to_erase"
            ),
            models.Index(fields=["updated_at"], condition=Q(temporary=True), name="chat_temporary"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["owner", "client_id"],
                condition=~Q(client_id=""),
                name="chat_client_id_once",
            )
        ]

    def __str__(self) -> str:
        return self.title or f"chat {self.pk}"

    @property
    def is_provisional(self) -> bool:
        """True while a chat opened through the API is archived and has not been continued."""
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
    # Counts changed marks of messages (pins, exclusions, kept replies), so that open pages notice.
    marks_revision = models.PositiveBigIntegerField(default=0, db_default=0)
    # Team message IDs are `msg-N`, N = seq + this offset. Imported messages keep their own IDs.
    team_id_offset = models.BigIntegerField(default=0)
    # Time zone of dates in prompts, set by the first prompt or summary that may have dates. Empty:
    # the owner's zone.
    time_zone = models.CharField(max_length=64, blank=True, default="", db_default="")
    # Undoing a compaction pauses automatic compaction here until a user resumes it.
    compaction_paused = models.BooleanField(default=False)
    # The client drops old messages itself, so no summary replaces them in prompts.
    client_windowed = models.BooleanField(default=False, db_default=False)
    # A prompt left out messages, so every later prompt offers the chat search tool.
    search_offered = models.BooleanField(default=False, db_default=False)
    paused_at = models.DateTimeField(null=True, blank=True)
    # Compaction request that no worker has started: trigger, focus, model, compaction, by.
    asked = models.JSONField(default=dict, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    # Outcome of the last request: `reason` or `compaction`, and `after`, the turn before it.
    request_outcome = models.JSONField(null=True, blank=True)
    # Time since which the next summary waits for capacity or a worker (`compaction.summary_slots`).
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
    """A message of a user or a model.

    `seq` is empty while the message is queued; `accepted` orders queued messages. Only
    `chats.record.messages` writes here. After a row is written, only these change: seq (once), the
    flags, the token count, and the parts when a client returns tool results. An erasure removes the
    content.
    """

    class Role(models.TextChoices):
        USER = "user", gettext_lazy("User")
        ASSISTANT = "assistant", gettext_lazy("Assistant")

    class Finish(models.TextChoices):
        STOP = "stop", gettext_lazy("Complete")
        TOOL_CALLS = "tool_calls", gettext_lazy("Tool calls")
        LENGTH = "length", gettext_lazy("Reached the model’s output limit")
        LIMIT = "limit", gettext_lazy("Reached this server’s limit")
        INCOMPLETE = "incomplete", gettext_lazy("Interrupted by an error")
        STOPPED = "stopped", gettext_lazy("Stopped by a user")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="messages")
    seq = models.PositiveBigIntegerField(null=True, blank=True)
    accepted = models.PositiveBigIntegerField()
    role = models.CharField(max_length=10, choices=Role.choices)
    parts = PartsField()
    # {"roleId": …, "roleName": …, "type": "human" or "ai"}. Empty: the chat's owner or its model.
    speaker = models.JSONField(null=True, blank=True)
    addressees = models.JSONField(default=list, blank=True)
    # The turn that answers a user message, or whose step an assistant message is.
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
    # A part is a file. Stored, so that a query finds the few messages with files.
    contains_files = models.BooleanField(default=False, db_default=False)
    kept = models.BooleanField(default=False)
    erased_at = models.DateTimeField(null=True, blank=True)
    # The event that stored the message has this commitment. An erasure deletes only the salt. Both
    # are empty for a message of an older version.
    salt = models.CharField(max_length=64, blank=True, default="", db_default="")
    commitment = models.CharField(max_length=64, blank=True, default="", db_default="")
    created_at = models.DateTimeField()
    # True for an imported message of unknown time: `created_at` then only orders it.
    undated = models.BooleanField(null=True, blank=True)

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
            # Few messages have a flag. A prompt looks for them in the whole range it leaves out.
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
            models.Index(
                fields=["branch", "seq"],
                condition=Q(contains_files=True),
                name="message_with_files",
            ),
        ]

    def __str__(self) -> str:
        return f"message {self.seq or 'waiting'} of {self.branch_id}"

    @property
    def text(self) -> str:
        """Visible text: all text parts in order, joined with the separator that prompts use."""
        return JOINT.join(part["text"] for part in self.parts if part["type"] == "text")

    @property
    def has_files(self) -> bool:
        """True if the message has files, so that its text can be empty."""
        return any(part["type"] == "file" for part in self.parts or ())

    @property
    def file_names(self) -> list[str]:
        """The names of the files in a user's message. Images of API clients have none."""
        if self.role != self.Role.USER:
            return []
        return [part["name"] for part in self.parts if part["type"] == "file" and part["name"]]

    @property
    def said_by(self) -> str:
        """Display name of the author: the role name in a team, otherwise "You" or "Assistant"."""
        if self.speaker:
            return str(self.speaker["roleName"])
        return "You" if self.role == self.Role.USER else "Assistant"

    @property
    def author(self) -> str:
        """Display name of the author in the reader's language, for pages."""
        if self.speaker:
            return self.said_by
        return gettext("You") if self.role == self.Role.USER else gettext("Assistant")

    @property
    def is_incomplete(self) -> bool:
        """True for a reply cut off by an error that no user kept. Later prompts leave it out."""
        return self.finish == self.Finish.INCOMPLETE and not self.kept


class MessageImage(Stored):
    """An image of a message. The message's part refers to it by hash."""

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


class OwnedImage(Stored):
    """The owner and size of an image of a message, without its bytes.

    Used for the limit of a user's files, and to recognise an image that a client sends again.
    """

    image = models.OneToOneField(
        MessageImage, on_delete=models.CASCADE, primary_key=True, related_name="owned"
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    # The hash of the image that a client sent, if the stored image is its copy for models.
    given_sha256 = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["owner", "sha256", "size"], name="image_of_owner"),
            models.Index(
                fields=["owner", "given_sha256"],
                condition=~Q(given_sha256=""),
                name="image_given_by_owner",
            ),
        ]

    def __str__(self) -> str:
        return f"owner of image {self.pk}"


class Rendering(Stored):
    """A message text rendered as safe HTML, one row per text and renderer version."""

    digest = models.CharField(max_length=64, primary_key=True)
    html = models.TextField()

    def __str__(self) -> str:
        return self.digest


class IdempotencyRecord(Stored):
    """The stored response for a request with an `Idempotency-Key`, replayed on repetition."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    route = models.CharField(max_length=200)
    key = models.CharField(max_length=255)
    # Commitment to the body, to detect a different one. Both are empty once the text is erased.
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
