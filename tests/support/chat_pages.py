"""Pages of a chat: addresses, parts of the page, and the state of turns and sessions."""

import re
from datetime import datetime

from django.test import Client

from chats.models import Chat, ProviderAccount, Turn
from chats.people.sessions import SIGNED_IN_AT
from contextpolicy.models import ModelSpec
from tests.chats.web.markup import tight
from tests.contextpolicy.pages import opened

HTMX = {"HX-Request": "true"}


def get_chat_url(chat: Chat, rest: str = "") -> str:
    """An address below the chat."""
    return f"/chats/{chat.pk}/{rest}"


def cut_out_chat(html: str) -> str:
    """The page without the chat list, whose titles are first messages."""
    return html.split('<main class="chat"')[1].split('<section class="thread"')[1]


def read_page_version(html: str) -> str:
    """Return the version from which the page was rendered."""
    found = re.search(r'id="tail-seen" value="([\w.]+)"', html)
    assert found
    return found[1]


def set_sign_in_time(client: Client, at: datetime) -> None:
    """Let the session say when its person signed in."""
    session = client.session
    session[SIGNED_IN_AT] = at.isoformat()
    session.save()


def mark_running(turn: Turn) -> None:
    """As a worker would have it."""
    Turn.objects.filter(pk=turn.pk).update(
        status="running", lease_token="t", lease_until=turn.queued_at, attempt=1
    )


def create_second_model() -> ModelSpec:
    """Another model at another provider."""
    ProviderAccount.objects.create(slug="other", name="Other server", base_url="https://o.example")
    return ModelSpec.objects.create(
        slug="other-model", provider="other", name="big-model", context_window=32_000
    )


def read_page_text(page: Client, chat: Chat) -> str:
    """Return the text of the chat page."""
    return opened(page, get_chat_url(chat)).words


def read_page_html(page: Client, chat: Chat) -> str:
    """Return the HTML of the chat page without white space around tags."""
    return tight(page.get(get_chat_url(chat)).content.decode())
