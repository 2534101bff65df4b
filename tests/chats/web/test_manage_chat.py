"""Rename, choose a model."""

from django.test import Client

from chats.models import Chat
from tests.support.chat_pages import HTMX, create_second_model, get_chat_url


def test_a_chat_gets_another_title(page: Client, chat: Chat) -> None:
    page.post(get_chat_url(chat, "rename"), {"title": "Another one"})

    chat.refresh_from_db()
    assert chat.title == "Another one"


def test_a_title_that_is_too_long_is_refused_with_its_sentence(page: Client, chat: Chat) -> None:
    response = page.post(get_chat_url(chat, "rename"), {"title": "x" * 201})

    assert response.status_code == 422
    assert (
        "The title has 201 characters. The limit is 200. Shorten the title."
        in response.content.decode()
    )


def test_another_model_can_be_chosen_without_leaving_the_page(page: Client, chat: Chat) -> None:
    model = create_second_model()
    response = page.post(get_chat_url(chat, "model"), {"model": model.slug}, headers=HTMX)

    chat.refresh_from_db()
    html = response.content.decode()
    assert chat.model == model
    assert html.lstrip().startswith('<details class="menu menu--start menu--up" id="model-picker"')
    assert "window 32,000 tokens" in html
    assert 'id="context-meter" hx-swap-oob' in html


def test_another_model_can_be_chosen_by_a_plain_form(page: Client, chat: Chat) -> None:
    model = create_second_model()
    response = page.post(get_chat_url(chat, "model"), {"model": model.slug})

    assert response.headers["Location"] == get_chat_url(chat) + "#composer"


def test_an_unknown_model_is_refused(page: Client, chat: Chat) -> None:
    response = page.post(get_chat_url(chat, "model"), {"model": "<none>"})

    assert response.status_code == 422
    assert "No model is named “&lt;none&gt;”" in response.content.decode()


def test_the_meter_alone_is_one_part(page: Client, chat: Chat) -> None:
    html = page.get(get_chat_url(chat, "meter")).content.decode()

    assert html.lstrip().startswith('<details class="meter" id="context-meter"')
    assert "Reply reserve" in html
