"""The applicable assignments are the same, whether read for many people or for one reply."""

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from contextpolicy import statements
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

pytestmark = pytest.mark.django_db


def test_both_ways_find_the_assignments_of_a_person_and_their_groups(now: datetime) -> None:
    alice, bob = (User.objects.create_user(name) for name in ("alice", "bob"))
    team = Group.objects.create(name="team")
    alice.groups.add(team)
    targets: dict[str, dict[str, Any]] = {
        "everybody": {},
        "group": {"group": team},
        "user": {"user": bob},
    }
    for level, target in targets.items():
        policy = create_policy(slug=level, name=level, values={}, actor="system", now=now)
        named = "instance" if level == "everybody" else level
        assign_policy(policy=policy, level=named, actor="system", now=now, **target)

    for person, slugs in ((alice, {"everybody", "group"}), (bob, {"everybody", "user"})):
        groups = list(person.groups.values_list("pk", flat=True))
        read = list(statements.select_assignments(user=person.pk, groups=groups, chat=None))
        compiled = statements.ASSIGNMENTS.tuples(user=person.pk, chat=None)
        assert {row[1] for row in read} == slugs
        assert sorted(map(str, compiled)) == sorted(map(str, read))
