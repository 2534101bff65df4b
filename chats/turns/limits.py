"""What overflows teach about a model: a smaller window, stored with it, shown, resettable."""

from datetime import datetime

from django.db import transaction

from contextpolicy import ledger
from contextpolicy.models import ModelSpec

# Below this an error speaks of something else than a model's window, or of one that no policy works
# with: to remember it would close every chat of the model.
SMALLEST_WINDOW = 4_000


@transaction.atomic
def learn(*, model_id: int, limit: int, now: datetime) -> bool:
    """Remember that the model takes at most `limit` tokens. False when that is nothing new."""
    model = ModelSpec.objects.select_for_update(no_key=True).filter(pk=model_id).first()
    if model is None or limit < SMALLEST_WINDOW:
        return False
    if model.window is not None and limit >= model.window:
        return False
    data = {"model": model.slug, "from": model.window, "to": limit}
    model.learned_window = limit
    model.save(update_fields=["learned_window"])
    ledger.record("model.limit_learned", actor="worker", now=now, data=data)
    return True


@transaction.atomic
def forget(*, model: ModelSpec, actor: str, now: datetime) -> ModelSpec:
    """Believe the model's own window again; without a learned one nothing changes."""
    model = ModelSpec.objects.select_for_update(no_key=True).get(pk=model.pk)
    if model.learned_window is None:
        return model
    data = {"model": model.slug, "from": model.learned_window, "to": model.context_window}
    model.learned_window = None
    model.save(update_fields=["learned_window"])
    ledger.record("model.limit_reset", actor=actor, now=now, data=data)
    return model
