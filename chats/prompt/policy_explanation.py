"""Explains the effective policy for a user, one of their chats, an agent and a model."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import F
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Agent, Chat
from chats.prompt import model_choice
from contextpolicy import resolution
from contextpolicy.explanation import ExplainedField
from contextpolicy.models import ModelSpec
from contextpolicy.roles import find_person_by_name


class NotThere(Refusal):
    """The user, chat, agent or model in a parameter does not exist."""

    code = "not_there"
    status = 404
    sentence = gettext_noop("There is no {what}. {do}")


@dataclass(frozen=True, slots=True)
class PersonViewpoint:
    """A user, optionally with one of their chats, an agent of the chat, and a model."""

    person: User
    chat: Chat | None
    agent: Agent | None
    model: ModelSpec | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The effective policy of a user, chat, agent and model, explained field by field."""

    viewpoint: PersonViewpoint
    fields: Sequence[ExplainedField]


def find_viewpoint_by_names(
    *, username: str, chat_id: uuid.UUID | None, role_id: str, model: str
) -> PersonViewpoint:
    """Return the viewpoint of a user, named by the sign-in name, with an optional chat.

    `role_id`: the agent's; empty: no agent. `model`: its slug; empty: the model that would reply.
    Raises `NotThere`.
    """
    person = find_person_by_name(username)
    if person is None:
        raise NotThere(
            what=gettext_lazy("user with this name"),
            do=gettext_lazy("Enter the user’s sign-in name."),
        )
    chat = None
    if chat_id is not None:
        chat = Chat.objects.filter(pk=chat_id, owner=person).select_related("model").first()
        if chat is None:
            raise NotThere(
                what=gettext_lazy("chat with this ID for this user"),
                do=gettext_lazy("Leave the field empty, or look up the ID."),
            )
    return resolve_viewpoint(person, chat=chat, role_id=role_id, model=model)


def resolve_viewpoint(
    person: User, *, chat: Chat | None, role_id: str = "", model: str = ""
) -> PersonViewpoint:
    """Return the viewpoint with its agent and model. Raises `NotThere`.

    `model`: the slug. If it is empty, the viewpoint has the model that would reply, or None.
    """
    agent = None
    if role_id:
        team = chat.team_id if chat else None
        agents = Agent.objects.filter(version__team=team, version__team__current=F("version"))
        agent = agents.select_related("policy__current", "model").filter(role_id=role_id).first()
        if team is None or agent is None:
            raise NotThere(
                what=gettext_lazy("agent with this role in this chat’s team"),
                do=gettext_lazy("Enter a chat with a team, and the ID of one of its roles."),
            )
    if model:
        spec = ModelSpec.objects.filter(slug=model).first()
        if spec is None:
            raise NotThere(
                what=gettext_lazy("model with this name"),
                do=gettext_lazy("Choose a configured model."),
            )
    else:
        own = agent.model if agent else None
        spec = own or (chat.model if chat else None)
        spec = spec or ModelSpec.objects.filter(is_default=True, enabled=True).first()
    return PersonViewpoint(person, chat, agent, spec)


def explain_for(viewpoint: PersonViewpoint) -> Explanation:
    """Explain every field of a viewpoint's effective policy. Raises `PolicyRefused`."""
    agent, chat = viewpoint.agent, viewpoint.chat
    asked = model_choice.get_client_policy(chat) if chat else None
    layers = resolution.list_chat_layers(
        user_id=viewpoint.person.pk,
        chat_id=chat.pk if chat else None,
        agent_policy=model_choice.get_agent_policy(agent) if agent else asked,
    )
    return Explanation(viewpoint, model_choice.explain_policy_layers(layers, model=viewpoint.model))
