"""Stores the options that a server refused with a model, and loads them for its requests."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from chats.providers.learned_options import LEARNED_AT, Options, select_valid_options
from chats.providers.refused_fields import HINTS
from contextpolicy.models import ModelSpec


def get_learned_options(model: ModelSpec) -> Options:
    """Return the valid options that are stored with a model; empty if there are none."""
    return select_valid_options(model.learned_options, now=timezone.now())


@transaction.atomic
def store_learned_options(*, model_id: int, options: Options, now: datetime) -> None:
    """Store the options with a model. Does nothing if they are stored and have not expired."""
    model = ModelSpec.objects.select_for_update(no_key=True).filter(pk=model_id).first()
    if model is None:
        return
    # Other fields are names that a server chose, so they are learned again.
    without = sorted(HINTS & set(options.get("without", ())))
    values = {**options, "without": without, LEARNED_AT: now.isoformat()}
    known = select_valid_options(model.learned_options, now=now)
    if known != select_valid_options(values, now=now):
        ModelSpec.objects.filter(pk=model_id).update(learned_options=values)
