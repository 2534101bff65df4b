"""Models of the /v1 API: client chats, message hashes, and requests without a chat."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy

from chats.models.turns import Receipt
from contextpolicy.models.base import Stored


class GatewayChat(Stored):
    """A chat that a client opened through /v1.

    `room` is a keyed hash of owner, end user and the client's own ID. A chat is proven once a
    request contains one of its replies. Until then it is archived and later erased. A conversation
    that a client created by ID is proven, and no longer archived, with its first request.
    """

    chat = models.OneToOneField(
        "Chat", primary_key=True, on_delete=models.CASCADE, related_name="gateway"
    )
    room = models.CharField(max_length=64)
    # Name of the header or field that contained the ID. Empty: the client sent none.
    source = models.CharField(max_length=40, blank=True, default="")
    proven = models.BooleanField(default=False)
    # Only for conversations: the client's texts by name, and the time at which a client deleted the
    # ID.
    metadata = models.JSONField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["room"], name="gateway_room")]

    def __str__(self) -> str:
        return f"gateway chat {self.chat_id}"


class GatewayNode(Stored):
    """A message as the client sent it, in keyed hashes that cannot be guessed.

    All nodes of a chat use one room key. `found` is the chain hash of the messages up to here,
    `loose` the chain hash of their beginnings. `item` is the hash of this message alone.
    """

    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="+")
    seq = models.PositiveBigIntegerField()
    found = models.CharField(max_length=64, blank=True, default="")
    loose = models.CharField(max_length=64, blank=True, default="", db_default="")
    item = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["branch", "seq"], name="gateway_node_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["found"], name="gateway_found"),
            models.Index(fields=["loose"], name="gateway_loose"),
            models.Index(fields=["item"], name="gateway_item"),
        ]

    def __str__(self) -> str:
        return f"node {self.seq} of {self.branch_id}"


class DeletedResponse(Stored):
    """A response that a client deleted. Its ID can no longer be retrieved or continued."""

    turn = models.OneToOneField(
        "Turn", primary_key=True, on_delete=models.CASCADE, related_name="deleted_response"
    )
    deleted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"deleted response of turn {self.turn_id}"


class ReplyLogprobs(Stored):
    """Log probabilities of a reply, as its client requested them.

    They are not part of the message. Until they are deleted, a day after the reply, a repeated
    request with the same Idempotency-Key and the retrieval of the response return them. They are
    not kept longer, because one token can have 20 alternatives.
    """

    turn = models.OneToOneField(
        "Turn", primary_key=True, on_delete=models.CASCADE, related_name="logprobs"
    )
    # JSON: [[start, entry of the provider], …]. `start` is a position in the text of the reply.
    entries = models.TextField(blank=True)
    # A part of the text has no entries.
    is_partial = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"log probabilities of turn {self.turn_id}"


class PassedOn(Stored):
    """A pass-through request to a model, without a chat. None of its text is stored.

    The row is written before the call and completed once after it.
    """

    class Kind(models.TextChoices):
        CHAT = "chat.completions", gettext_lazy("Chat completions")
        RESPONSES = "responses", gettext_lazy("Responses")
        EMBEDDINGS = "embeddings", gettext_lazy("Embeddings")
        SUMMARY = "summary", gettext_lazy("Test summary")

    class Why(models.TextChoices):
        KEY = "key", gettext_lazy("Set in the API key")
        POLICY = "policy", gettext_lazy("Set in the policy")
        HEADER = "header", gettext_lazy("Requested by the client")
        KIND = "kind", gettext_lazy("Requests of this kind belong to no chat")
        PREVIEW = "preview", gettext_lazy("Policy preview")

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    # Only unfinished requests are looked up by API key.
    api_key = models.ForeignKey(
        "ApiKey", null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    kind = models.CharField(max_length=20, choices=Kind.choices)
    why = models.CharField(max_length=10, choices=Why.choices)
    model_slug = models.CharField(max_length=120)
    model_name = models.CharField(max_length=200)
    outcome = models.CharField(
        max_length=8, choices=Receipt.Outcome.choices, default=Receipt.Outcome.OPEN
    )
    error_code = models.CharField(max_length=60, blank=True, default="")
    # {"input": tokens, "output": …, "cached": …} as the provider reported. Empty: not reported.
    usage = models.JSONField(default=dict, blank=True)
    # The prompt in local tokens, stored only under a policy with quotas.
    prompt_tokens = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["owner", "created_at"], name="passed_on_of_owner"),
            models.Index(
                fields=["api_key", "created_at"],
                condition=models.Q(outcome="open"),
                name="passed_on_open",
            ),
        ]

    def __str__(self) -> str:
        return f"request passed on to {self.model_name}"
