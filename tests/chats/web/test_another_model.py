"""A reply that failed says whose fault it was, and offers another model to try again with."""

from collections.abc import Callable
from typing import Any

from django.test import Client
from django.utils import translation
from pytest_django.fixtures import Settings

from chats.models import Chat, ProviderAccount, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from tests.support.chat_pages import create_second_model, get_chat_url

Work = Callable[..., Any]


def fails(turn: Turn, work: Work, times: int) -> None:
    """Let each call of the turn end with a 503."""
    ProviderAccount.objects.filter(slug="demo").update(name="Mistral EU")
    faults = [
        [ProviderError("provider_unavailable", status=503, retry_after=0.0)] for _ in range(times)
    ]
    work(turn, *faults)


def test_a_failure_names_the_provider_the_status_and_the_times(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Work, settings: Settings
) -> None:
    settings.PROVIDER_CALLS = 3
    turn = say("hello")
    fails(turn, work, 3)
    assert turn.status == Turn.Status.FAILED
    assert turn.error_sentence.endswith("(Mistral EU, status 503, called 3 times.)")
    html = page.get(get_chat_url(chat)).content.decode()
    assert "Mistral EU, status 503, called 3 times" in html
    models = get_chat_url(chat, f"turns/{turn.pk}/models")
    assert f'href="{models}"' in html


def test_a_failure_is_named_in_the_language_of_the_reader(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Work, settings: Settings
) -> None:
    settings.PROVIDER_CALLS = 3
    turn = say("hello")
    fails(turn, work, 3)
    with translation.override("zh-hans"):
        chinese = turn.localized_error
    assert chinese != turn.error_sentence
    assert "503" in chinese
    html = page.get(get_chat_url(chat), headers={"Accept-Language": "zh-hans"}).content.decode()
    assert chinese in html
    assert turn.error_sentence not in html


def test_another_model_answers_the_same_message(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Work, settings: Settings
) -> None:
    settings.PROVIDER_CALLS = 1
    turn = say("hello")
    fails(turn, work, 1)
    assert "called once" in turn.error_sentence
    other = create_second_model()
    offered = page.get(get_chat_url(chat, f"turns/{turn.pk}/models")).content.decode()
    assert f'value="{other.slug}"' in offered
    assert 'value="demo"' not in offered
    assert 'data-note="no-other-model"' not in offered
    answer = page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), {"model": other.slug})
    assert answer.status_code == 302
    again = Turn.objects.exclude(pk=turn.pk).get()
    assert (again.model, again.trigger_id) == (other, turn.trigger_id)
    work(again, [TextDelta("There."), Finished("stop")])
    assert "There." in page.get(get_chat_url(chat)).content.decode()


def test_without_another_model_the_page_says_who_connects_one(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Work, settings: Settings
) -> None:
    settings.PROVIDER_CALLS = 1
    turn = say("hello")
    fails(turn, work, 1)
    html = page.get(get_chat_url(chat, f"turns/{turn.pk}/models")).content.decode()
    assert 'data-note="no-other-model"' in html


def test_an_unknown_model_changes_nothing(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Work, settings: Settings
) -> None:
    settings.PROVIDER_CALLS = 1
    turn = say("hello")
    fails(turn, work, 1)
    refused = page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), {"model": "none"})
    assert refused.status_code == 422
    assert Turn.objects.count() == 1


def test_charlie_is_offered_nothing(
    charlies_page: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")
    assert charlies_page.get(get_chat_url(chat, f"turns/{turn.pk}/models")).status_code == 404
