"""Message embeddings for semantic search. Deleted together with their messages."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class VectorSpace(Stored):
    """An embedding index of one model in one revision. Only vectors of one index are compared.

    A new model gets a new index, even with the same dimensions. The previous index stays in use
    until the new one is complete. A pass over all texts holds a lease and saves its position.
    """

    class State(models.TextChoices):
        BUILDING = "building", gettext_lazy("Building")
        SERVING = "serving", gettext_lazy("In use")
        RETIRED = "retired", gettext_lazy("Deleting")

    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    # Identity of the index: provider, address, model, prefix, and the chunking of texts.
    key = models.CharField(max_length=400)
    revision = models.PositiveIntegerField(default=1)
    # Known after the first response.
    dimensions = models.PositiveIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.BUILDING)
    # ID of the last text processed.
    cursor = models.BigIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    # Code of the last model error. Empty: no error.
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
    """The embedding of one chunk of a message: unit length, half precision.

    An empty vector means that the text has nothing to embed or, with a `fault`, that the model
    failed to embed it.
    """

    space = models.ForeignKey(VectorSpace, on_delete=models.CASCADE, db_index=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    message = models.ForeignKey("Message", on_delete=models.CASCADE, related_name="+")
    # ID in the keyword index. Deleted in the same transaction as that row.
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
