"""Pages as Alice and Charlie see them, and chats with something in them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.compaction.sections import parse_sections
from chats.models import Chat, Compaction, Message, Team, Turn
from chats.providers.base import Finished, TextDelta
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft
from chats.turns.start import start_turn
from contextpolicy.models import EffectivePolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.chat_pages import set_sign_in_time
from tests.support.compactions_on_pages import SUMMARY_TEXT, Fold, Policy, Talk
from tests.support.team_rounds import Made, Plays, TeamPlay, Work, allow_policy_changes, draft_team


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def charlies_page(charlie: User) -> Client:
    """Charlie's browser."""
    client = Client()
    client.force_login(charlie)
    return client


@pytest.fixture
def say(alice: User, chat: Chat, now: datetime) -> Callable[[str], Turn]:
    """Send a message in Alice's chat; the reply is not begun."""
    return lambda text: start_turn(user=alice, chat=chat, text=text, now=now).turn


@pytest.fixture
def talk(say: Callable[[str], Turn], work: Callable[..., Any]) -> Callable[..., Turn]:
    """Send a message and let the model answer."""

    def talking(text: str, answer: str = "An answer.", *, finish: Any = "stop") -> Turn:
        turn = say(text)
        work(turn, [TextDelta(answer), Finished(finish)])
        return turn

    return talking


@pytest.fixture
def summary(chat: Chat, now: datetime) -> Callable[..., Compaction]:
    """Create an active summary (or a row with another `status`) for a range of the chat."""

    def summarise(to_seq: int, **fields: Any) -> Compaction:
        policy, _ = EffectivePolicy.objects.get_or_create(
            digest="d" * 64, defaults={"values": {}, "sources": {}}
        )
        fields = {
            "kind": "summary",
            "status": "published",
            "text": "- Eva has **ticket 48213**.",
            "published_at": now,
            "from_seq": 1,
            "source_count": to_seq,
            **fields,
        }
        assert chat.active_branch is not None
        row = Compaction.objects.create(
            branch=chat.active_branch,
            to_seq=to_seq,
            trigger="auto",
            effective_policy=policy,
            tokens_before=12_418,
            tokens_after=604,
            created_at=now,
            **fields,
        )
        if row.status == "published":
            chat.active_branch.refresh_from_db()
            chat.active_branch.active_compaction = row
            chat.active_branch.save()
        return row

    return summarise


@pytest.fixture
def newest(chat: Chat) -> Callable[[], Message]:
    """The newest message of the chat."""
    return lambda: Message.objects.filter(branch__chat=chat).order_by("accepted").reverse()[0]


@pytest.fixture
def policy(now: datetime) -> Policy:
    """A policy that writes summaries, with these values."""

    def setting(**values: Any) -> None:
        values = {"strategy": "dynamic_summary", **values}
        row = create_policy(slug="p", name="Support", values=values, actor="system", now=now)
        assign_policy(policy=row, level="instance", actor="system", now=now)

    return setting


@pytest.fixture
def folded(chat: Chat, talk: Talk, summary: Fold) -> Compaction:
    """Two turns; an active summary covers the first."""
    talk("the first question")
    talk("the second question")
    sections = parse_sections(SUMMARY_TEXT)
    sections[0]["bullets"][1]["unsupported"] = True
    return summary(2, text=SUMMARY_TEXT, sections=sections, summary_tokens=9)


@pytest.fixture
def draft(chat: Chat, talk: Talk, summary: Fold) -> Compaction:
    """A draft that waits for approval."""
    talk("the first question")
    talk("the second question")
    return summary(
        2, status="prepared", needs_approval=True, published_at=None, text="- The draft."
    )


@pytest.fixture
def made(alice: User, demo_model: ModelSpec, now: datetime) -> Made:
    """Create a team of Alice, or one for all users."""

    def make(*agents: str | AgentDraft, shared: bool = False, **values: Any) -> Team:
        user = allow_policy_changes(alice) if shared else alice
        given = [
            AgentDraft(name=each, instruction=f"Act as the {each.lower()}.", window_size=12)
            if isinstance(each, str)
            else each
            for each in agents
        ]
        asked = draft_team(*given, **values)
        team = rosters.create_team(user=user, draft=asked, shared=shared, now=now).team
        alice.user_permissions.clear()
        return team

    return make


@pytest.fixture
def play(made: Made, alice: User, chat: Chat, work: Work, now: datetime) -> Plays:
    """Lets a new team of these agents reply in Alice's chat."""

    def make(*agents: str | AgentDraft, **values: Any) -> TeamPlay:
        rosters.set_chat_team(user=alice, chat=chat, team_id=made(*agents, **values).pk, now=now)
        chat.refresh_from_db()
        return TeamPlay(chat, alice, work)

    return make


@pytest.fixture
def fresh(page: Client) -> Client:
    """Alice, who signed in just now."""
    set_sign_in_time(page, timezone.now())
    return page
