"""From signing in to a second answer, with links and forms only, as a browser without scripts."""

import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Turn
from chats.providers.base import Finished, TextDelta
from contextpolicy.models import ModelSpec
from tests.support.scripted_worker import InlineWorker, ScriptedProvider


def answer(text: str) -> None:
    """Let a worker run the next queued turn."""
    worker = InlineWorker(ScriptedProvider([[TextDelta(text), Finished("stop")]]))
    turn = Turn.objects.get(status=Turn.Status.QUEUED)
    async_to_sync(worker.turn)(turn.pk)


def form(html: str, action: str) -> dict[str, Any]:
    """The hidden fields of the form that leads to an address."""
    start = html.index(f'action="{action}"')
    fields = html[start : html.index("</form>", start)]
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', fields))


@pytest.mark.requirement("S5")
def test_a_person_signs_in_and_gets_two_answers(alice: User, demo_model: ModelSpec) -> None:
    alice.set_password("correct horse battery")
    alice.save()
    browser = Client(enforce_csrf_checks=True)

    html = browser.get("/", follow=True).content.decode()
    assert "Sign in" in html
    token = form_token(html)
    credentials = {"username": "alice", "password": "correct horse battery", "next": "/"}
    welcome = browser.post("/login/", {**credentials, **token}, follow=True).content.decode()
    assert 'id="welcome"' in welcome

    fields = form(welcome, "/chats/new")
    response = browser.post("/chats/new", {**fields, "text": "First question"})
    address = response.headers["Location"]
    waiting = browser.get(address).content.decode()
    assert 'id="queue-' in waiting
    assert "First question" in waiting

    answer("The **first** answer.")
    html = browser.get(address).content.decode()
    assert "The <strong>first</strong> answer." in html
    assert "data-live" not in html

    fields = form(html, f"{address}messages")
    browser.post(f"{address}messages", {**fields, "text": "Second question"})
    answer("The second answer.")
    html = browser.get(address).content.decode()
    assert html.index("first</strong>") < html.index("Second question<") < html.index("The second")

    actions = re.findall(r'href="([^"]+/messages/[-0-9a-f]{36}/)"', html)[-1]
    html = browser.get(actions).content.decode()
    receipt = re.findall(r'href="([^"]+/receipt)"', html)[-1]
    html = browser.get(receipt).content.decode()
    assert "The **first** answer." in html
    assert "Second question" in html


def form_token(html: str) -> dict[str, str]:
    """The token of a page's form."""
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', html)
    assert token
    return {"csrfmiddlewaretoken": token[1]}
