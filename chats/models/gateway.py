"""The rows of programs behind /v1: rooms and nodes of their chats, and calls without a chat."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from chats.models.turns import Receipt
from contextpolicy.models.base import Stored


class GatewayChat(Stored):
    """A chat that a program opened through /v1.

    `room` is a keyed hash of owner, end user and the program's own id. A chat is proven once a
    request holds one of its replies; until then it is filed under the archived ones, and goes.
    """

    chat = models.OneToOneField(
        "Chat", primary_key=True, on_delete=models.CASCADE, related_name="gateway"
    )
    room = models.CharField(max_length=64)
    # The name of the header or field that had the id; empty: there was none.
    source = models.CharField(max_length=40, blank=True, default="")
    proven = models.BooleanField(default=False)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["room"], name="gateway_room")]

    def __str__(self) -> str:
        return f"gateway chat {self.chat_id}"


class GatewayNode(Stored):
    """A message as the program itself sent it, in keyed hashes: nothing in it can be guessed.

    All are of one room. `found` chains what the program wrote up to here, `loose` the beginnings of
    it; `item` is of this message alone, whole.
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


class PassedOn(Stored):
    """A request that a model was asked beside all chats, and of whose words nothing is kept.

    Written before the call, completed once after it.
    """

    class Kind(models.TextChoices):
        CHAT = "chat.completions", "Chat completions"
        RESPONSES = "responses", "Responses"
        EMBEDDINGS = "embeddings", "Embeddings"
        SUMMARY = "summary", "A summary that was tried"

    class Why(models.TextChoices):
        KEY = "key", "The key says so"
        POLICY = "policy", "The policy says so"
        HEADER = "header", "The request asked for it"
        KIND = "kind", "Requests of this kind have no chat"
        PREVIEW = "preview", "In the preview of a policy"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    # Only unfinished ones are looked up by their key.
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
    # {"input": tokens, "output": …, "cached": …}, as the provider told; empty: it told nothing.
    usage = models.JSONField(default=dict, blank=True)
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
