"""Vectors of messages, for the search by meaning. Made from them, and thrown away with them."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from contextpolicy.models.base import Stored


class VectorSpace(Stored):
    """The vectors of one model in one revision: only those of one space are compared.

    A new model is a new space, also of as many dimensions. The old one answers until the new one is
    complete. A pass over all texts is made with a lease; how far it came is kept.
    """

    class State(models.TextChoices):
        BUILDING = "building", "Being built"
        SERVING = "serving", "In use"
        RETIRED = "retired", "Being deleted"

    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    # What its vectors depend on: provider, address, model, prefix, and how texts are divided.
    key = models.CharField(max_length=400)
    revision = models.PositiveIntegerField(default=1)
    # Known with the first answer.
    dimensions = models.PositiveIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.BUILDING)
    # The id of the last text that the pass has looked at.
    cursor = models.BigIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    # Why the model could not be asked the last time; empty while it can.
    fault = models.CharField(max_length=60, blank=True, default="")
    fault_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["state"], condition=~Q(state="retired"), name="one_space_of_a_state"
            )
        ]

    def __str__(self) -> str:
        return f"vectors of {self.key}, revision {self.revision}"


class TextVector(Stored):
    """One passage of a message as a vector of length 1, in half precision.

    An empty one says that a text has nothing to compare, or, with a `fault`, that its model made
    none of it.
    """

    space = models.ForeignKey(VectorSpace, on_delete=models.CASCADE, db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    message = models.ForeignKey("Message", on_delete=models.CASCADE, related_name="+")
    # The id of its text in the index of words, from which it goes in the same transaction.
    text = models.BigIntegerField()
    passage = models.PositiveSmallIntegerField()
    vector = models.BinaryField()
    fault = models.CharField(max_length=20, blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["space", "text", "passage"], name="vector_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["space", "owner", "id"], name="vector_of_person"),
            models.Index(fields=["text"], name="vector_of_text"),
            models.Index(fields=["space"], condition=~Q(fault=""), name="vector_missed"),
        ]

    def __str__(self) -> str:
        return f"passage {self.passage} of text {self.text}"
