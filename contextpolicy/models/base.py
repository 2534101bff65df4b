"""The base of all stored models of the product."""

from collections.abc import Collection
from typing import Any, Self

from django.db import models
from django.db.models.base import ModelState


class Stored(models.Model):
    """A model whose instances are built from a database row in one step.

    Django sets each field through its descriptor, and sends a signal before and after. This product
    has no receiver for these signals, and values from the database do not need the descriptors.
    Without both, creating an instance takes a quarter of the time.
    """

    class Meta:
        abstract = True

    @classmethod
    def from_db(  # type: ignore[override]  # the stubs are those of a later Django
        cls, db: str | None, field_names: Collection[str], values: Collection[Any]
    ) -> Self:
        """Create the instance; deferred fields are loaded on access."""
        new = cls.__new__(cls)
        new.__dict__.update(zip(field_names, values, strict=True))
        new._state = state = ModelState()  # noqa: SLF001  # as Django's own
        state.adding, state.db = False, db
        return new
