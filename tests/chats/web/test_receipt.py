"""Prompt receipt, call by call."""

import html
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from chats.models import Chat, Message, PromptText, Receipt, Turn
from chats.providers.base import Finished, TextDelta
from chats.web.receipt_labels import CHANGES
from chats.web.receipts import wording
from contextpolicy.models import EffectivePolicy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.web.markup import tight
from tests.contextpolicy.pages import Page
from tests.support.chat_pages import get_chat_url
from tests.support.clocks import NOON


def test_a_receipt_shows_the_prompt_in_order(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    chat.system_text = "Answer <briefly>."
    chat.save()
    talk("the first question", "the first answer")
    turn = talk("the second question")

    body = tight(page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode())

    order = [
        "Answer &lt;briefly&gt;.",
        "the first question",
        "the first answer",
        "the second question",
    ]
    places = [body.index(words, body.index('class="panel prompt"')) for words in order]
    assert places == sorted(places)
    assert "completed</span>" in body
    assert 'data-note="nothing-left-out"' in body


def test_what_was_left_out_has_its_reason(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    Receipt.objects.update(left_out=[[1, 42, "covered"], [43, 43, "budget"], [44, 45, "odd"]])

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "Messages 1 to 42" in body
    assert "Message 43</th>" in body
    assert re.findall(r'data-reason="([^"]+)"', body)[:3] == ["covered", "budget", "odd"]
    assert "Left out by the strategy: odd" in body


def test_a_hidden_system_text_is_shown_by_size_only(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    chat.system_text = "My own words."
    chat.save()
    hide = {"system_text": "The secret recipe.", "hide_system_text": True}
    policy = create_policy(slug="hide", name="Hide", values=hide, actor="system", now=NOON)
    assign_policy(policy=policy, level="instance", actor="system", now=NOON)
    turn = talk("hello")

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "The secret recipe." not in body
    assert "The policy hides this text. 18 characters, stored as" in body
    assert "My own words." in body


def test_texts_that_are_gone_say_so(page: Client, chat: Chat, talk: Callable[..., Turn]) -> None:
    chat.system_text = "Something."
    chat.save()
    turn = talk("hello")
    PromptText.objects.all().delete()

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert 'data-note="text-not-stored"' in body


def test_a_turn_without_a_call_says_so(
    page: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert 'data-note="no-model-call"' in body


def test_several_calls_are_told_apart(page: Client, chat: Chat, talk: Callable[..., Turn]) -> None:
    turn = talk("hello")
    receipt = Receipt.objects.get()
    Receipt.objects.filter(pk=receipt.pk).update(outcome="failed", error_code="provider_timeout")
    receipt.pk, receipt.call = None, 2
    receipt.save(force_insert=True)

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "Call 1, step 1, attempt 1" in body
    assert "Call 2, step 1, attempt 1" in body
    assert "failed: provider_timeout" in body


def test_the_provider_s_count_stands_beside_ours(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    Receipt.objects.update(usage={"input": 1533, "cached": 708})

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "1,533" in body
    assert "708 read from the cache" in body


def test_tool_parts_of_a_message_are_part_of_its_text(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    talk("one")
    Message.objects.filter(seq=2).update(
        parts=[
            {"type": "tool_call", "call_id": "1", "name": "look_up", "arguments": "{}"},
            {"type": "tool_result", "call_id": "1", "name": "look_up", "content": "found it"},
            {"type": "text", "text": "Done."},
        ]
    )
    turn = talk("two")

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "look_up({})\nfound it" in body


def test_a_message_that_was_cut_is_shown_as_it_was_sent_and_says_by_how_much(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Callable[..., Any], now: datetime
) -> None:
    values = {"strategy": "simple", "window_size": 12, "max_chars_per_message": 120}
    policy = create_policy(slug="cut", name="Cut", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    work(say("word " * 100 + "the end"), [TextDelta("one"), Finished("stop")])
    turn = say("second")
    request = work(turn, [TextDelta("two"), Finished("stop")]).scripted.requests[0]

    found = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert request.messages[0].content in html.unescape(found)
    assert "characters cut …]" in request.messages[0].content
    assert "the end" not in found
    words = Page(found).words
    assert "cut to 120 characters" in words
    assert f"{len(request.messages[0].content)} of 507 characters sent" in words


def test_a_tool_result_that_was_cut_is_shown_as_it_was_sent(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Callable[..., Any], now: datetime
) -> None:
    policy = create_policy(
        slug="cut", name="Cut", values={"tool_output_limit": 200}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    work(say("one"), [TextDelta("one"), Finished("stop")])
    result = "x" * 500 + " middle " + "y" * 500
    Message.objects.filter(seq=2).update(
        parts=[
            {"type": "tool_call", "call_id": "1", "name": "look_up", "arguments": "{}"},
            {"type": "tool_result", "call_id": "1", "name": "look_up", "content": result},
            {"type": "text", "text": "Done."},
        ]
    )
    turn = say("two")
    request = work(turn, [TextDelta("two"), Finished("stop")]).scripted.requests[0]

    found = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    sent = next(wire.content for wire in request.messages if wire.role == "tool")
    assert len(sent) <= 200
    assert sent in html.unescape(found)
    assert " middle " not in found
    assert "results cut to 200 characters" in Page(found).words


def test_notes_are_sentences(page: Client, chat: Chat, talk: Callable[..., Turn]) -> None:
    turn = talk("hello")
    notes = ["strategy", "strategy:failed:KeyError", "7:no_result:c1", "messages_joined", "new"]
    Receipt.objects.update(notes=notes)
    EffectivePolicy.objects.update(adjusted=[["keep_last_messages", 3000, 12]])

    words = Page(page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()).words

    assert "The sliding window was used instead. The plugin failed with KeyError." in words
    assert "Message 7: a tool call had no result" in words
    assert str(CHANGES["messages_joined"]) in words
    assert "keep_last_messages is 12 instead of 3,000" in words
    assert "new" in words
    assert "strategy:failed" not in words


@pytest.mark.parametrize(
    ("layout", "numbers"),
    [
        ("multi_turn", ["", "", "", "", ""]),
        ("A", [1, "", 2, 2, ""]),
        ("B", [1, "", 2, 3, ""]),
        ("C", [1, "", 2, 2, ""]),
    ],
)
def test_a_text_layout_shows_which_message_stands_where(layout: str, numbers: list[object]) -> None:
    found = wording.describe_segment_places(
        ["system", "tools", "history", "question", "step"], layout=layout
    )

    assert [re.findall(r"\d+", place) or place for place in found] == [
        [str(n)] if n else "" for n in numbers
    ]


def test_the_places_are_those_of_the_request(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Callable[..., Any], now: datetime
) -> None:
    policy = create_policy(
        slug="text", name="Text", values={"layout": "B"}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    work(say("first"), [TextDelta("one"), Finished("stop")])
    turn = say("second")
    request = work(turn, [TextDelta("two"), Finished("stop")]).scripted.requests[0]

    shown = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()
    words = Page(shown).words

    assert 'data-layout="B"' in shown
    assert "Message 1, in message 1 of the request" in words
    assert "Message 2, in message 1 of the request" in words
    assert "Message 3, in message 2 of the request" in words
    assert "first" in request.messages[0].content
    assert request.messages[1].content == "second"


def test_the_estimate_for_the_provider_has_its_factor(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    receipt = Receipt.objects.get()
    receipt.prompt_tokens, receipt.budget["calibration"] = 1_200, 1.08
    receipt.usage = {"input": 1_310}
    receipt.save()

    words = Page(page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()).words

    assert "Sent ≈ 1,200 tokens, counted by the local tokenizer" in words
    assert "Estimated provider count ≈ 1,296 local count × 1.080" in words
    assert "Counted by the provider 1,310 none read from the cache" in words


def test_a_receipt_says_why_nothing_was_compacted(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    Turn.objects.filter(pk=turn.pk).update(compaction_outcome="not_grown")

    body = page.get(get_chat_url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert 'id="compaction" data-reason="not_grown"' in body
