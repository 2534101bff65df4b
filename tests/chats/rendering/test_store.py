"""Each text is rendered once per renderer version and then read."""

from typing import Any

import pytest
from django.db import DatabaseError
from django.db.models import QuerySet

from chats.models import Rendering
from chats.rendering import store

pytestmark = pytest.mark.django_db


def test_a_rendered_text_is_stored_under_its_digest() -> None:
    html = store.html_for("**a**")

    assert "<strong>a</strong>" in html
    assert Rendering.objects.get().digest == store.digest_of("**a**")


def test_S20_a_stored_text_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store.html_for("**a**")
    monkeypatch.setattr(store, "render_markdown", lambda text: pytest.fail(f"rendered {text}"))

    assert "<strong>a</strong>" in store.html_for("**a**")


def test_many_known_texts_cost_one_query(django_assert_num_queries: Any) -> None:
    texts = [f"text {number}" for number in range(50)]
    store.html_for_many(texts)

    with django_assert_num_queries(1):
        found = store.html_for_many(texts)

    assert "text 49" in found["text 49"]


def test_S20_another_renderer_version_renders_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    store.html_for("a")
    monkeypatch.setattr(store, "RENDERER_VERSION", "other")
    store.html_for("a")

    assert Rendering.objects.count() == 2


def test_no_texts_are_no_work() -> None:
    assert store.html_for_many([]) == {}


def test_reading_goes_on_when_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise DatabaseError("attempt to write a readonly database")

    monkeypatch.setattr(QuerySet, "bulk_create", refuse)

    assert "<p" in store.html_for("a")
    assert not Rendering.objects.exists()
