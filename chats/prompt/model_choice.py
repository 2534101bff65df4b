"""Chooses the model that replies in a chat under its policy, and the model's account."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from django.conf import settings
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground import secrets
from chats.ground.refusals import Refusal
from chats.models import Agent, Chat, ProviderAccount, Turn
from chats.prompt import statements
from chats.providers.address import is_private
from chats.providers.registry import ProviderAccountValue as Account
from contextpolicy import resolution
from contextpolicy.engine.policy.budget import PolicyImpossible
from contextpolicy.engine.policy.costs import UsedTokens, compute_call_cost
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.explanation import ExplainedField, explain_policy_fields
from contextpolicy.models import ContextPolicy, EffectivePolicy, ModelSpec


class NoModel(Refusal):
    """No model is configured on this instance."""

    code = "no_model"
    status = 409
    sentence = gettext_noop("No model is configured yet. An operator can connect one under Setup.")


class ModelNotAllowed(Refusal):
    """The policy does not allow the chat's model."""

    code = "model_not_allowed"
    status = 403
    sentence = gettext_noop(
        "The policy {policy} does not allow the model {model}. Choose another model."
    )


class ModelUnavailable(Refusal):
    """The model or its provider is disabled, paused or missing."""

    code = "model_unavailable"
    status = 409
    sentence = gettext_noop("The model {model} cannot be used now: {reason}. Choose another model.")


