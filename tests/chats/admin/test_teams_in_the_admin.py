"""Teams in the administration: numbers and names, no messages, two actions with confirmation."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chats.ground.refusals import NotFound
from chats.models import Chat, Team
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft, TeamDraft
from contextpolicy.models import AuditEvent
from contextpolicy.roles import AUDITOR, OPERATOR, OWNER, POLICY_ADMIN, USER
from tests.contextpolicy.pages import Page, opened
from tests.contextpolicy.people import person, signed_in
from tests.support.admin_actions import ActionPage, list_actions, run_list_action

pytestmark = pytest.mark.django_db

LIST = "/admin/chats/team/"
Make = Callable[..., Team]


@pytest.fixture
def paula() -> User:
    """Paula, a policy administrator."""
    return person("paula", POLICY_ADMIN)


@pytest.fixture
def browser(paula: User) -> Client:
    """Paula's browser."""
    return signed_in(paula)


@pytest.fixture
def make(alice: User, paula: User, now: datetime) -> Make:
    """Create a team of Alice, or a shared team with `shared`."""

    def making(name: str, *, shared: bool = False) -> Team:
        agents = [
            AgentDraft(name="Planner", instruction="canary-instruction"),
            AgentDraft(name="Critic", instruction_file_text="canary-file", rests=True),
        ]
        draft = TeamDraft(name=name, agents=agents, task="canary-task", hop_limit=5)
        owner = paula if shared else alice
        return rosters.create_team(user=owner, draft=draft, shared=shared, now=now).team

    return making


def page_of(client: Client, team: Team) -> Page:
    """Return the page of one team."""
    return opened(client, reverse("admin:chats_team_change", args=[team.pk]))


def act(client: Client, action: str, *keys: object, **more: str) -> ActionPage:
    """Run an action on teams and return the next page."""
    return run_list_action(client, action, *keys, where=LIST, **more)


def listed(client: Client, query: str = "") -> list[str]:
    """Return the names in the list."""
    rows = client.get(LIST + query).context["cl"].result_list
    return sorted(team.name for team in rows)


def test_the_list_says_whose_how_large_and_in_how_many_chats(
    browser: Client, make: Make, chat: Chat, alice: User
) -> None:
    team = make("Hers")
    make("Ours", shared=True)
    chat.team = team
    chat.save()
    row = next(t for t in browser.get(LIST).context["cl"].result_list if t.pk == team.pk)
    assert (row.agent_count, row.chat_count) == (2, 1)
    words = opened(browser, LIST).words
    for word in ("Own team", "Ours", alice.username, "shared", "Last change"):
        assert word in words
    assert "canary" not in words
    assert "Hers" not in words


def test_the_list_takes_as_many_statements_for_many_teams(browser: Client, make: Make) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as heard:
            browser.get(LIST)
        return len(heard)

    make("First")
    few = statements()
    for number in range(8):
        make(f"Team {number}", shared=number % 2 == 0)
    assert statements() == few


def test_teams_are_found_by_name_owner_and_kind(
    browser: Client, make: Make, alice: User, now: datetime
) -> None:
    make("Hers")
    make("Ours", shared=True)
    gone = make("Gone")
    rosters.delete_team(user=alice, team_id=gone.pk, now=now)
    assert listed(browser, "?q=our") == ["Ours"]
    assert listed(browser, "?q=hers") == []
    assert listed(browser, f"?q={alice.username}") == ["Gone", "Hers"]
    assert listed(browser, "?kind=shared") == ["Ours"]
    assert listed(browser, "?kind=own") == ["Hers"]
    assert listed(browser, "?kind=deleted") == ["Gone"]
    assert listed(browser) == ["Gone", "Hers", "Ours"]


@pytest.mark.parametrize("role", [POLICY_ADMIN, AUDITOR])
def test_a_persons_own_team_is_shown_without_its_names_and_words(
    role: str, make: Make, alice: User, now: datetime
) -> None:
    browser = signed_in(person("somebody", role))
    team = make("Hers")
    draft = TeamDraft(name="Hers, changed", agents=[AgentDraft(name="Editor")])
    rosters.update_team(user=alice, team_id=team.pk, draft=draft, now=now)
    address = reverse("admin:chats_team_change", args=[team.pk])
    html = browser.get(address).content.decode() + browser.get(LIST).content.decode()
    for word in ("Own team", "Agent 1", 'data-note="owner-only"', alice.username):
        assert word in html
    rosters.delete_team(user=alice, team_id=team.pk, now=now)
    html += browser.get(address).content.decode()
    for word in ("canary", "Hers", "Editor", "editor", "Planner", "planner"):
        assert word not in html


