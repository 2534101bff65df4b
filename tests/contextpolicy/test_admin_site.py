"""The administration as a whole: access, appearance, content security policy."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from chats.admin.site import TITLES, site
from contextpolicy.ledger import record_event
from contextpolicy.models import AuditEvent
from contextpolicy.presets import seed_policies
from contextpolicy.roles import OWNER, USER
from tests.contextpolicy.pages import Page, opened
from tests.contextpolicy.people import PASSWORD, person, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser(now: datetime) -> Client:
    """A browser with access to every page."""
    seed_policies(now=now)
    return signed_in(User.objects.create_superuser("root"))


def test_S12_the_way_in_is_the_products_own_sign_in() -> None:
    answer = Client().get("/admin/contextpolicy/auditevent/?type=policy.", follow=True)

    assert answer.redirect_chain[-1][0] == (
        "/login/?next=/admin/contextpolicy/auditevent/%3Ftype%3Dpolicy."
    )


def test_S12_the_admin_takes_no_password_itself() -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    client = Client()

    answer = client.post("/admin/login/", {"username": "root", "password": PASSWORD})

    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/login/")
    assert "_auth_user_id" not in client.session


def test_who_has_no_role_is_refused_and_not_sent_round_in_circles() -> None:
    client = signed_in(person("charlie", USER))

    answer = client.get("/admin/", follow=True)

    assert answer.status_code == 403
    assert len(answer.redirect_chain) == 1


def test_signing_out_ends_the_session_and_is_recorded(browser: Client) -> None:
    person_id = browser.session["_auth_user_id"]

    browser.post(reverse("admin:logout"))

    assert "_auth_user_id" not in browser.session
    assert AuditEvent.objects.get(type="logout.succeeded").actor == f"user:{person_id}"


def test_a_get_signs_nobody_out(browser: Client) -> None:
    assert browser.get(reverse("admin:logout")).status_code == 405
    assert "_auth_user_id" in browser.session


def test_ones_own_password_is_changed_on_the_products_page(browser: Client) -> None:
    answer = browser.get(reverse("admin:password_change"))

    assert answer.headers["Location"] == reverse("password-change")


def test_S10_no_page_needs_inline_code(browser: Client, now: datetime) -> None:
    event = record_event("policy.created", actor="user:1", now=now, data={"name": "<b>"})
    pages = [reverse("admin:index"), reverse("admin:contextpolicy_ledger_verify")]
    for model in site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        pages.append(reverse(f"{name}_changelist"))
        if site._registry[model].has_add_permission(_request(browser)):
            pages.append(reverse(f"{name}_add"))
        row = model._default_manager.first()
        if row is not None:
            pages.append(reverse(f"{name}_change", args=[row.pk]))
    pages.append(reverse("admin:contextpolicy_auditevent_change", args=[event.pk]))

    for page in pages:
        answer = browser.get(page)
        read = Page(answer.content.decode())
        assert answer.status_code == 200, page
        assert read.inline == [], page
        assert not [url for url in read.urls if url.startswith(("http", "//", "javascript"))], page
        assert "'unsafe" not in answer.headers["Content-Security-Policy"]
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


def _request(browser: Client) -> HttpRequest:
    """A request of this browser's person."""
    request: HttpRequest = browser.get("/admin/").wsgi_request
    return request


def test_the_look_is_the_products(browser: Client) -> None:
    page = opened(browser, "/admin/")

    assert "/static/admin_palimpsest.css" in page.urls
    assert "/static/css/tokens.css" in page.urls
    assert finders.find("admin_palimpsest.css")
    assert "Palimpsest" in page.words
    assert "Django" not in page.words


def test_the_menu_is_grouped_by_what_people_come_to_do(browser: Client) -> None:
    words = opened(browser, "/admin/").words

    places = [words.index(str(TITLES[name])) for name in ("govern", "check", "run", "people")]
    assert places == sorted(places)
    assert str(TITLES["more"]) not in words.split("Recent actions")[0]


def test_the_menu_shows_only_what_the_role_opens() -> None:
    words = opened(signed_in(person("omar", OWNER)), "/admin/").words

    assert str(TITLES["people"]) in words
    assert str(TITLES["govern"]) not in words
    assert "Audit log" not in words
