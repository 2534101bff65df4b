"""The only writer of models of provider accounts. Records their changes in the ledger."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.text import slugify

from chats.models import ProviderAccount
from contextpolicy.ledger import record_event
from contextpolicy.models import ModelSpec
from contextpolicy.policy_diff import diff_policy_values
from contextpolicy.presets import replace_demo_policy

MODEL_FIELDS = (
    "provider",
    "name",
    "label",
    "context_window",
    "max_output",
    "input_price",
    "output_price",
    "cached_price",
    "written_price",
    "currency",
    "supports_tools",
    "tools",
    "hosted_tools",
    "takes_images",
    "strict_roles",
    "cannot_stream",
    "embeds",
    "thinking",
    "enabled",
    "is_default",
)
# Fields learned from replies, with their initial values.
LEARNED: dict[str, Any] = {
    "calibration": 1.0,
    "calibration_by_script": {},
    "calibration_samples": 0,
    "calibration_samples_by_script": {},
}
# Models that do not chat. They are added as disabled. Some of them create embeddings.
_EMBEDS = re.compile(r"embed|minilm|\b(?:bge|gte|e5)[-_](?!.*rerank)", re.IGNORECASE)
_NO_CHAT = re.compile(
    rf"{_EMBEDS.pattern}|whisper|tts|audio|dall-e|image|moderation|rerank|transcri|realtime",
    re.IGNORECASE,
)
# The small model does not support tools, and would write until its window is full.
SMALL_MODEL_VALUES = {"supports_tools": False, "takes_images": False, "max_output": 512}


def save_model(
    *, model: ModelSpec, actor: str, now: datetime, forget_calibration: bool = False
) -> ModelSpec:
    """Store a new or changed model. A new default replaces the previous one.

    Learned calibration stays, unless `forget_calibration` resets it to local counts. Learned
    options and the learned window stay, unless the model gets another name or provider. A default
    other than the demo model also ends the assignment of the demo policy.
    """
    with transaction.atomic():
        stored = ModelSpec.objects.select_for_update(no_key=True).filter(pk=model.pk).first()
        before = {name: getattr(stored, name) for name in MODEL_FIELDS} if stored else {}
        if model.is_default:
            ModelSpec.objects.filter(is_default=True).exclude(pk=model.pk).update(is_default=False)
        for name, fresh in LEARNED.items():
            kept = getattr(stored, name) if stored else fresh
            setattr(model, name, fresh if forget_calibration else kept)
        if stored and forget_calibration:
            before["calibration"] = stored.calibration
        is_same = stored and (stored.provider, stored.name) == (model.provider, model.name)
        model.learned_options = stored.learned_options if stored and is_same else {}
        model.learned_window = stored.learned_window if stored and is_same else None
        model.save()
        after = {name: getattr(model, name) for name in (before or MODEL_FIELDS)}
        data = {"model": model.slug, "changes": diff_policy_values(_plain(before), _plain(after))}
        record_event("model.changed", actor=actor, now=now, data=data)
        if model.is_default and _has_real_default():
            replace_demo_policy(actor=actor, now=now)
    return model


def add_models(
    *,
    account: ProviderAccount,
    models: Mapping[str, int | None],
    actor: str,
    now: datetime,
) -> list[ModelSpec]:
    """Store the models of an account that are not stored yet. Call inside a transaction.

    `models` maps names to context windows. A known model without a window gets one too.
    """
    known = {model.name: model for model in ModelSpec.objects.filter(provider=account.slug)}
    # Such a small model must be chosen explicitly.
    is_small = bool(settings.SMALL_MODEL_URL) and account.base_url == settings.SMALL_MODEL_URL
    lacks_default = not is_small and not _has_real_default()
    added = []
    for name, window in models.items():
        if name in known:
            if window and known[name].context_window is None:
                known[name].context_window = window
                save_model(model=known[name], actor=actor, now=now)
            continue
        values = SMALL_MODEL_VALUES if is_small else {}
        model = ModelSpec(
            slug=_model_slug(account, name), provider=account.slug, name=name, **values
        )
        model.context_window = window
        model.label, model.enabled = name, not _NO_CHAT.search(name)
        model.embeds = bool(_EMBEDS.search(name))
        model.is_default = model.enabled and lacks_default
        lacks_default = lacks_default and not model.is_default
        added.append(save_model(model=model, actor=actor, now=now))
    return added


def choose_default_model() -> ModelSpec | None:
    """Return the model to use as the default, or None if no model is usable.

    Prefers the oldest model of a server over the demo model.
    """
    kinds = dict(ProviderAccount.objects.filter(enabled=True).values_list("slug", "kind"))
    usable = ModelSpec.objects.filter(enabled=True, provider__in=kinds)
    ordered = sorted(usable, key=lambda model: (kinds[model.provider] == "demo", model.pk))
    return ordered[0] if ordered else None


def _has_real_default() -> bool:
    """Return True if the default model is set and is not the demo model."""
    demo = ProviderAccount.objects.filter(kind="demo").values_list("slug", flat=True)
    return ModelSpec.objects.filter(is_default=True).exclude(provider__in=list(demo)).exists()


def _model_slug(account: ProviderAccount, name: str) -> str:
    readable = slugify(re.sub(r"[./:_]", "-", name)) or "model"
    wanted = f"{account.slug}-{readable}"[:110]
    taken = set(ModelSpec.objects.filter(slug__startswith=wanted).values_list("slug", flat=True))
    numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    return next(slug for slug in (wanted, *numbered) if slug not in taken)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert prices to text, because JSON has no decimals."""
    return {
        name: str(value) if name.endswith("_price") and value is not None else value
        for name, value in values.items()
    }
