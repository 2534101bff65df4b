"""The rows by which programs without a memory are recognised: rooms, and nodes of their chats."""

from typing import ClassVar

from django.db import models

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

    Both are of one room. `found` chains what the program wrote up to here; `item` is of this
    message alone, whole.
    """

    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="+")
    seq = models.PositiveBigIntegerField()
    found = models.CharField(max_length=64, blank=True, default="")
    item = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["branch", "seq"], name="gateway_node_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["found"], name="gateway_found"),
            models.Index(fields=["item"], name="gateway_item"),
        ]

    def __str__(self) -> str:
        return f"node {self.seq} of {self.branch_id}"
