"""Cache warm-up requests of the page: permission, frequency, and cost."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chats.models import Chat, ProviderAccount, Receipt, Turn, WarmUp
from tests.support.chat_pages import HTMX
from tests.support.warm_ups import Sent, list_warm_up_causes

ADDRESS = "127.0.0.1:11434"


@pytest.fixture
def rested(chat: Chat, talk: Any, settings: Any) -> Chat:
    """A chat of an hour ago, with a model on this host."""
    settings.ALLOWED_PRIVATE_PROVIDERS = [ADDRESS]
    talk("Hello")
    ProviderAccount.objects.update(kind="openai", base_url=f"http://{ADDRESS}/v1")
    at = timezone.now() - timedelta(hours=1)
    Chat.objects.filter(pk=chat.pk).update(updated_at=at)
    chat.refresh_from_db()
    return chat


def url(chat: Chat) -> str:
    return f"/chats/{chat.pk}/warm-up"


def test_typing_in_two_tabs_asks_once(
    page: Client, rested: Chat, sent: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        answers = [page.post(url(rested)) for _ in range(2)]
    assert [(a.status_code, a.content) for a in answers] == [(204, b"")] * 2
    assert list_warm_up_causes(sent) == ["typing"]
    assert WarmUp.objects.get().rest == rested.updated_at


def test_opening_a_chat_asks_for_nothing(
    page: Client, rested: Chat, sent: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        html = page.get(f"/chats/{rested.pk}/").content.decode()
    assert f'data-warm-up="{url(rested)}"' in html
    assert list_warm_up_causes(sent) == []
    assert page.get(url(rested)).status_code == 405


def test_a_page_whose_model_is_not_read_ahead_says_nothing(page: Client, rested: Chat) -> None:
    ProviderAccount.objects.update(warm_up=False)
    assert "data-warm-up" not in page.get(f"/chats/{rested.pk}/").content.decode()
    assert "data-warm-up" not in page.get("/chats/new").content.decode()


def test_only_the_owner_s_word_counts_and_only_with_a_token(
    charlies_page: Client, alice: Any, rested: Chat, sent: Sent
) -> None:
    assert charlies_page.post(url(rested), headers=HTMX).status_code == 404
    checked = Client(enforce_csrf_checks=True)
    checked.force_login(alice)
    assert checked.post(url(rested)).status_code == 403
    assert not WarmUp.objects.exists()


def test_the_word_has_a_rate_of_its_own(page: Client, rested: Chat, settings: Any) -> None:
    settings.WARM_UPS_PER_MINUTE = 1
    assert page.post(url(rested)).status_code == 204
    assert page.post(url(rested)).status_code == 429
    assert page.post(f"/chats/{rested.pk}/messages", {"text": "x"}).status_code == 302


def test_the_receipt_of_a_warm_up_is_shown_as_one(page: Client, rested: Chat) -> None:
    turn = Turn.objects.get()
    receipt = Receipt.objects.get()
    receipt.pk, receipt.step, receipt.outcome = None, Receipt.AFTERWARDS, "stopped"
    receipt.id = Receipt._meta.get_field("id").get_default()
    receipt.save(force_insert=True)
    html = page.get(f"/chats/{rested.pk}/turns/{turn.pk}/receipt").content.decode()
    warm_up = "Cache warm-up 1: the next prompt without a question"
    assert html.index("Model call") < html.index(warm_up)