class PolicyRefused(Refusal):
    """The effective policies conflict or do not fit the model. The error message gives the
    reason."""

    code = "policy_impossible"
    status = 409
    sentence = gettext_noop(
        "The effective policies contradict each other or do not fit the model. An "
        "administrator must change a policy. {reason}"
    )


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The model that replies in a chat, and its effective policy."""

    model: ModelSpec
    effective: EffectivePolicy
    values: PolicyValues


def choose_chat_model(
    *, chat: Chat, default: ModelSpec | None = None, agent: Agent | None = None
) -> ChosenModel:
    """Return the chat's model and effective policy, or those of an agent of its team.

    `default` is the default model, if it was already read. Raises `NoModel`, `ModelNotAllowed` and
    `PolicyRefused`.
    """
    own = agent.model if agent else None
    model = own or chat.model or default or statements.DEFAULT_MODEL.first()
    if model is None:
        raise NoModel
    effective = resolve_effective_policy(chat=chat, model=model, agent=agent)
    values = resolution.load_policy_values(effective)
    allowed = values.allowed_models
    if allowed is not None and model.slug not in allowed:
        raise ModelNotAllowed(policy=effective.label, model=str(model))
    return ChosenModel(model=model, effective=effective, values=values)


def choose_with(*, chat: Chat, assigned: tuple[resolution.Assigned, ...]) -> ChosenModel:
    """Return the chat's model and the policy that results from these assignments.

    Nothing is stored. Raises `NoModel`, `ModelNotAllowed` and `PolicyRefused`.
    """
    model = chat.model or statements.DEFAULT_MODEL.first()
    if model is None:
        raise NoModel
    try:
        effective = resolution.build_effective_policy(
            assigned,
            model_window=model.window,
            model_tools=model.tools,
            defaults=get_server_defaults(),
        )
    except PolicyImpossible as error:
        raise PolicyRefused(reason=str(error)) from error
    values = resolution.load_policy_values(effective)
    if values.allowed_models is not None and model.slug not in values.allowed_models:
        raise ModelNotAllowed(policy=effective.label, model=str(model))
    return ChosenModel(model=model, effective=effective, values=values)


def choose_again(*, chat: Chat, turn: Turn) -> ChosenModel:
    """Return the model and policy of a running turn: its original model, the current policy.

    Also sets this model on `chat`, without saving it. Raises `NoModel` if the turn's model was
    deleted, and the refusals of `choose_chat_model`.
    """
    if turn.model is None:
        raise NoModel
    chat.model = turn.model
    if turn.agent_id is None:
        return choose_chat_model(chat=chat)
    agent = Agent.objects.select_related("policy__current").get(pk=turn.agent_id)
    agent.model = turn.model
    return choose_chat_model(chat=chat, agent=agent)


def resolve_effective_policy(
    *,
    chat: Chat,
    model: ModelSpec | None,
    window_limit: int | None = None,
    agent: Agent | None = None,
    stores: bool = True,
) -> EffectivePolicy:
    """Return the effective policy of all assignments. Raises `PolicyRefused` if they conflict.

    A new policy is stored, unless `stores` is False. The policy of an agent, or the one that a
    client opened the chat with, ranks between the user's and the chat's.
    """
    window = model.window if model else None
    known = [size for size in (window, window_limit) if size]
    try:
        return resolution.resolve_policy(
            user_id=chat.owner_id,
            chat_id=chat.pk,
            agent_policy=get_agent_policy(agent) if agent else get_client_policy(chat),
            model_window=min(known) if known else None,
            model_tools=model.tools if model else None,
            defaults=get_server_defaults(),
            stores=stores,
        )
    except PolicyImpossible as error:
        raise PolicyRefused(reason=str(error)) from error


def is_archive_open(chat: Chat) -> bool:
    """Return True unless the chat's policy closes its archive.

    A policy that cannot be resolved does not close it.
    """
    try:
        return choose_chat_model(chat=chat).values.archive
    except Refusal:
        return True


def get_agent_policy(agent: Agent) -> ContextPolicy | None:
    """Return the policy of an agent. None if it has none or if the policy is retired."""
    policy = agent.policy
    return None if policy is None or policy.retired else policy


def get_client_policy(chat: Chat) -> ContextPolicy | None:
    """Return the policy that an API client chose for the chat, with its version.

    None if it chose none or if the policy is retired.
    """
    if chat.policy_id is None:
        return None
    rows = ContextPolicy.objects.select_related("current")
    return rows.filter(pk=chat.policy_id, retired=False).first()


def explain_policy_layers(
    layers: Collection[resolution.Layer], *, model: ModelSpec | None
) -> list[ExplainedField]:
    """Explain the effective policy that these layers produce with a model.

    Raises `PolicyRefused`.
    """
    window = model.window if model else None
    try:
        return explain_policy_fields(
            layers,
            defaults=get_server_defaults(),
            model_window=window,
            model_tools=model.tools if model else None,
        )
    except PolicyImpossible as error:
        raise PolicyRefused(reason=str(error)) from error


def get_server_defaults() -> dict[str, object]:
    return {
        "window_size": settings.HISTORY_WINDOW,
        "max_chars_per_message": settings.MAX_CHARS_PER_MESSAGE,
    }


def get_recent_window(*, user_id: int, chat_id: uuid.UUID | None) -> int:
    """Return the number of messages that count as recent under a user's or their chat's policy.

    Raises `PolicyRefused`.
    """
    try:
        effective = resolution.resolve_policy(
            user_id=user_id, chat_id=chat_id, model_window=None, defaults=get_server_defaults()
        )
    except PolicyImpossible as error:
        raise PolicyRefused(reason=str(error)) from error
    window = resolution.load_policy_values(effective).window_size
    return settings.HISTORY_WINDOW if window is None else window


def get_available_account(model: ModelSpec, *, to_embed: bool = False) -> ProviderAccount:
    """Return the provider account of a model. Raises `ModelUnavailable` if it cannot be used.

    `to_embed`: checks that the model is enabled for embeddings, not for replies. The circuit
    breaker is checked against the database clock, which all processes share.
    """
    is_on = model.embeds if to_embed else model.enabled
    row = statements.ACCOUNT.first(slug=model.provider)
    if row is None or not row.enabled or not is_on:
        raise ModelUnavailable(model=str(model), reason=gettext_lazy("it is disabled"))
    if cast(Any, row).is_paused:
        raise ModelUnavailable(model=str(model), reason=gettext_lazy(row.paused_reason))
    return row


def get_model_account(model: ModelSpec, *, to_embed: bool = False) -> Account:
    """Return a model's provider account with its key decrypted.

    Raises `ModelUnavailable` and `SecretUnreadable`.
    """
    row = get_available_account(model, to_embed=to_embed)
    return Account(
        slug=row.slug,
        kind=cast(Any, row.kind),
        base_url=row.base_url,
        api_key=secrets.decrypt(row.encrypted_key) if row.encrypted_key else "",
        name=row.name,
        warms_up=can_warm_up_account(row),
    )


def can_warm_up_account(row: ProviderAccount) -> bool:
    """Return True if a server may get cache warm-ups: it is private and they are not disabled.

    The demo model has no cache. Anthropic's API is excluded, because it would continue a prefix
    that ends with a reply.
    """
    return (
        row.warm_up
        and row.kind == ProviderAccount.Kind.OPENAI
        and is_private(row.base_url, allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS)
    )


def has_price(model: ModelSpec) -> bool:
    """Return True if a call of the model costs money."""
    prices = (model.input_price, model.output_price, model.cached_price, model.written_price)
    return any(prices)


def calculate_call_cost(model: ModelSpec | None, used: UsedTokens) -> Decimal | None:
    """Return the cost of a call. None if there is no model or one of its prices is not set."""
    return compute_call_cost(used, model.prices) if model is not None else None


def get_model_origin(model: ModelSpec) -> str:
    """Return "provider/model", which identifies the model in fields stored with tool calls."""
    return f"{model.provider}/{model.name}"
