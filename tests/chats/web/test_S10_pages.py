"""No inline code anywhere, and every page carries the headers that forbid it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.urls import reverse

from chats.models import Chat, Turn
from tests.support.chat_pages import get_chat_url
from tests.support.repository import ROOT

TEMPLATES = sorted(
    path for path in (ROOT / "templates").rglob("*.html") if "admin" not in path.parts
)
PYTHON = sorted(
    path for part in ("chats", "contextpolicy", "project") for path in (ROOT / part).rglob("*.py")
)
SCRIPTS = sorted((ROOT / "static").rglob("*.js"))
HANDLER = re.compile(r"\son[a-z]+\s*=", re.IGNORECASE)
STYLE = re.compile(r"\sstyle\s*=|<style", re.IGNORECASE)


def name_of(path: Path) -> str:
    """A test id that is the same everywhere."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_a_template_has_no_inline_code_and_no_raw_html(path: Path) -> None:
    source = path.read_text(encoding="utf-8")

    assert not HANDLER.search(source)
    assert not STYLE.search(source)
    assert "|safe" not in source
    assert "autoescape off" not in source
    assert "hx-on" not in source
    assert "javascript:" not in source
    for script in re.findall(r"<script[^>]*>", source):
        assert "src=" in script


@pytest.mark.parametrize("path", [p for p in TEMPLATES if p.name.startswith("_")], ids=name_of)
def test_every_id_in_a_part_comes_from_a_key_or_is_the_page_s_only_one(path: Path) -> None:
    ids = re.findall(r'\sid="([^"{]+)"', path.read_text(encoding="utf-8"))

    assert len(ids) == len(set(ids))


def test_only_the_renderer_makes_safe_html() -> None:
    found = [
        name_of(path)
        for path in PYTHON
        if re.search(r"mark_safe|SafeString\(", path.read_text(encoding="utf-8"))
        and "admin" not in path.parts
    ]

    assert found == [f"chats/rendering/{name}.py" for name in ("documents", "fragments", "store")]


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_script_of_the_pages_writes_no_html(path: Path) -> None:
    source = path.read_text(encoding="utf-8")

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source)


def test_S10_every_page_forbids_inline_code(
    page: Client, client: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    addresses = [
        get_chat_url(chat),
        get_chat_url(chat, "folder"),
        "/chats/archive",
        get_chat_url(chat, "meter"),
        get_chat_url(chat, f"turns/{turn.pk}/receipt"),
        "/chats/new",
        "/settings/",
        "/chats/00000000-0000-4000-8000-000000000000/",
        "/nowhere",
    ]
    for browser, address in [*((page, each) for each in addresses), (client, reverse("login"))]:
        response = browser.get(address)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["Cache-Control"] == "no-store"
        html = response.content.decode()
        assert not HANDLER.search(html), address
        assert not STYLE.search(html), address


def test_S05_htmx_is_told_to_run_no_code_and_to_keep_no_pages(page: Client, chat: Chat) -> None:
    html = page.get(get_chat_url(chat)).content.decode()

    for setting in (
        '"allowEval": false',
        '"allowScriptTags": false',
        '"selfRequestsOnly": true',
        '"includeIndicatorStyles": false',
        '"historyCacheSize": 0',
    ):
        assert setting in html


def test_S05_message_bodies_stand_where_htmx_does_nothing(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    talk("<div hx-post=/chats/1/delete hx-trigger=load>", "<div hx-get=/x>")

    html = page.get(get_chat_url(chat)).content.decode()

    for body in re.findall(r'<div class="msg__body[^>]*>', html):
        assert "hx-disable" in body
    assert "&lt;div hx-post=" in html


@pytest.mark.parametrize("name", ["400", "403", "404", "500", "403_csrf"])
def test_an_error_page_needs_nothing_from_the_request(name: str) -> None:
    html = render_to_string(f"{name}.html")

    assert 'class="notice ' in html
    assert "<main" in html


def test_an_unknown_address_has_the_product_s_own_page(page: Client) -> None:
    response = page.get("/nowhere")

    assert response.status_code == 404
    assert "<h1>Page not found</h1>" in response.content.decode()
