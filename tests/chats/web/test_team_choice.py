"""The page that chooses who replies offers a team only if there is one."""

import re
from datetime import datetime

from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import Chat, Team
from chats.teams import rosters
from contextpolicy.models import ModelSpec
from tests.support.team_rounds import draft_team

# The choice, which has the button below it.
BUTTON, CREATE = 'name="team"', 'href="/teams/new"'


def read_choice(client: Client, chat: Chat, user: User) -> str:
    """Return the page of a chat that chooses who replies."""
    client.force_login(user)
    answer = client.get(f"/chats/{chat.pk}/team")
    assert answer.status_code == 200
    return answer.content.decode()


def test_without_a_team_the_page_shows_how_to_create_one(
    client: Client, chat: Chat, alice: User
) -> None:
    html = read_choice(client, chat, alice)
    assert BUTTON not in html
    assert CREATE in html
    assert 'id="task-title"' not in html


def test_with_a_team_the_page_offers_it(
    client: Client, chat: Chat, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    made = rosters.create_team(user=alice, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    html = read_choice(client, chat, alice)
    assert BUTTON in html
    assert CREATE not in html
    rosters.set_chat_team(user=alice, chat=chat, team_id=made.team.pk, now=timezone.now())
    rosters.delete_team(user=alice, team_id=made.team.pk, now=timezone.now())
    chat.refresh_from_db()
    html = read_choice(client, chat, alice)
    # The deleted team can still be replaced by the model.
    assert BUTTON in html
    assert CREATE not in html
    client.post(f"/chats/{chat.pk}/team", {"team": ""})
    html = read_choice(client, chat, alice)
    assert CREATE in html


def test_a_team_of_another_person_is_not_offered(
    client: Client, chat: Chat, charlie: User, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    rosters.create_team(user=charlie, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    html = read_choice(client, chat, alice)
    assert BUTTON not in html
    assert CREATE in html
    assert client.get(f"/chats/{chat.pk}/team").status_code == 200


def test_a_deleted_team_stays_chosen_until_another_choice_is_saved(
    client: Client, chat: Chat, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    made = rosters.create_team(user=alice, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    rosters.set_chat_team(user=alice, chat=chat, team_id=made.team.pk, now=now)
    rosters.delete_team(user=alice, team_id=made.team.pk, now=now)
    html = read_choice(client, chat, alice)
    [checked] = re.findall(r"<input[^>]*\bchecked\b[^>]*>", html)
    assert f'value="{made.team.pk}"' in checked
    assert f"{made.team.name} (deleted)" in html
    address = f"/chats/{chat.pk}/team"
    assert client.post(address, {"team": made.team.pk}).status_code == 302
    answer = client.post(address, {})
    assert answer.status_code == 422
    assert 'data-reason="team_missing"' in answer.content.decode()
    chat.refresh_from_db()
    assert chat.team == made.team


def test_every_team_of_a_person_can_be_chosen(
    client: Client, chat: Chat, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    made = rosters.create_team(user=alice, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    Team.objects.bulk_create(
        Team(owner=alice, current=made.team.current, created_at=now) for _ in range(100)
    )
    assert read_choice(client, chat, alice).count(BUTTON) == 102


def test_a_deleted_team_of_a_new_chat_is_not_replaced_by_the_model(
    client: Client, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    made = rosters.create_team(user=alice, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    rosters.delete_team(user=alice, team_id=made.team.pk, now=now)
    client.force_login(alice)
    answer = client.post("/chats/new", {"text": "Hello", "team": made.team.pk})
    assert answer.status_code == 404
    assert f'<option value="{made.team.pk}" selected>' in answer.content.decode()
