"""Rounds of a team on the chat page: the newest round, continuing it, and human roles."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.ground.refusals import NotFound
from chats.models import Agent, ApiKey, Chat, Round, Turn
from chats.record.locking import lock_chat_for_writing
from chats.teams import conversation, team_drafts
from chats.turns import round_again, rounds
from chats.turns.roster import Roster, TeamGone, load_current_roster
from chats.turns.start import check_turn_limits, get_active_branch
from contextpolicy.engine.compose.agent_layouts import is_text_form
from contextpolicy.engine.team.team import cut_team_task
from contextpolicy.engine.team.team_view import Viewer, build_team_instructions


@transaction.atomic
def continue_round(
    *, user: AbstractBaseUser, chat: Chat, now: datetime, api_key: ApiKey | None = None
) -> Turn:
    """Continue the newest round of a chat with fresh limits; `api_key` identifies a client.

    Raises `RoundGoesOn` if no round ended early, the other refusals of `resume_round`, and the
    errors of `turns.start.check_turn_limits`.
    """
    chat = lock_chat_for_writing(chat.pk)
    branch = get_active_branch(chat)
    branch.chat = chat
    check_turn_limits(user=user, chat=chat, api_key=api_key, choice=None, now=now)
    actor = f"user:{user.pk}"
    return round_again.resume_round(chat=chat, branch=branch, actor=actor, now=now, api_key=api_key)


def find_newest_chat_round(chat: Chat) -> Round | None:
    """Return the newest round on the chat's active branch; None before the first one."""
    return rounds.find_newest_branch_round(get_active_branch(chat))


@dataclass(frozen=True, slots=True)
class Seat:
    """A human role of a team, played by the chat's owner.

    `is_waited_for`: a round waits for a message in its name.
    """

    role_id: str
    name: str
    is_waited_for: bool


def find_roster(chat: Chat) -> Roster | None:
    """Return the current version of a chat's team; None if it has none or the team was deleted."""
    if chat.team_id is None:
        return None
    try:
        return load_current_roster(chat)
    except TeamGone:
        return None


def list_seats(chat: Chat, *, roster: Roster) -> list[Seat]:
    """Return the active human roles of a chat's team, in whose name the owner can write."""
    if not any(agent.type == Agent.Type.HUMAN and not agent.rests for agent in roster.agents):
        return []
    made = find_newest_chat_round(chat)
    waits = made is not None and made.status == Round.Status.WAITING
    called = made.queue[0] if made and waits and made.queue else ""
    return [
        Seat(agent.role_id, agent.name, agent.role_id == called)
        for agent in roster.agents
        if agent.type == Agent.Type.HUMAN and not agent.rests
    ]


def find_team_agent(chat: Chat, *, role_id: str) -> Agent:
    """Return a member of the chat's team. Raises `NotFound` and `TeamGone`."""
    if chat.team_id is None:
        raise NotFound
    agent = load_current_roster(chat).agent(role_id)
    if agent is None:
        raise NotFound
    return agent


def build_requested_agent(agent: Agent) -> conversation.RequestedAgent:
    """Convert a member to a requested agent, with its window and instructions."""
    return conversation.RequestedAgent(
        agent_id=agent.role_id,
        agent_type=agent.agent_type,
        window_size=agent.window_size,
        system_instruction=agent.instruction or None,
        instruction_file_text=agent.instruction_file_text or None,
    )


def preview_agent_texts(
    agent: team_drafts.AgentDraft, *, draft: team_drafts.TeamDraft
) -> list[str]:
    """Return the texts that precede the messages in a draft agent's prompt.

    Empty for a human member.
    """
    if agent.type != Agent.Type.AI:
        return []
    others = (mate for mate in draft.agents if mate is not agent and not mate.rests)
    mates = tuple(mate.name for mate in others if mate.name)
    humans = {mate.name for mate in draft.agents if mate.type == Agent.Type.HUMAN}
    viewer = Viewer(role_id=agent.role_id, name=agent.name or "…", mates=mates)
    task = cut_team_task(draft.task)
    is_text = is_text_form(agent.prompt_form)
    told = [
        agent.instruction,
        agent.instruction_file_text,
        build_team_instructions(viewer, humans=humans, is_text=is_text),
        task if is_text or not task else f"The team's task:\n{task}",
    ]
    return [text for text in told if text]