def test_own_teams_are_not_sorted_by_their_names(browser: Client, make: Make) -> None:
    for name in ("Beta", "Alpha", "Gamma"):
        make(name)
    make("Ours", shared=True)
    orders = [browser.get(f"{LIST}?o={sign}1").context["cl"].result_list for sign in ("", "-")]
    own = [[team.name for team in rows if team.owner_id] for rows in orders]
    assert own[0] == own[1]


def test_a_shared_team_is_shown_with_its_words_and_a_way_to_its_page(
    browser: Client, make: Make
) -> None:
    team = make("Ours", shared=True)
    html = browser.get(reverse("admin:chats_team_change", args=[team.pk])).content.decode()
    for word in ("canary-instruction", "canary-file", "canary-task", f"/teams/{team.pk}"):
        assert word in html
    page = page_of(browser, team)
    assert page.inline == []
    assert "characters" in page_of(browser, make("Hers")).words


def test_nobody_changes_a_team_here(make: Make) -> None:
    team = make("Ours", shared=True)
    root = signed_in(User.objects.create_superuser("root"))
    address = reverse("admin:chats_team_change", args=[team.pk])
    assert root.post(address, {"deleted_at_0": "2026-01-01"}).status_code == 403
    assert root.get(f"{LIST}add/").status_code == 403
    assert root.post(f"{LIST}{team.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Team.objects.filter(pk=team.pk, deleted_at=None).exists()


@pytest.mark.parametrize(
    ("role", "status"), [(POLICY_ADMIN, 200), (AUDITOR, 200), (OPERATOR, 403), (OWNER, 403)]
)
def test_who_looks_after_policies_or_audits_sees_teams(role: str, status: int) -> None:
    client = signed_in(person("somebody", role))
    assert client.get(LIST).status_code == status


def test_charlie_sees_no_team(make: Make) -> None:
    team = make("Ours", shared=True)
    client = signed_in(person("charlie", USER))
    for address in (LIST, reverse("admin:chats_team_change", args=[team.pk])):
        assert client.get(address).status_code in {302, 403}


def test_shared_teams_are_deleted_and_brought_back_and_the_ledger_says_so(
    browser: Client, make: Make, paula: User
) -> None:
    ours, hers = make("Ours", shared=True), make("Hers")
    asked = act(browser, "delete_shared", ours.pk, hers.pk)
    assert asked.asks == ["delete_shared"]
    assert "Ours" in asked.words
    assert "Hers" not in asked.words
    ours.refresh_from_db()
    assert ours.deleted_at is None
    done = act(browser, "delete_shared", ours.pk, hers.pk, confirmed="yes")
    assert "Ours: deleted." in done.words
    assert listed(browser, "?kind=deleted") == ["Ours"]
    address = reverse("admin:chats_team_change", args=[ours.pk])
    assert 'data-note="restore-to-edit"' in browser.get(address).content.decode()
    assert "Ours: restored." in act(browser, "bring_back", ours.pk, confirmed="yes").words
    assert listed(browser, "?kind=deleted") == []
    events = AuditEvent.objects.filter(type__in=["team.deleted", "team.restored"]).order_by("seq")
    told = [(event.type, event.actor, event.data["team"]) for event in events]
    assert told == [
        ("team.deleted", f"user:{paula.pk}", str(ours.pk)),
        ("team.restored", f"user:{paula.pk}", str(ours.pk)),
    ]


def test_a_persons_deleted_team_is_that_persons_matter(
    browser: Client, make: Make, alice: User, now: datetime
) -> None:
    hers = make("Hers")
    rosters.delete_team(user=alice, team_id=hers.pk, now=now)
    act(browser, "bring_back", hers.pk, confirmed="yes")
    assert listed(browser, "?kind=deleted") == ["Hers"]
    with pytest.raises(NotFound):
        rosters.restore_team(user=User.objects.get(username="paula"), team_id=hers.pk, now=now)


def test_an_auditor_gets_no_actions(make: Make, alice: User, now: datetime) -> None:
    ours = make("Ours", shared=True)
    auditor = signed_in(person("ada", AUDITOR))
    assert list_actions(auditor, LIST) == set()
    act(auditor, "delete_shared", ours.pk, confirmed="yes")
    ours.refresh_from_db()
    assert ours.deleted_at is None
    with pytest.raises(rosters.NotYours):
        rosters.restore_team(user=alice, team_id=ours.pk, now=now)


@pytest.mark.requirement("S3.12", by="admin")
def test_the_cap_of_a_team_and_the_windows_of_its_agents_are_read_here(
    browser: Client, paula: User, now: datetime
) -> None:
    agents = [AgentDraft(name="Planner", window_size=7), AgentDraft(name="Critic", window_size=9)]
    draft = TeamDraft(name="Capped", agents=agents, message_cap=40)
    team = rosters.create_team(user=paula, draft=draft, shared=True, now=now).team
    words = page_of(browser, team).words
    assert "Cap" in words
    assert " 40 " in words
    assert " 7 " in words
    assert " 9 " in words
