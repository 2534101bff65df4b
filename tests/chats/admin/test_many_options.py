"""Forms of the administration with several hundred ticked options are saved."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from contextpolicy.models import GroupOwner
from tests.contextpolicy.pages import submitted
from tests.contextpolicy.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Client:
    """The browser of a superuser who just signed in."""
    return signed_in(User.objects.create_superuser("root"))


def create_users(number: int) -> list[User]:
    users = User.objects.bulk_create(User(username=f"user{each:03}") for each in range(number))
    return list(users)


def test_a_group_can_have_hundreds_of_owners(root: Client) -> None:
    group = Group.objects.create(name="Sales")
    users = create_users(250)
    group.user_set.set(users)
    page = reverse("admin:auth_group_change", args=[group.pk])
    answer = submitted(root, page, owners=[user.pk for user in users])
    assert answer.status_code == 302
    assert GroupOwner.objects.filter(group=group).count() == 250


def test_a_user_can_be_in_hundreds_of_groups(root: Client) -> None:
    groups = Group.objects.bulk_create(Group(name=f"Group {each:03}") for each in range(250))
    (user,) = create_users(1)
    page = reverse("admin:auth_user_change", args=[user.pk])
    answer = submitted(root, page, groups=[group.pk for group in groups])
    assert answer.status_code == 302
    assert user.groups.count() == 250
