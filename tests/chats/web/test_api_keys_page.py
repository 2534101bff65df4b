"""Settings, API keys: made, shown once, used, revoked, by every person for themselves."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import ApiKey
from chats.people import keys
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import Program
from tests.support.chat_pages import set_sign_in_time

FORM = {"name": "warehouse-bot", "scopes": ["chats:read", "policy:read"], "lifetime_days": "30"}
PAGE = "/settings/keys/"


def test_settings_lead_to_the_keys_and_to_the_documentation(page: Client) -> None:
    html = page.get("/settings/").content.decode()
    assert f'href="{PAGE}"' in html
    assert 'href="/api/v1/docs"' in html
    html = page.get(PAGE).content.decode()
    for scope in keys.SCOPES:
        assert f'type="checkbox" name="scopes" value="{scope}"' in html


def test_a_key_is_made_shown_once_used_and_revoked(fresh: Client, alice: User) -> None:
    html = fresh.post(PAGE, FORM).content.decode()
    found = re.search(r"<code>(plm_[^<]+)</code>", html)
    assert found is not None
    assert "code__copy" in html
    assert found[1] not in fresh.get(PAGE).content.decode()
    key = ApiKey.objects.get(owner=alice)
    assert (key.name, key.scopes) == ("warehouse-bot", ["chats:read", "policy:read"])
    assert "never" in fresh.get(PAGE).content.decode()
    program = Program(found[1])
    assert program.get("chats").status_code == 200
    assert program.post("chats", {}).status_code == 403
    assert "never" not in fresh.get(PAGE).content.decode()
    fresh.post(f"{PAGE}{key.pk}/revoke")
    assert program.get("chats").status_code == 401
    html = fresh.get(PAGE).content.decode()
    assert "revoked" in html
    assert f"{PAGE}{key.pk}/revoke" not in html


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        (["chats:read", "gateway"], "/api/v1/chats"),
        (["gateway"], "/v1/models"),
        (["policy:write"], "/api/v1/schema"),
    ],
)
def test_a_line_for_the_terminal_tries_the_key(
    scopes: list[str], path: str, fresh: Client, alice: User
) -> None:
    assert "curl -H" not in fresh.get(PAGE).content.decode()
    shown = unescape(fresh.post(PAGE, {**FORM, "scopes": scopes}).content.decode())
    found = re.search(r'<code>curl -H "Authorization: (Bearer plm_[^"]+)" (\S+)</code>', shown)
    assert found is not None
    assert found[2] == f"http://testserver{path}"
    assert Client().get(path, headers={"Authorization": found[1]}).status_code == 200
    again = unescape(fresh.get(PAGE).content.decode())
    assert (
        '<code>curl -H "Authorization: Bearer plm_…" http://testserver/api/v1/chats</code>' in again
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": " "}, "invalid_name"),
        ({"scopes": []}, "unknown_scope"),
        ({"scopes": ["chats:all"]}, "unknown_scope"),
        ({"lifetime_days": "0"}, "invalid_lifetime"),
        ({"lifetime_days": "x"}, "invalid_lifetime"),
        ({"lifetime_days": "٣"}, "invalid_lifetime"),
    ],
)
def test_what_cannot_be_is_refused_and_what_was_typed_stays(
    fresh: Client, change: dict[str, object], code: str
) -> None:
    refused = fresh.post(PAGE, {**FORM, **change})
    html = refused.content.decode()
    assert refused.status_code == 422
    assert f'id="refusal" data-reason="{code}"' in html
    if "name" not in change:
        assert 'value="warehouse-bot"' in html
    assert not ApiKey.objects.exists()


def test_an_older_sign_in_is_confirmed_in_the_form(page: Client, alice: User) -> None:
    alice.set_password("correct horse battery")
    alice.save()
    page.force_login(alice)
    set_sign_in_time(page, timezone.now() - timedelta(minutes=16))
    assert 'name="confirm_password"' in page.get(PAGE).content.decode()
    refused = page.post(PAGE, FORM)
    html = refused.content.decode()
    assert refused.status_code == 403
    assert 'value="warehouse-bot"' in html
    assert re.search(r'value="policy:read"[^>]*\schecked', html)
    assert not re.search(r'value="chats:write" checked', html)
    made = page.post(PAGE, {**FORM, "confirm_password": "correct horse battery"})
    assert "plm_" in made.content.decode()


def test_charlie_neither_sees_nor_revokes_alices_key(
    fresh: Client, charlies_page: Client, alice: User
) -> None:
    fresh.post(PAGE, FORM)
    key = ApiKey.objects.get(owner=alice)
    assert "warehouse-bot" not in charlies_page.get(PAGE).content.decode()
    assert charlies_page.post(f"{PAGE}{key.pk}/revoke").status_code == 404
    key.refresh_from_db()
    assert key.revoked_at is None


def test_a_key_that_keeps_nothing_is_made_and_shown_so(fresh: Client) -> None:
    note = 'data-note="requests-not-stored"'
    assert note not in fresh.post(PAGE, FORM).content.decode()
    assert note in fresh.post(PAGE, {**FORM, "unmanaged": "yes"}).content.decode()
    events = AuditEvent.objects.filter(type="api_key.created").order_by("pk")
    assert [event.data["unmanaged"] for event in events] == [False, True]
    listed = fresh.get("/api/v1/keys").json()["data"]
    assert [key["unmanaged"] for key in listed] == [True, False]
    # The form keeps its ticked boxes when it is refused.
    refused = fresh.post(PAGE, {**FORM, "name": "", "unmanaged": "yes"}).content.decode()
    assert re.search(r'name="unmanaged"[^>]*\schecked', refused)
