"""Forms that a script sends: after the sign-in has expired, they stay in their page."""

from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat
from tests.support.chat_pages import get_chat_url


def test_a_form_that_a_script_sent_stays_after_the_session_has_ended(
    client: Client, chat: Chat
) -> None:
    sent = {"X-Page-Form": "1"}
    for path in (get_chat_url(chat, "rename"), "/files/attach", "/admin/auth/user/add/"):
        answer = client.post(path, {"title": "New"}, headers=sent)
        assert answer.status_code == 401, path
        assert 'data-reason="signed_out"' in answer.content.decode()
        assert "X-Location" not in answer.headers
        assert client.post(path, {"title": "New"}).status_code == 302


def test_a_form_that_a_script_sent_stays_until_the_identity_is_confirmed(
    client: Client, admin_user: User
) -> None:
    client.force_login(admin_user)
    path = "/admin/auth/user/add/"
    answer = client.post(path, {"username": "eve"}, headers={"X-Page-Form": "1"})
    assert answer.status_code == 401
    assert answer.headers["X-Sign-In"] == f"/account/confirm/?next={path}"
    assert 'data-reason="sign_in_too_old"' in answer.content.decode()
    # After signing out, the script follows to the sign-in page.
    answer = client.post("/logout/", headers={"X-Page-Form": "1"})
    assert answer.status_code == 204
