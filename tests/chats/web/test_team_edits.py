"""Concurrent edits of a team: a newer version is replaced only after a notice."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Team, TeamVersion
from chats.teams import rosters
from tests.chats.api.conftest import of_alice, program
from tests.chats.api.programs import Program
from tests.contextpolicy.pages import Page, opened, submitted
from tests.support.team_rounds import allow_policy_changes, draft_team

__all__ = ["of_alice", "program"]
Made = Callable[..., Team]


@pytest.fixture
def shared(alice: User, demo_model: object, now: datetime) -> Team:
    """A team that every policy administrator can edit."""
    editor = allow_policy_changes(alice)
    draft = draft_team("Ann", "Ben", name="Ours")
    return rosters.create_team(user=editor, draft=draft, shared=True, now=now).team


def sent_fields(page: Client, url: str, **changes: str) -> dict[str, object]:
    """Return the fields of an opened form with changes, as the browser sends them."""
    fields = {k: v for k, v in opened(page, url).fields.items() if k not in {"q"}}
    return {**fields, **changes, "do": "save"}


def test_a_change_of_another_administrator_is_not_replaced_unseen(
    page: Client, bob: User, shared: Team
) -> None:
    other = Client()
    other.force_login(allow_policy_changes(bob))
    url = f"/teams/{shared.pk}"
    typed = sent_fields(page, url, name="Mine", **{"agent-0-instruction": "Be brief."})
    assert submitted(other, url, do="save", name="Theirs").status_code == 302

    refused = page.post(url, typed)
    form = Page(refused.content.decode()).fields
    assert refused.status_code == 409
    assert refused.context["refusal"].code == "team_changed_meanwhile"
    # The form keeps the typed values.
    assert (form["name"], form["agent-0-instruction"]) == (["Mine"], ["Be brief."])
    assert TeamVersion.objects.filter(team=shared).count() == 2
    # Saving again replaces the newer version.
    form = {name: value for name, value in form.items() if name != "q"}
    assert page.post(url, {**form, "do": "save"}).status_code == 302
    shared.refresh_from_db()
    assert shared.current is not None
    assert (shared.current.name, shared.current.number) == ("Mine", 3)


@pytest.mark.parametrize("do", ["add", "preview", "remove-1"])
def test_the_buttons_keep_the_version_that_is_edited(page: Client, shared: Team, do: str) -> None:
    url = f"/teams/{shared.pk}"
    first = submitted(page, url, do=do)
    assert submitted(page, url, do="save", name="Newer").status_code == 302
    form = Page(first.content.decode()).fields
    form.pop("q", None)
    assert page.post(url, {**form, "agent-0-name": "Ann", "do": "save"}).status_code == 409


@pytest.mark.parametrize(("sent", "status"), [("1", 302), ("", 302), ("2", 409), ("x", 409)])
def test_the_number_of_the_version_is_compared(
    page: Client, shared: Team, sent: str, status: int
) -> None:
    url = f"/teams/{shared.pk}"
    assert submitted(page, url, do="save", based_on=sent).status_code == status


def test_a_client_names_the_version_by_its_etag(
    of_alice: Program, alice: User, shared: Team
) -> None:
    path = f"teams/{shared.pk}"
    etag = of_alice.get(path).headers["ETag"]
    body = {"name": "One", "agents": [{"name": "Ann"}]}
    assert of_alice.call("PUT", path, body).status_code == 200
    refused = of_alice.call("PUT", path, {**body, "name": "Two"}, headers={"If-Match": etag})
    assert refused.status_code == 412
