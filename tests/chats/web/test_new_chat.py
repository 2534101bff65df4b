"""The first message makes the chat."""

import re
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, Message
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment, PolicyVersion
from tests.support.chat_pages import create_second_model


def test_the_first_message_makes_the_chat_and_opens_it(page: Client, demo_model: ModelSpec) -> None:
    response = page.post("/chats/new", {"text": "hello\r\nthere", "key": "k", "model": "demo"})

    chat = Chat.objects.get()
    assert response.headers["Location"] == f"/chats/{chat.pk}/"
    assert chat.title == "hello"
    assert chat.model == demo_model
    assert Message.objects.get().text == "hello\nthere"


def test_sending_the_first_message_twice_makes_one_chat(
    page: Client, demo_model: ModelSpec
) -> None:
    first = page.post("/chats/new", {"text": "hello", "key": "k"})
    second = page.post("/chats/new", {"text": "hello", "key": "k"})

    assert first.headers["Location"] == second.headers["Location"]
    assert Chat.objects.count() == 1


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        ({"text": " "}, 422, "message_empty"),
        ({"text": "hello", "model": "none-such"}, 422, "unknown_model"),
    ],
)
def test_a_refused_first_message_stays_in_its_box_and_makes_nothing(
    page: Client, demo_model: ModelSpec, data: dict[str, str], status: int, code: str
) -> None:
    response = page.post("/chats/new", data)

    assert response.status_code == status
    assert f'data-reason="{code}"' in response.content.decode()
    assert f"\n{data['text']}</textarea>" in response.content.decode()
    assert not Chat.objects.exists()


def test_the_same_key_with_another_first_message_says_what_happened(
    page: Client, demo_model: ModelSpec
) -> None:
    page.post("/chats/new", {"text": "hello", "key": "k"})
    response = page.post("/chats/new", {"text": "other", "key": "k"})

    assert response.status_code == 409
    html = response.content.decode()
    assert 'data-reason="already_sent"' in html
    assert "reload" not in html
    key = re.findall(r'name="key" value="([^"]+)"', html)[0]
    page.post("/chats/new", {"text": "other", "key": key})
    assert [chat.title for chat in Chat.objects.order_by("created_at")] == ["hello", "other"]


def test_with_only_the_demo_model_the_page_offers_to_connect_another(
    page: Client, demo_model: ModelSpec
) -> None:
    html = page.get("/chats/new").content.decode()

    assert 'data-note="demo-model"' in html
    assert 'href="/setup/"' in html


def test_without_any_model_the_page_says_so(page: Client) -> None:
    html = page.get("/chats/new").content.decode()

    assert 'data-note="no-model"' in html


def test_under_a_policy_that_cannot_work_the_first_message_stays_in_its_box(
    page: Client, demo_model: ModelSpec, now: datetime
) -> None:
    policy = ContextPolicy.objects.create(slug="small", name="Small")
    policy.current = PolicyVersion.objects.create(
        policy=policy,
        number=1,
        values={"token_budget": 100, "reserve_tokens": 5_000},
        created_at=now,
    )
    policy.save()
    PolicyAssignment.objects.create(policy=policy, level="instance")

    opened = page.get("/chats/new")
    sent = page.post("/chats/new", {"text": "hello"})

    assert opened.status_code == 200
    assert "No model is connected</h3>" not in opened.content.decode()
    assert sent.status_code == 409
    assert "\nhello</textarea>" in sent.content.decode()
    assert 'id="composer-error"' in sent.content.decode()
    assert not Chat.objects.exists()


def test_a_person_is_greeted_by_name_as_text(page: Client, demo_model: ModelSpec) -> None:
    from_name = "<b>Alice</b>"
    user = page.get("/chats/new").context["user"]
    user.first_name = from_name
    user.save()

    html = page.get("/chats/new").content.decode()

    assert "&lt;b&gt;Alice&lt;/b&gt;" in html
    assert from_name not in html


def test_the_page_names_the_limit_of_the_person_s_policy(
    page: Client, alice: User, demo_model: ModelSpec, now: datetime
) -> None:
    policy = ContextPolicy.objects.create(slug="short", name="Short")
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=1, values={"input_length_limit": 3000}, created_at=now
    )
    policy.save()
    PolicyAssignment.objects.create(policy=policy, level="user", user=alice)

    html = page.get("/chats/new").content.decode()

    assert 'data-limit="3000"' in html
    assert "/ 3,000" in html


def test_a_refused_first_message_keeps_its_choices(page: Client, demo_model: ModelSpec) -> None:
    other = create_second_model()
    said = {"text": " ", "model": other.slug, "unread": "1", "temporary": "1"}
    html = page.post("/chats/new", said).content.decode()
    checked = re.findall(r'<input[^>]* name="(\w+)"[^>]* checked>', html)
    assert sorted(checked) == ["model", "temporary", "unread"]
    assert f'name="model" value="{other.slug}" checked' in html
