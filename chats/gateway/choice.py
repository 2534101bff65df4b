"""Finds what a request means by its model: a model, a policy or a chat."""

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from chats.actions import lifecycle
from chats.compaction.people.rights import EDITS_POLICIES
from chats.gateway.refused import (
    InvalidRequest,
    MakesNoEmbeddings,
    ModelNotFound,
    TeamInChat,
)
from chats.ground.refusals import NotFound
from chats.models import Chat, ProviderAccount
from chats.prompt import model_choice
from chats.record import access
from contextpolicy import resolution
from contextpolicy.engine.budget import prompt_limit
from contextpolicy.models import ContextPolicy, ModelSpec

POLICY, CHAT = "policy:", "chat:"
# A larger budget is no limit: only the window of the model is, if it is known.
UNBOUNDED = 500_000


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The meaning of the name: a model, a policy, or a chat of the owner's; None: as usual."""

    model: ModelSpec | None = None
    policy: ContextPolicy | None = None
    chat: Chat | None = None


@dataclass(frozen=True, slots=True)
class ListedModel:
    """An entry of the list of models: its name, and the tokens that a prompt may have if known."""

    name: str
    window: int | None
    owner: str


def wanted(name: str, *, user: User) -> NamedModel:
    """Return what a name means to a person. Raises `ModelNotFound` and `TeamInChat`."""
    if name.startswith(CHAT):
        return NamedModel(chat=chat_named(name, user=user))
    if name.startswith(POLICY):
        policy = policies_for(user).filter(slug=name.removeprefix(POLICY)).first()
        if policy is None:
            raise ModelNotFound(model=name)
        model = model_under(policy, user=user)
        if model is None:
            raise ModelNotFound(model=name)
        return NamedModel(policy=policy, model=model)
    known = {spec.slug: spec for spec in usable_models()}
    named = [spec for spec in known.values() if spec.name == name]
    spec = known.get(name) or (named[0] if len(named) == 1 else None)
    if spec is None:
        raise ModelNotFound(model=name)
    return NamedModel(model=spec)


def embedding_model(name: str, *, user: User) -> ModelSpec:
    """Return the model that makes embeddings for a person's program.

    Raises `ModelNotFound`, `MakesNoEmbeddings`, `PolicyRefused` and `ModelNotAllowed`.
    """
    # Anthropic's interface has no embeddings.
    accounts = ProviderAccount.objects.filter(enabled=True, kind="openai").values("slug")
    specs = list(ModelSpec.objects.filter(embeds=True, provider__in=accounts))
    named = [spec for spec in specs if spec.name == name]
    spec = next((spec for spec in specs if spec.slug == name), None)
    spec = spec or (named[0] if len(named) == 1 else None)
    if spec is None:
        if any(name in (other.slug, other.name) for other in usable_models()):
            raise MakesNoEmbeddings(model=name)
        raise ModelNotFound(model=name)
    effective = model_choice.effective_policy(chat=Chat(owner_id=user.pk), model=None)
    allowed = resolution.values_of(effective).allowed_models
    if allowed is not None and spec.slug not in allowed:
        raise model_choice.ModelNotAllowed(policy=effective.label, model=str(spec))
    return spec


def chat_named(name: str, *, user: User) -> Chat:
    """Return the person's chat of this name. Raises `ModelNotFound` and `TeamInChat`."""
    try:
        chat = access.chat_for(user=user, chat_id=uuid.UUID(name.removeprefix(CHAT)))
    except (ValueError, NotFound):
        raise ModelNotFound(model=name) from None
    if chat.team_id is not None:
        raise TeamInChat
    return chat


def policies_for(user: User) -> QuerySet[ContextPolicy]:
    """Return the policies that a person may name.

    Who edits policies may name each; anybody else those that are assigned to them, a group of
    theirs, or everybody.
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


def model_under(policy: ContextPolicy, *, user: User) -> ModelSpec | None:
    """Return the model that replies under a policy: the usual one, or the first it allows."""
    probe = Chat(owner_id=user.pk, policy=policy)
    specs = sorted(usable_models(), key=lambda spec: not spec.is_default)
    return next((spec for spec in specs if window_of(probe, spec) is not None), None)


def usable_models() -> list[ModelSpec]:
    """Return the models that are switched on, and whose provider is."""
    return [spec for spec in lifecycle.enabled_models() if spec.provider_name]


def check_tools(model: ModelSpec, tools: Any) -> None:
    """Raise `InvalidRequest` for tools that a model takes none of."""
    if tools and not model.supports_tools:
        raise InvalidRequest(
            "This model takes no tools. Leave them out, or choose another model.",
            param="tools",
            code="unsupported_parameter",
        )


def listed(*, user: User, policy: ContextPolicy | None = None) -> list[ListedModel]:
    """Return the models that a person's programs may name, the policies, and what embeds texts.

    `policy` is that of the key, under which a model is used without naming another one. A policy
    that cannot work with any model is not listed.
    """
    probe = Chat(owner_id=user.pk, policy=policy)
    entries = [
        ListedModel(spec.slug, window if spec.window or window < UNBOUNDED else None, spec.provider)
        for spec in usable_models()
        if (window := window_of(probe, spec)) is not None
    ]
    for each in policies_for(user):
        model = model_under(each, user=user)
        under = Chat(owner_id=user.pk, policy=each)
        window = window_of(under, model) if model else None
        if window is not None:
            entries.append(ListedModel(POLICY + each.slug, window, "policy"))
    # A model may be good for both, and is listed once.
    known = {entry.name for entry in entries}
    return entries + [each for each in embedding_models(user=user) if each.name not in known]


def entry_of(name: str, *, user: User, policy: ContextPolicy | None) -> ListedModel:
    """Return the entry of a name that a request may have, under that name.

    Raises `ModelNotFound` and `TeamInChat`.
    """
    entries = {entry.name: entry for entry in listed(user=user, policy=policy)}
    if name in entries:
        return entries[name]
    with suppress(ModelNotFound):
        meant = wanted(name, user=user)
        if meant.chat is not None:
            model = meant.chat.model or next(iter(usable_models()), None)
            window = window_of(meant.chat, model) if model else None
            return ListedModel(name, window, "chat")
        if meant.model is not None and meant.model.slug in entries:
            return replace(entries[meant.model.slug], name=name)
    try:
        spec = embedding_model(name, user=user)
    except (MakesNoEmbeddings, model_choice.PolicyRefused, model_choice.ModelNotAllowed):
        raise ModelNotFound(model=name) from None
    return ListedModel(name, spec.window, spec.provider)


def embedding_models(*, user: User) -> list[ListedModel]:
    """Return the models that a person's programs may ask for embeddings, by their short names."""
    entries = []
    for slug in ModelSpec.objects.filter(embeds=True).values_list("slug", flat=True):
        with suppress(ModelNotFound, model_choice.PolicyRefused, model_choice.ModelNotAllowed):
            spec = embedding_model(slug, user=user)
            entries.append(ListedModel(spec.slug, spec.window, spec.provider))
    return entries


def window_of(probe: Chat, model: ModelSpec) -> int | None:
    """Return the tokens that a prompt of a model may have under the policy.

    None: the policy does not allow the model, or cannot work with it.
    """
    try:
        effective = model_choice.effective_policy(chat=probe, model=model)
    except model_choice.PolicyRefused:
        return None
    values = resolution.values_of(effective)
    if values.allowed_models is not None and model.slug not in values.allowed_models:
        return None
    return prompt_limit(values, model_window=model.window)
