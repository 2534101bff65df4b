"""Rounds of a team: a draft of it, and a chat whose replies the test writes."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Permission, User
from django.utils import timezone

from chats.models import Chat, Message, Round, Team, Turn
from chats.providers.base import Finished, TextDelta, UsageReport
from chats.teams.team_drafts import AgentDraft, TeamDraft
from chats.turns import rounds
from chats.turns.start import start_turn

Work = Callable[..., Any]
Teams = Callable[..., Team]
Made = Callable[..., Team]


def draft_team(*agents: str | AgentDraft, **values: Any) -> TeamDraft:
    """Return a team of agents. Some are given only by name."""
    given = [
        AgentDraft(name=each, window_size=12) if isinstance(each, str) else each for each in agents
    ]
    return TeamDraft(**{"name": "Team", **values}, agents=given)


def allow_policy_changes(user: User) -> User:
    """Give the user permission to change policies and reload it."""
    user.user_permissions.add(Permission.objects.get(codename="change_contextpolicy"))
    return User.objects.get(pk=user.pk)


def list_said(chat: Chat) -> list[tuple[str, str]]:
    """Return (speaker, text) of the chat's active branch, in order, with waiting messages last."""
    rows = Message.objects.filter(branch__chat=chat).order_by("accepted")
    return [(row.said_by, row.text) for row in rows if row.seq]


def script_reply(text: str) -> list[Any]:
    """Return the script of a reply."""
    return [TextDelta(text), UsageReport(10, 5, 0, 0), Finished("stop")]


class TeamPlay:
    """A chat of a team. The test provides the reply of each agent."""

    def __init__(self, chat: Chat, user: User, work: Work) -> None:
        self.chat, self.user, self.work = chat, user, work
        self.prompts: list[list[tuple[str, str]]] = []

    @property
    def now(self) -> datetime:
        """The clock of the worker, because a round has a time limit."""
        return timezone.now()

    def ask(self, text: str = "Plan a trip.", *, as_role: str = "") -> Turn:
        self.chat.refresh_from_db()
        now = self.now
        return start_turn(user=self.user, chat=self.chat, text=text, now=now, as_role=as_role).turn

    def queued(self) -> Turn | None:
        turns = Turn.objects.filter(branch__chat=self.chat, status=Turn.Status.QUEUED)
        return turns.exclude(agent=None).order_by("accepted").first()

    def answer(self, *texts: str) -> list[str]:
        """Let the queued agents reply, one text each, and return their names."""
        names = []
        for text in texts:
            turn = self.queued()
            assert turn is not None, f"no agent is left to say {text!r}"
            assert turn.agent is not None
            names.append(turn.agent.name)
            worker = self.work(turn, script_reply(text))
            for request in worker.scripted.requests[:1]:
                self.prompts.append([(m.role, m.content) for m in request.messages])
        return names

    def round(self) -> Round:
        branch = Chat.objects.get(pk=self.chat.pk).active_branch
        assert branch is not None
        found = rounds.find_newest_branch_round(branch)
        assert found is not None
        return found


Plays = Callable[..., TeamPlay]
