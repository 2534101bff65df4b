"""Explains the policy that governs a person, one of their chats, an agent and a model."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import F

from chats.ground.refusals import Refusal
from chats.models import Agent, Chat
from chats.prompt import model_choice
from contextpolicy import resolution
from contextpolicy.explanation import ExplainedField
from contextpolicy.models import ModelSpec


class NotThere(Refusal):
    """Somebody or something that was named does not exist."""

    code = "not_there"
    status = 404
    sentence = "There is no {what}. {do}"


@dataclass(frozen=True, slots=True)
class PersonViewpoint:
    """A person, perhaps in one chat, as an agent there, with a model."""

    person: User
    chat: Chat | None
    agent: Agent | None
    model: ModelSpec | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Every field of the policy of a viewpoint."""

    viewpoint: PersonViewpoint
    fields: Sequence[ExplainedField]


def viewpoint_of(
    *, username: str, chat_id: uuid.UUID | None, role_id: str, model: str
) -> PersonViewpoint:
    """Find a viewpoint by names; an empty one is left open. Raises `NotThere`."""
    person = User.objects.filter(username=username).first()
    if person is None:
        raise NotThere(what="person of that name", do="Write the name with which they sign in.")
    chat = None
    if chat_id is not None:
        chat = Chat.objects.filter(pk=chat_id, owner=person).select_related("model").first()
        if chat is None:
            raise NotThere(what="such chat of this person", do="Leave it empty, or look it up.")
    return viewpoint_in(person, chat=chat, role_id=role_id, model=model)


def viewpoint_in(
    person: User, *, chat: Chat | None, role_id: str = "", model: str = ""
) -> PersonViewpoint:
    """Find the agent and the model of a viewpoint; without a name the model that would reply.

    Raises `NotThere`.
    """
    agent = None
    if role_id:
        team = chat.team_id if chat else None
        agents = Agent.objects.filter(version__team=team, version__team__current=F("version"))
        agent = agents.select_related("policy__current", "model").filter(role_id=role_id).first()
        if team is None or agent is None:
            raise NotThere(
                what="such agent in the team of this chat",
                do="Name a chat with a team, and the id of a role in it.",
            )
    if model:
        spec = ModelSpec.objects.filter(slug=model).first()
        if spec is None:
            raise NotThere(what="such model", do="Choose one of those that are set up.")
    else:
        own = agent.model if agent else None
        spec = own or (chat.model if chat else None)
        spec = spec or ModelSpec.objects.filter(is_default=True, enabled=True).first()
    return PersonViewpoint(person, chat, agent, spec)


def explain_for(viewpoint: PersonViewpoint) -> Explanation:
    """Explain every field of the policy of a viewpoint. Raises `PolicyRefused`."""
    agent, chat = viewpoint.agent, viewpoint.chat
    asked = model_choice.asked_policy(chat) if chat else None
    layers = resolution.layers_for(
        user_id=viewpoint.person.pk,
        chat_id=chat.pk if chat else None,
        agent_policy=agent.policy if agent else asked,
    )
    return Explanation(viewpoint, model_choice.explained(layers, model=viewpoint.model))
