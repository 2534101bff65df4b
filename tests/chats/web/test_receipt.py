"""What the model saw, call by call."""

from collections.abc import Callable

from django.test import Client

from chats.models import Chat, Message, PromptText, Receipt, Turn
from tests.chats.web.test_chat_page import url


def test_a_receipt_shows_the_prompt_in_order(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    chat.system_text = "Answer <briefly>."
    chat.save()
    talk("the first question", "the first answer")
    turn = talk("the second question")

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    order = [
        "Answer &lt;briefly&gt;.",
        "the first question",
        "the first answer",
        "the second question",
    ]
    places = [html.index(words, html.index("Prompt, in sending order")) for words in order]
    assert places == sorted(places)
    assert "answered</span>" in html
    assert "Nothing: every message of the chat was sent." in html


def test_what_was_left_out_has_its_reason(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    Receipt.objects.update(left_out=[[1, 42, "covered"], [43, 43, "budget"], [44, 45, "odd"]])

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "Messages 1 to 42" in html
    assert "Folded into the summary" in html
    assert "Message 43</th>" in html
    assert ">odd</td>" in html


def test_a_hidden_system_text_is_shown_by_size_only(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    chat.system_text = "The secret recipe."
    chat.save()
    turn = talk("hello")
    policy = Receipt.objects.get().effective_policy
    policy.values["hide_system_text"] = True
    policy.save()

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "The secret recipe." not in html
    assert "The policy hides this text. 18 characters, SHA-256" in html


def test_texts_that_are_gone_say_so(page: Client, chat: Chat, talk: Callable[..., Turn]) -> None:
    chat.system_text = "Something."
    chat.save()
    turn = talk("hello")
    PromptText.objects.all().delete()

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "This text is no longer stored." in html


def test_a_turn_without_a_call_says_so(
    page: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "No call was made yet" in html


def test_several_calls_are_told_apart(page: Client, chat: Chat, talk: Callable[..., Turn]) -> None:
    turn = talk("hello")
    receipt = Receipt.objects.get()
    Receipt.objects.filter(pk=receipt.pk).update(outcome="failed", error_code="provider_timeout")
    receipt.pk, receipt.call = None, 2
    receipt.save(force_insert=True)

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "Call 1, step 1, attempt 1" in html
    assert "Call 2, step 1, attempt 1" in html
    assert "failed: provider_timeout" in html


def test_the_provider_s_count_stands_beside_ours(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    Receipt.objects.update(usage={"input_tokens": 1533, "cached_tokens": 708})

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "1,533" in html
    assert "708 of them from its cache" in html


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

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "look_up({})\nfound it" in html


def test_a_segment_that_was_cut_says_to_how_much(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    receipt = Receipt.objects.get()
    receipt.segments[-1][4], receipt.segments[-1][6] = 4000, 8000
    receipt.save()

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "cut to 4,000 characters" in html
    assert "results cut to 8,000 characters" in html


def test_a_receipt_says_why_nothing_was_compacted(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("hello")
    Turn.objects.filter(pk=turn.pk).update(compaction_outcome="not_grown")

    html = page.get(url(chat, f"turns/{turn.pk}/receipt")).content.decode()

    assert "Compaction after this turn" in html
    assert "hardly grown since the last compaction" in html
