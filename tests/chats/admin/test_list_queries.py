"""The number of queries of an admin list does not grow with its rows."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chats.models import Team
from contextpolicy.models import Skill, ToolServer
from contextpolicy.roles import OWNER
from tests.contextpolicy.people import person

pytestmark = pytest.mark.django_db


def add_skill(number: int) -> None:
    team = Team.objects.create(owner=None, created_at=timezone.now())
    Skill.objects.create(
        slug=f"s{number}", name=f"S{number}", text="x", team_id=team.pk, updated_at=timezone.now()
    )


def add_group(number: int) -> None:
    group = Group.objects.create(name=f"group {number}")
    group.user_set.add(person(f"member{number}", OWNER))


def add_server(number: int) -> None:
    ToolServer.objects.create(name=f"T{number}", slug=f"t{number}", url="https://t.example/")


@pytest.mark.parametrize(
    ("path", "add"),
    [
        ("contextpolicy/skill", add_skill),
        ("auth/group", add_group),
        ("contextpolicy/toolserver", add_server),
    ],
)
def test_more_rows_take_no_more_queries(
    admin_client: Client, path: str, add: Callable[[int], None]
) -> None:
    counts = []
    for numbers in (range(2), range(2, 8)):
        for number in numbers:
            add(number)
        admin_client.get(f"/admin/{path}/")
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(f"/admin/{path}/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
