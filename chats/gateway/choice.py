"""Resolves the `model` of a request: a model, a policy or a chat."""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from chats.actions import lifecycle
from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.gateway.errors import InvalidRequest, MakesNoEmbeddings, ModelNotFound, TeamInChat
from chats.ground.refusals import NotFound
from chats.models import Chat, ProviderAccount
from chats.prompt import model_choice
from chats.record import access
from contextpolicy import resolution
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ContextPolicy, ModelSpec

POLICY, CHAT = "policy:", "chat:"
# A budget above this is unlimited. Only the model's window, if known, then limits the prompt.
UNBOUNDED = 500_000


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The resolved name: a model, a policy with its model, or a chat of the owner."""

    model: ModelSpec | None = None
    policy: ContextPolicy | None = None
    chat: Chat | None = None


@dataclass(frozen=True, slots=True)
class ListedModel:
    """An entry of the model list: its name, and the maximum prompt tokens if known."""

    name: str
    window: int | None
    owner: str


def resolve_model_name(name: str, *, user: User) -> NamedModel:
    """Resolve the `model` of a user's request. Raises `ModelNotFound` and `TeamInChat`."""
    if name.startswith(CHAT):
        return NamedModel(chat=find_named_chat(name, user=user))
    if name.startswith(POLICY):
        policy = select_nameable_policies(user).filter(slug=name.removeprefix(POLICY)).first()
        if policy is None:
            raise ModelNotFound(model=name)
        model = choose_policy_model(policy, user=user)
        if model is None:
            raise ModelNotFound(model=name)
        return NamedModel(policy=policy, model=model)
    known = {spec.slug: spec for spec in list_usable_models()}
    named = [spec for spec in known.values() if spec.name == name]
    spec = known.get(name) or (named[0] if len(named) == 1 else None)
    if spec is None:
        raise ModelNotFound(model=name)
    return NamedModel(model=spec)


def find_hosted_types(name: str, *, user: User) -> frozenset[str]:
    """Return the types of tools that the server of a named model runs itself.

    Raises `ModelNotFound` and `TeamInChat`.
    """
    wanted = resolve_model_name(name, user=user)
    model = wanted.model
    if wanted.chat is not None:
        model = wanted.chat.model or next(iter(list_usable_models()), None)
    return model.hosted_types if model else frozenset()


def find_embedding_model(name: str, *, user: User) -> tuple[ModelSpec, PolicyValues]:
    """Return the embedding model with this name, and the values of the user's policy.

    Raises `ModelNotFound`, `MakesNoEmbeddings`, `PolicyRefused` and `ModelNotAllowed`.
    """
    # Anthropic's API has no embeddings.
    accounts = ProviderAccount.objects.filter(enabled=True, kind="openai").values("slug")
    specs = list(ModelSpec.objects.filter(embeds=True, provider__in=accounts))
    named = [spec for spec in specs if spec.name == name]
    spec = next((spec for spec in specs if spec.slug == name), None)
    spec = spec or (named[0] if len(named) == 1 else None)
    if spec is None:
        if any(name in (other.slug, other.name) for other in list_usable_models()):
            raise MakesNoEmbeddings(model=name)
        raise ModelNotFound(model=name)
    effective = model_choice.resolve_effective_policy(chat=Chat(owner_id=user.pk), model=None)
    values = resolution.load_policy_values(effective)
    allowed = values.allowed_models
    if allowed is not None and spec.slug not in allowed:
        raise model_choice.ModelNotAllowed(policy=effective.label, model=str(spec))
    return spec, values


def find_named_chat(name: str, *, user: User) -> Chat:
    """Return the user's chat with this name. Raises `ModelNotFound` and `TeamInChat`."""
    try:
        chat = access.get_chat(user=user, chat_id=uuid.UUID(name.removeprefix(CHAT)))
    except (ValueError, NotFound):
        raise ModelNotFound(model=name) from None
    if chat.team_id is not None:
        raise TeamInChat
    return chat


def select_nameable_policies(user: User) -> QuerySet[ContextPolicy]:
    """Return the policies that a user may name.

    Users who can edit policies may name all of them. Others may name those assigned to them, to
    their groups, or to everyone.
    """
    usable = ContextPolicy.objects.filter(retired=False, current__isnull=False)
    if user.has_perm(EDITS_POLICIES):
        return usable.order_by("slug")
    groups = user.groups.values("pk")
    mine = Q(assignments__user=user) | Q(assignments__group__in=groups)
    return (
        usable.filter(mine | Q(assignments__level="instance"), assignments__chat_id=None)
        .distinct()
        .order_by("slug")
    )


def choose_policy_model(policy: ContextPolicy, *, user: User) -> ModelSpec | None:
    """Return the model for a policy: the default model, or the first one that the policy allows.

    None if it allows no usable model.
    """
    probe = Chat(owner_id=user.pk, policy=policy)
    specs = sorted(list_usable_models(), key=lambda spec: not spec.is_default)
    return next((spec for spec in specs if resolve_model_window(probe, spec) is not None), None)


