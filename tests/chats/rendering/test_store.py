"""Each text is rendered once per renderer version and then read from the database."""

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.db.models import QuerySet

from chats.actions.erasure import erase_chat, erase_message
from chats.models import Branch, Chat, Rendering, Turn
from chats.rendering import store
from chats.turns.start import start_turn
from tests.support.chat_summaries import reload_branch

pytestmark = pytest.mark.django_db


@pytest.fixture
def branch(chat: Chat) -> Branch:
    """The branch of an empty chat."""
    return reload_branch(chat)


def test_a_rendered_text_is_stored_under_its_digest(branch: Branch) -> None:
    html = store.render_texts(["**a**"], seen=branch)["**a**"]

    assert "<strong>a</strong>" in html
    assert Rendering.objects.get().digest == store.compute_rendering_digest("**a**")


def test_S20_a_stored_text_is_not_rendered_again(
    branch: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.render_texts(["**a**"], seen=branch)
    monkeypatch.setattr(store, "render_markdown", lambda text: pytest.fail(f"rendered {text}"))

    assert "<strong>a</strong>" in store.render_texts(["**a**"], seen=branch)["**a**"]


def test_many_known_texts_cost_one_query(branch: Branch, django_assert_num_queries: Any) -> None:
    texts = [f"text {number}" for number in range(50)]
    store.render_texts(texts, seen=branch)

    with django_assert_num_queries(1):
        found = store.render_texts(texts, seen=branch)

    assert "text 49" in found["text 49"]


def test_S20_another_renderer_version_renders_anew(
    branch: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.render_texts(["a"], seen=branch)
    monkeypatch.setattr(store, "RENDERER_VERSION", "other")
    store.render_texts(["a"], seen=branch)

    assert Rendering.objects.count() == 2


def test_no_texts_are_no_work(branch: Branch) -> None:
    assert store.render_texts([], seen=branch) == {}


def test_reading_goes_on_when_nothing_can_be_written(
    branch: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise DatabaseError("attempt to write a readonly database")

    monkeypatch.setattr(QuerySet, "bulk_create", refuse)

    assert "<p" in store.render_texts(["a"], seen=branch)["a"]
    assert not Rendering.objects.exists()


def test_what_was_read_before_an_erasure_is_not_stored_after_it(
    alice: User, chat: Chat, branch: Branch, now: datetime
) -> None:
    message = start_turn(user=alice, chat=chat, text="The key is 48213.", now=now).message
    Turn.objects.update(status=Turn.Status.STOPPED)
    text = message.text
    erase_message(user=alice, message=message, now=now)

    assert "48213" in store.render_texts([text], seen=branch)[text]

    assert not Rendering.objects.exists()
    store.render_texts([text], seen=reload_branch(chat))
    assert Rendering.objects.exists()


def test_what_was_read_before_its_chat_was_erased_is_not_stored(
    alice: User, chat: Chat, branch: Branch, now: datetime
) -> None:
    erase_chat(user=alice, chat=chat, now=now)

    assert "<p" in store.render_texts(["a"], seen=branch)["a"]

    assert not Rendering.objects.exists()
