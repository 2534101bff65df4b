"""The roster of a team: one version with its members."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Agent, Chat, Round, TeamVersion
from contextpolicy.engine.team import rounds as engine
from contextpolicy.engine.team.team_view import fold_member_name


class TeamGone(Refusal):
    """The chat's team no longer exists or has no agent that can reply. Choose another or none."""

    code = "team_gone"
    status = 409
    sentence = gettext_noop(
        "This chat’s team no longer exists. Choose another team, or none, for this chat."
    )


@dataclass(frozen=True, slots=True)
class Roster:
    """A version of a team with its members."""

    version: TeamVersion
    agents: tuple[Agent, ...]

    @property
    def members(self) -> tuple[engine.Member, ...]:
        return tuple(
            engine.Member(a.role_id, a.name, a.type == Agent.Type.HUMAN, a.rests)
            for a in self.agents
        )

    @property
    def rules(self) -> engine.Rules:
        version = self.version
        routing: Any = version.routing
        return engine.Rules(
            routing=routing,
            hop_limit=version.hop_limit,
            token_limit=version.token_limit,
            seconds_limit=version.seconds_limit,
            goes_on_after_failure=version.goes_on_after_failure,
        )

    def agent(self, role_id: str) -> Agent | None:
        return next((agent for agent in self.agents if agent.role_id == role_id), None)

    def names(self, role_ids: Sequence[str]) -> list[str]:
        """Return the names of the roles in the given order. Unknown roles are left out."""
        found = (self.agent(role_id) for role_id in role_ids)
        return [agent.name for agent in found if agent is not None]


class UncalledNames(NamedTuple):
    """Names in a round that called no agent, by reason: unknown name or inactive member."""

    unknown: list[str]
    inactive_agents: list[str]
    inactive_people: list[str]

    @property
    def inactive(self) -> list[str]:
        return self.inactive_agents + self.inactive_people


def split_uncalled_names(made: Round, *, roster: Roster) -> UncalledNames:
    """Group by reason the names in a round that called no agent. `roster`: the round's own.

    Members that were added as inactive since the round started count as inactive too, because the
    user's messages call the agents of the current version.
    """
    names = dict.fromkeys(made.unknown)
    known = {fold_member_name(agent.name): agent for agent in roster.agents}
    if any(fold_member_name(name) not in known for name in names):
        current = select_current_version(made.branch.chat)
        added = Agent.objects.filter(version__in=current, rests=True)
        known = {fold_member_name(agent.name): agent for agent in added} | known
    found = UncalledNames([], [], [])
    for name in names:
        agent = known.get(fold_member_name(name))
        if agent is None:
            found.unknown.append(name)
        elif agent.type == Agent.Type.HUMAN:
            found.inactive_people.append(name)
        else:
            found.inactive_agents.append(name)
    return found


def load_roster(version: TeamVersion) -> Roster:
    agents = version.agents.select_related("model", "policy__current").order_by("place")
    return Roster(version, tuple(agents))


def load_current_roster(chat: Chat) -> Roster:
    """Return the current version of a chat's team. Raises `TeamGone`."""
    version = TeamVersion.objects.filter(
        team=chat.team_id, pk__in=select_current_version(chat)
    ).first()
    if version is None:
        raise TeamGone
    return load_roster(version)


def select_current_version(chat: Chat) -> QuerySet[Any, Any]:
    """Return a subquery for the id of the current version of a chat's team."""
    return Chat.objects.filter(pk=chat.pk).values("team__current")