def list_usable_models() -> list[ModelSpec]:
    """Return the enabled models of enabled providers."""
    return [spec for spec in lifecycle.load_enabled_models() if spec.provider_name]


def check_tools(model: ModelSpec, tools: Any) -> None:
    """Raise `InvalidRequest` if the request has tools and the model does not support them."""
    if tools and not model.supports_tools:
        raise InvalidRequest(
            "This model does not support tools. Leave them out, or choose another model.",
            param="tools",
            code="unsupported_parameter",
        )


def choose_with_key_policy(
    chat: Chat, *, named: bool, default: ModelSpec | None = None
) -> model_choice.ChosenModel:
    """Return the model and the effective policy of a chat that a request opens.

    If the key's policy conflicts with the limits of other policies, only the other policies apply,
    and `chat.policy` is set to None without saving the chat. For example, *Coding agents* reserves
    16,000 tokens, although the request did not ask for them. A policy that the request names is not
    replaced. Raises the errors of `model_choice.choose_chat_model`.
    """
    try:
        return model_choice.choose_chat_model(chat=chat, default=default)
    except model_choice.PolicyRefused:
        if named or chat.policy is None:
            raise
    chat.policy = None
    return model_choice.choose_chat_model(chat=chat, default=default)


def list_gateway_models(*, user: User, policy: ContextPolicy | None = None) -> list[ListedModel]:
    """Return the models, policies and embedding models that a user may name.

    `policy` is the policy of the API key, which applies unless a request names another one.
    Policies that work with no model are left out.
    """
    probes = [Chat(owner_id=user.pk, policy=policy), Chat(owner_id=user.pk)]
    entries = [
        ListedModel(spec.slug, window if spec.window or window < UNBOUNDED else None, spec.provider)
        for spec in list_usable_models()
        if (window := find_first_window(probes, spec)) is not None
    ]
    for each in select_nameable_policies(user):
        model = choose_policy_model(each, user=user)
        under = Chat(owner_id=user.pk, policy=each)
        window = resolve_model_window(under, model) if model else None
        if window is not None:
            entries.append(ListedModel(POLICY + each.slug, window, "policy"))
    # A model that supports both is listed once.
    known = {entry.name for entry in entries}
    return entries + [
        each for each in list_nameable_embedding_models(user=user) if each.name not in known
    ]


def find_model_entry(name: str, *, user: User, policy: ContextPolicy | None) -> ListedModel:
    """Return the model list entry for a name in a request. The entry keeps this name.

    Raises `ModelNotFound` and `TeamInChat`.
    """
    entries = {entry.name: entry for entry in list_gateway_models(user=user, policy=policy)}
    if name in entries:
        return entries[name]
    with suppress(ModelNotFound):
        meant = resolve_model_name(name, user=user)
        if meant.chat is not None:
            model = meant.chat.model or next(iter(list_usable_models()), None)
            window = resolve_model_window(meant.chat, model) if model else None
            return ListedModel(name, window, "chat")
        if meant.model is not None and meant.model.slug in entries:
            return replace(entries[meant.model.slug], name=name)
    try:
        spec, _ = find_embedding_model(name, user=user)
    except (MakesNoEmbeddings, model_choice.PolicyRefused, model_choice.ModelNotAllowed):
        raise ModelNotFound(model=name) from None
    return ListedModel(name, spec.window, spec.provider)


def list_nameable_embedding_models(*, user: User) -> list[ListedModel]:
    """Return the embedding models that a user may name, ordered by slug."""
    entries = []
    for slug in ModelSpec.objects.filter(embeds=True).values_list("slug", flat=True):
        with suppress(ModelNotFound, model_choice.PolicyRefused, model_choice.ModelNotAllowed):
            spec, _ = find_embedding_model(slug, user=user)
            entries.append(ListedModel(spec.slug, spec.window, spec.provider))
    return entries


def find_first_window(probes: Sequence[Chat], model: ModelSpec) -> int | None:
    """Return the maximum prompt tokens under the first policy that works; None if none works."""
    found = (resolve_model_window(probe, model) for probe in probes)
    return next((window for window in found if window is not None), None)


def resolve_model_window(probe: Chat, model: ModelSpec) -> int | None:
    """Return the maximum prompt tokens of a model under the policy.

    None if the policy does not allow the model or does not work with it.
    """
    try:
        effective = model_choice.resolve_effective_policy(chat=probe, model=model)
    except model_choice.PolicyRefused:
        return None
    values = resolution.load_policy_values(effective)
    if values.allowed_models is not None and model.slug not in values.allowed_models:
        return None
    return compute_prompt_limit(values, model_window=model.window)
