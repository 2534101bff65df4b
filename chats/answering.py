"""Which model answers in a chat, under which policy, and by which account."""

from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now

from chats import secrets
from chats.models import Chat, ProviderAccount, Turn
from chats.providers.registry import ProviderAccountValue as Account
from chats.refusals import Refusal
from contextpolicy import prepared, resolution
from contextpolicy.engine.budget import PolicyImpossible
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.models import EffectivePolicy, ModelSpec


class NoModel(Refusal):
    """Nothing is set up that could answer."""

    code = "no_model"
    status = 409
    sentence = "No model is set up yet. An operator connects one under Setup."


class ModelNotAllowed(Refusal):
    """The policy does not allow the chosen model."""

    code = "model_not_allowed"
    status = 403
    sentence = "The policy {policy} does not allow the model {model}. Choose another one."


class ModelUnavailable(Refusal):
    """The model's provider is switched off, paused or gone."""

    code = "model_unavailable"
    status = 409
    sentence = "The model {model} cannot be used now: {reason}. Choose another one."


class PolicyRefused(Refusal):
    """The policies that apply here cannot work; the engine says which numbers clash."""

    code = "policy_impossible"
    status = 409
    sentence = "{reason}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which model answers in a chat, under which policy."""

    model: ModelSpec
    effective: EffectivePolicy
    values: PolicyValues


_DEFAULT_MODEL = prepared.Select(
    lambda _at: ModelSpec.objects.filter(is_default=True, enabled=True).order_by("pk")[:1]
)


def choose(*, chat: Chat, default: ModelSpec | None = None) -> Choice:
    """The chat's model and effective policy. Raises `NoModel` or `ModelNotAllowed`.

    `default`: the model of chats that chose none, where it is known already.
    """
    model = chat.model or default or _DEFAULT_MODEL.first()
    if model is None:
        raise NoModel
    effective = effective_policy(chat=chat, model=model)
    values = resolution.values_of(effective)
    allowed = values.allowed_models
    if allowed is not None and model.slug not in allowed:
        raise ModelNotAllowed(policy=effective.label, model=str(model))
    return Choice(model=model, effective=effective, values=values)


def choose_again(*, chat: Chat, turn: Turn) -> Choice:
    """The choice for a running turn: the model it was accepted with, the policy as it is now."""
    if turn.model is None:
        raise NoModel
    chat.model = turn.model
    return choose(chat=chat)


def effective_policy(
    *, chat: Chat, model: ModelSpec | None, window_limit: int | None = None
) -> EffectivePolicy:
    """What every assigned policy comes out to. Raises `PolicyRefused` when that cannot work."""
    window = model.window if model else None
    known = [size for size in (window, window_limit) if size]
    try:
        return resolution.resolve(
            user_id=chat.owner_id,
            chat_id=chat.pk,
            model_window=min(known) if known else None,
            defaults={
                "window_size": settings.HISTORY_WINDOW,
                "max_chars_per_message": settings.MAX_CHARS_PER_MESSAGE,
            },
        )
    except PolicyImpossible as error:
        raise PolicyRefused(reason=str(error)) from error


_ACCOUNT = prepared.Select(
    lambda at: ProviderAccount.objects.annotate(
        is_paused=ExpressionWrapper(Q(paused_until__gt=Now()), output_field=BooleanField())
    ).filter(slug=at("slug"))
)


def available_account(model: ModelSpec) -> ProviderAccount:
    """The provider account of a model, if calls may be made. Raises `ModelUnavailable`.

    Whether its breaker is open is told by the database's clock, which all processes share.
    """
    row = _ACCOUNT.first(slug=model.provider)
    if row is None or not row.enabled or not model.enabled:
        raise ModelUnavailable(model=str(model), reason="it is switched off")
    if cast(Any, row).is_paused:
        raise ModelUnavailable(model=str(model), reason=row.paused_reason)
    return row


def account_for(model: ModelSpec) -> Account:
    """The provider account of a model, its key decrypted. Raises `ModelUnavailable`."""
    row = available_account(model)
    return Account(
        slug=row.slug,
        kind=cast(Any, row.kind),
        base_url=row.base_url,
        api_key=secrets.decrypt(row.encrypted_key) if row.encrypted_key else "",
    )
