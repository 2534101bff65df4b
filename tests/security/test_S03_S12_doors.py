"""S3, S11, S12 at every sign-in form: valid input works, attempts are limited, links expire."""

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.forms.models import model_to_dict
from django.test import Client

from chats.models import Branch, Chat, Message, Turn
from tests.chats.api.programs import Program
from tests.security.world import World
from tests.support.role_clients import PASSWORD

FIELDS = sorted(
    {
        name
        for kind in (Chat, Branch, Message, Turn, User)
        for field in kind._meta.get_fields()
        for name in (field.name, f"{field.name}_id", f"{field.name}__id")
    }
    - {"title", "model", "text"}
)


def test_S03_a_form_takes_what_it_offers_and_nothing_else(
    page: Client, world: World, bob: User
) -> None:
    def state() -> list[Any]:
        person = model_to_dict(User.objects.get(username="alice"), exclude=["last_login"])
        return [model_to_dict(Chat.objects.get(pk=world.chat.pk)), person]

    own = f"/chats/{world.chat.pk}/"
    parts = [FIELDS[start : start + 190] for start in range(0, len(FIELDS), 190)]
    for extra in (dict.fromkeys(part, str(bob.pk)) for part in parts):
        before = state()
        assert page.post(f"{own}rename", {**extra, "title": "New"}).status_code == 302
        assert page.post(f"{own}model", {**extra, "model": "model"}).status_code == 302
        before[0]["title"] = "New"
        assert state() == before
        known = list(Message.objects.values_list("pk", flat=True))
        assert page.post(f"{own}messages", {**extra, "text": "Hello"}).status_code == 302
        made = Message.objects.exclude(pk__in=known).get()
        assert (made.role, made.seq, made.finish, made.pinned_at) == ("user", None, "", None)
        assert made.branch_id == world.chat.active_branch_id
        Message.objects.filter(pk=made.pk).delete()


def guess(door: str, n: int) -> Any:
    """A failed attempt at a form, as a stranger."""
    client = Client()
    if door == "api":
        return Program(f"plm_wrong{n}").get("chats")
    if door == "stream":
        return Program(f"plm_wrong{n}").get(
            f"chats/{'0' * 8}-0000-4000-8000-{'0' * 12}/turns/"
            f"{'0' * 8}-0000-4000-8000-{'0' * 12}/events"
        )
    if door == "link":
        return client.post(f"/login/link/wrong{n}/")
    if door == "admin":
        # The administration redirects to the only sign-in page.
        place = client.post("/admin/login/?next=/admin/", {"username": "alice"}).headers["Location"]
        return client.post(place, {"username": "alice", "password": f"wrong{n}"})
    return client.post("/login/", {"username": f"person{n}", "password": f"wrong{n}"})


@pytest.mark.django_db
@pytest.mark.parametrize("door", ["login", "admin", "link", "api", "stream"])
def test_S12_twelve_wrong_tries_at_any_door_end_in_429(door: str) -> None:
    answers = [guess(door, n) for n in range(12)]
    assert answers[0].status_code in {200, 401, 403}
    assert answers[-1].status_code == 429
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 15 * 60


@pytest.mark.django_db
def test_S12_an_unknown_name_costs_and_reads_as_a_known_one(alice: User) -> None:
    alice.set_password(PASSWORD)
    alice.save()
    answers = []
    for name in ("alice", "nobody"):
        form = {"username": name, "password": "wrong"}
        answer = Client().post("/login/", form)
        body = answer.content.decode().partition("<main")[2]
        for own in (name, answer.headers["X-Request-ID"]):
            body = body.replace(own, "")
        answers.append((answer.status_code, without_tokens(body)))
    assert answers[0] == answers[1]


def without_tokens(html: str) -> str:
    """The page without its CSRF token."""
    head, mark, rest = html.partition('name="csrfmiddlewaretoken" value="')
    return head + mark + rest.partition('"')[2]


@pytest.mark.parametrize("path", ["/admin/auth/user/add/", "/admin/chats/provideraccount/add/"])
def test_S11_keys_and_roles_ask_for_a_fresh_sign_in(path: str, now: datetime, db: None) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    answer = browser.get(path)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/account/confirm/?")
