"""Whatever Charlie asks about Alice's chat, the answer is the one for what does not exist."""

import uuid
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import get_resolver, reverse

from chats.models import Chat, Compaction, Message, MessageImage, Turn
from chats.web import urls
from tests.support.chat_pages import HTMX

CANARY = "canary-in-alice-s-chat"
IMAGE = "a" * 64
Ids = dict[str, uuid.UUID | str]
NAMES = sorted(
    str(pattern.name) for pattern in urls.urlpatterns if "chat_id" in str(pattern.pattern)
)


@pytest.fixture
def ids(chat: Chat, talk: Callable[..., Turn], summary: Callable[..., Compaction]) -> Ids:
    """Everything in Alice's chat that an address can name."""
    turn = talk(CANARY)
    row = summary(2)
    message = Message.objects.filter(branch__chat=chat)[0]
    MessageImage.objects.create(message=message, sha256=IMAGE, media_type="image/png", data=b"x")
    return {
        "chat_id": chat.pk,
        "turn_id": turn.pk,
        "message_id": message.pk,
        "compaction_id": row.pk,
        "branch_id": row.branch_id,
        "sha256": IMAGE,
    }


def address(name: str, ids: Ids) -> str:
    """The address of a name with the ids it takes."""
    pattern = next(p for p in urls.urlpatterns if p.name == name)
    wanted = {key: value for key, value in ids.items() if f":{key}>" in str(pattern.pattern)}
    return reverse(f"chats:{name}", kwargs=wanted)


def test_the_list_of_addresses_is_complete() -> None:
    assert len(NAMES) == 63
    assert get_resolver().namespace_dict["chats"]


# One test for all addresses, here and below, because the rows take longer to create than the
# requests, which change none of them.
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "htmx"])
def test_charlie_learns_nothing(charlies_page: Client, ids: Ids, headers: dict[str, str]) -> None:
    nobodys: Ids = {**{key: uuid.uuid4() for key in ids}, "sha256": "0" * 64}
    before = Chat.objects.values().get(pk=ids["chat_id"])
    for name in NAMES:
        for method in ("get", "post", "put", "patch", "delete"):
            foreign = getattr(charlies_page, method)(address(name, ids), headers=headers)
            absent = getattr(charlies_page, method)(address(name, nobodys), headers=headers)

            asked = (name, method)
            assert foreign.status_code in {404, 405}, asked
            assert foreign.status_code == absent.status_code, asked
            assert CANARY not in foreign.content.decode(), asked
            assert without_request_id(foreign) == without_request_id(absent), asked
            assert Chat.objects.values().get(pk=ids["chat_id"]) == before, asked


def without_request_id(response: object) -> str:
    """The response body without the parts that differ in each request."""
    request_id = response.headers["X-Request-ID"]  # type: ignore[attr-defined]  # a test response
    body: str = response.content.decode()  # type: ignore[attr-defined]  # the same
    head, _, rest = body.partition("<main")
    return rest.replace(request_id, "") if rest else head


def test_an_id_of_another_chat_is_absent_even_in_one_s_own(
    charlies_page: Client, ids: Ids, demo_model: object
) -> None:
    charlies_page.post("/chats/new", {"text": "mine"})
    own = Chat.objects.exclude(pk=ids["chat_id"]).get()
    mixed = {**ids, "chat_id": own.pk}

    for name in (n for n in NAMES if n.startswith(("turn", "message-k", "rec"))):
        for method in ("get", "post"):
            response = getattr(charlies_page, method)(address(name, mixed))
            assert response.status_code in {404, 405}, (name, method)


def test_charlies_list_has_only_his_own_chats(
    charlies_page: Client, ids: Ids, demo_model: object
) -> None:
    html = charlies_page.get("/chats/new").content.decode()

    assert CANARY not in html


def test_a_stranger_is_asked_to_sign_in(client: Client, ids: Ids) -> None:
    for name in NAMES:
        for method in ("get", "post"):
            response = getattr(client, method)(address(name, ids))
            assert response.status_code in {302, 405}, (name, method)
            assert CANARY not in response.content.decode()
