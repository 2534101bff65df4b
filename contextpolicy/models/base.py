"""The base of all stored models of the product."""

from collections.abc import Collection
from typing import Any, Self

from django.db import models
from django.db.models.base import ModelState


class Stored(models.Model):
    """A model whose rows are made in one step from what the database holds.

    Django sets field by field, by way of descriptors, with a signal before and one after. Nobody
    here listens to those, and a row from the database needs neither: without them it takes a
    quarter of the time.
    """

    class Meta:
        abstract = True

    @classmethod
    def from_db(  # type: ignore[override]  # the stubs are those of a later Django
        cls, db: str | None, field_names: Collection[str], values: Collection[Any]
    ) -> Self:
        """Make the row; fields that were not read are read when they are asked for."""
        new = cls.__new__(cls)
        new.__dict__.update(zip(field_names, values, strict=True))
        new._state = state = ModelState()  # noqa: SLF001  # as Django's own
        state.adding, state.db = False, db
        return new
