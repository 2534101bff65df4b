"""Reading a chat."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import escape

from chats.actions import lifecycle
from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.prompt import model_choice
from chats.prompt.composition import PromptRefused
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.record.history import select_path_messages
from chats.turns.start import start_turn
from chats.web.reasons import LEFT_OUT, WINDOW_REASONS
from chats.web.thread import rows
from chats.web.thread.rows import PAGE
from contextpolicy.engine.compose.partition import PartitionError
from contextpolicy.engine.policy.budget import PolicyImpossible
from contextpolicy.models import ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.web.markup import tight
from tests.support.chat_messages import add_messages
from tests.support.chat_pages import HTMX, cut_out_chat, get_chat_url

Talk = Callable[..., Turn]


@pytest.mark.requirement("S5")
def test_a_chat_shows_what_was_said(page: Client, chat: Chat, talk: Talk) -> None:
    talk("What is **bold**?", "It is `code`.")

    html = page.get(get_chat_url(chat)).content.decode()

    assert "What is <strong>bold</strong>?" in html
    assert "It is <code>code</code>." in html
    assert 'data-sent="full"' in html


def test_a_hostile_title_is_text_everywhere(
    page: Client, alice: User, chat: Chat, now: datetime
) -> None:
    title = "<script>alert(1)</script>"
    lifecycle.rename_chat(chat=chat, title=title, actor="user:1", now=now)

    html = page.get(get_chat_url(chat)).content.decode()

    assert title not in html
    assert html.count(escape(title)) >= 3


def test_opening_a_chat_marks_it_read(page: Client, chat: Chat, talk: Talk) -> None:
    talk("hello")
    chat.refresh_from_db()
    assert chat.unread

    page.get(get_chat_url(chat))

    chat.refresh_from_db()
    assert not chat.unread


def test_home_is_the_newest_chat(page: Client, alice: User, chat: Chat, now: datetime) -> None:
    assert page.get("/").headers["Location"] == get_chat_url(chat)


def test_home_without_a_chat_is_the_page_for_a_new_one(page: Client) -> None:
    assert page.get("/").headers["Location"] == "/chats/new"


def test_a_stranger_is_sent_to_the_sign_in_page_and_back(client: Client, chat: Chat) -> None:
    response = client.get(get_chat_url(chat))

    assert response.headers["Location"] == f"/login/?next={get_chat_url(chat)}"


def test_a_partial_for_a_stranger_is_refused_and_the_page_stays(client: Client, chat: Chat) -> None:
    headers = {**HTMX, "HX-Current-URL": f"http://testserver{get_chat_url(chat)}"}
    response = client.get(get_chat_url(chat, "tail"), headers=headers)

    assert response.status_code == 401
    assert "HX-Redirect" not in response.headers
    assert 'data-reason="signed_out"' in response.content.decode()


def test_a_form_that_a_script_sent_is_told_where_to_go(page: Client, chat: Chat) -> None:
    answer = page.post(get_chat_url(chat, "rename"), {"title": "New"}, headers={"X-Page-Form": "1"})

    assert answer.status_code == 204
    assert answer.headers["X-Location"] == get_chat_url(chat)
    assert page.post(get_chat_url(chat, "rename"), {"title": "Newer"}).status_code == 302


def test_times_are_in_the_zone_that_the_browser_told(page: Client, chat: Chat, alice: User) -> None:
    noon = datetime.fromisoformat("2026-11-20T12:00:00+00:00")
    start_turn(user=alice, chat=chat, text="hello", now=noon)

    assert ">12:00</time>" in page.get(get_chat_url(chat)).content.decode()
    page.cookies["zone"] = "Asia/Kolkata"
    assert ">17:30</time>" in page.get(get_chat_url(chat)).content.decode()


@pytest.mark.parametrize("zone", ["Nowhere/Land", "../../etc/passwd", "", "x" * 300, "\x7f"])
def test_a_zone_that_is_none_is_utc(page: Client, chat: Chat, say: Talk, zone: str) -> None:
    say("hello")
    page.cookies["zone"] = zone

    assert ">12:00</time>" in page.get(get_chat_url(chat)).content.decode()


def test_a_long_chat_shows_its_newest_page_and_a_link_to_the_one_before(
    page: Client, chat: Chat, now: datetime
) -> None:
    add_messages(chat, count=2 * PAGE + 10, now=now)

    newest = page.get(get_chat_url(chat)).content.decode()
    assert newest.count("<article") == PAGE
    assert f'href="{get_chat_url(chat)}?before={PAGE + 11}"' in newest

    middle = page.get(get_chat_url(chat) + f"?before={PAGE + 11}").content.decode()
    assert middle.count("<article") == PAGE
    assert "Newest messages" in middle
    assert 'id="tail"' not in middle

    first = page.get(get_chat_url(chat) + "?before=11").content.decode()
    assert first.count("<article") == 10
    assert "?before=" not in first


def test_earlier_messages_alone_are_one_part(page: Client, chat: Chat, now: datetime) -> None:
    add_messages(chat, count=PAGE + 5, now=now)

    html = page.get(get_chat_url(chat) + "?before=6", headers=HTMX).content.decode()

    assert html.lstrip().startswith('<div class="entries" id="entries-6"')
    assert html.count("<article") == 5


@pytest.mark.parametrize("before", ["x", "-1", "9" * 30, "²", ""])
def test_a_position_that_is_none_is_the_newest_page(
    page: Client, chat: Chat, talk: Talk, before: str
) -> None:
    talk("hello")

    assert "hello" in page.get(get_chat_url(chat), {"before": before}).content.decode()


def test_a_page_costs_as_many_queries_for_many_messages_as_for_few(
    page: Client, chat: Chat, talk: Talk, now: datetime, django_assert_max_num_queries: Any
) -> None:
    talk("hello")
    add_messages(chat, count=5 * PAGE, now=now)
    page.get(get_chat_url(chat))

    with django_assert_max_num_queries(36):
        page.get(get_chat_url(chat))


def test_the_list_groups_chats_and_marks_the_current_one(
    page: Client, alice: User, chat: Chat, now: datetime
) -> None:
    other = lifecycle.create_chat(owner=alice, now=now, title="Other")
    Chat.objects.filter(pk=other.pk).update(pinned=True, unread=True)

    html = page.get(get_chat_url(chat)).content.decode()

    assert "Pinned</h2>" in html
    assert "unread reply" in html
    assert html.count('aria-current="page"') == 1


def test_the_page_says_which_policy_decides(page: Client, chat: Chat) -> None:
    assert "Policy<bdi>" in tight(page.get(get_chat_url(chat)).content.decode())


def test_a_chat_without_a_model_stays_readable(
    page: Client, chat: Chat, talk: Talk, demo_model: ModelSpec
) -> None:
    talk("hello")
    demo_model.delete()

    html = page.get(get_chat_url(chat)).content.decode()

    assert "hello" in html
    assert 'data-reason="no_model"' in html


def test_a_summary_in_force_stands_for_its_messages(
    page: Client, chat: Chat, talk: Talk, summary: Callable[..., Compaction]
) -> None:
    talk("the first question")
    talk("the second question")
    row = summary(2)

    html = page.get(get_chat_url(chat)).content.decode()

    assert "the first question" not in cut_out_chat(html)
    assert f'id="compaction-{row.pk}"' in html
    assert 'data-status="published"' in html
    assert "2 messages summarised" in html
    assert re.search(r"≈ \d+ → \d+ tokens", html)
    assert "<strong>ticket 48213</strong>" in html
    assert f"/compactions/{row.pk}/originals" in html
    assert "the second question" in html


def test_a_pinned_message_under_a_summary_stays_in_sight(
    page: Client, chat: Chat, talk: Talk, summary: Callable[..., Compaction], now: datetime
) -> None:
    talk("the house rules")
    talk("the second question")
    Message.objects.filter(seq=1).update(pinned_at=now)
    summary(2, exceptions=[1], source_count=1)

    html = page.get(get_chat_url(chat)).content.decode()

    assert 'data-note="pinned-message"' in html
    assert "the house rules" in cut_out_chat(html)


def test_what_a_window_leaves_out_is_dotted(
    page: Client, chat: Chat, talk: Talk, summary: Callable[..., Compaction]
) -> None:
    talk("the first question")
    talk("the second question")
    summary(2, kind="window", text="", reason="tokens")
    # Another policy with more room would bring the messages back.
    Compaction.objects.update(effective_policy=model_choice.choose_chat_model(chat=chat).effective)

    html = page.get(get_chat_url(chat)).content.decode()

    assert html.count('data-sent="none"') == 2
    assert f"<span data-where>{LEFT_OUT['window'].beside}</span>" in html
    assert "2 messages no longer sent" in html
    assert f"because {WINDOW_REASONS['tokens']}" in html
    assert "prompt ≈ 12.4k → 604 tokens" in html


@pytest.mark.parametrize(
    ("status", "is_told"),
    [("prepared", False), ("undone", False), ("rejected", True), ("failed", True)],
)
def test_a_compaction_that_is_not_in_force_is_told(
    page: Client,
    chat: Chat,
    talk: Talk,
    summary: Callable[..., Compaction],
    status: str,
    is_told: bool,
) -> None:
    talk("the first question")
    reason = "The summary lost 6 of 19 numbers"
    summary(2, status=status, reason=reason, published_at=None)

    html = page.get(get_chat_url(chat)).content.decode()

    assert html.count(f'data-status="{status}"') == 1
    assert (f"{reason}</span>" in html) == is_told
    assert html.count('data-sent="full"') == 2


def test_an_excluded_message_says_that_it_is_not_sent(page: Client, chat: Chat, talk: Talk) -> None:
    talk("hello")
    Message.objects.filter(seq=1).update(excluded=True)

    html = page.get(get_chat_url(chat)).content.decode()
    assert f"<span data-where>{LEFT_OUT['excluded'].beside}</span>" in html


def test_a_tool_call_shows_its_arguments_and_result_as_text(
    page: Client, chat: Chat, talk: Talk
) -> None:
    talk("hello")
    call = {"type": "tool_call", "call_id": "1", "name": "look_up", "arguments": '{"q": "<b>"}'}
    result = {"type": "tool_result", "call_id": "1", "name": "look_up", "content": "<i>found</i>"}
    Message.objects.filter(seq=2).update(parts=[call, result])

    html = page.get(get_chat_url(chat)).content.decode()

    assert "look_up({&quot;q&quot;: &quot;&lt;b&gt;&quot;})" in html
    assert "&lt;i&gt;found&lt;/i&gt;" in html


def test_reasoning_is_folded(page: Client, chat: Chat, talk: Talk) -> None:
    talk("hello")
    parts = [{"type": "reasoning", "text": "Let me think"}, {"type": "text", "text": "Yes"}]
    Message.objects.filter(seq=2).update(parts=parts)

    assert "Reasoning</summary>" in page.get(get_chat_url(chat)).content.decode()


def test_an_erased_message_says_so(page: Client, chat: Chat, talk: Talk, now: datetime) -> None:
    talk("hello")
    Message.objects.filter(seq=1).update(erased_at=now, parts=[])

    html = tight(page.get(get_chat_url(chat)).content.decode())
    assert re.search(r'<p class="muted" data-note="message-erased">[^<]*20 November 2026', html)


def test_a_reply_that_ends_while_the_page_is_read_is_still_followed(
    page: Client, chat: Chat, say: Talk, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = say("hello")

    def end_first(branch: Branch, **bounds: int) -> Any:
        if not turn.is_over:
            work(turn, [TextDelta("All of it."), Finished("stop")])
            branch.refresh_from_db(fields=["last_seq"])
        return select_path_messages(branch, **bounds)

    monkeypatch.setattr("chats.web.thread.rows.select_path_messages", end_first)
    html = page.get(get_chat_url(chat)).content.decode()

    assert html.count("hello</p>") == 1
    assert "data-live" in html
    monkeypatch.undo()
    html = page.get(get_chat_url(chat, "tail"), {"from": "1"}, headers=HTMX).content.decode()
    assert "All of it." in html
    assert "data-live" not in html


def test_the_line_beside_a_message_says_that_its_layout_cannot_show_it(
    page: Client, chat: Chat, talk: Callable[..., Turn], now: datetime
) -> None:
    policy = create_policy(
        slug="text", name="Text", values={"layout": "A"}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    talk("hello")
    call = {"type": "tool_call", "call_id": "1", "name": "look_up", "arguments": "{}"}
    Message.objects.filter(seq=2).update(parts=[call])

    html = page.get(get_chat_url(chat)).content.decode()

    assert f"<span data-where>{LEFT_OUT['tool_parts'].beside}</span>" in html
    assert html.count('data-sent="none"') == 1


@pytest.mark.parametrize(
    "error", [PromptRefused(PolicyImpossible("It does not fit.")), PartitionError("Twice.")]
)
def test_where_nobody_can_tell_what_is_sent_the_page_is_readable(
    page: Client,
    chat: Chat,
    talk: Callable[..., Turn],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    talk("hello")

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(rows, "compose_next_prompt", refuse)
    html = page.get(get_chat_url(chat)).content.decode()

    assert html.count('data-sent="unknown"') == 2
    assert "An answer." in html


def test_under_a_policy_that_cannot_work_a_chat_is_readable_and_says_why(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    talk("hello")
    ModelSpec.objects.update(context_window=10)

    response = page.get(get_chat_url(chat))
    html = response.content.decode()

    assert response.status_code == 200
    assert "An answer." in html
    assert 'data-reason="policy_impossible"' in html


def test_a_reply_tells_what_the_provider_counted(
    page: Client, chat: Chat, say: Callable[[str], Turn], work: Callable[..., Any]
) -> None:
    work(say("hello"), [TextDelta("Hi."), UsageReport(1_234, 56, 0, 0), Finished("stop")])

    assert "1,234 input · 56 output" in page.get(get_chat_url(chat)).content.decode()


@pytest.mark.parametrize(
    ("code", "note", "kept"),
    [
        ("content_filtered", "filtered-reply", "filtered-kept"),
        ("provider_timeout", "incomplete-reply", "incomplete-kept"),
    ],
)
def test_a_reply_cut_by_a_filter_is_labelled_as_that(
    page: Client,
    chat: Chat,
    say: Callable[[str], Turn],
    work: Callable[..., Any],
    code: Any,
    note: str,
    kept: str,
) -> None:
    work(say("hello"), [TextDelta("Half of"), ProviderError(code)])
    html = tight(page.get(get_chat_url(chat)).content.decode())
    assert f'data-note="{note}"' in html
    assert f'data-note="{kept}"' not in html
    assert f"<code>{code}</code>" in html
    assert "Half of" in html
    keep = get_chat_url(chat, f"messages/{Message.objects.get(seq=2).pk}/keep")
    assert f'hx-post="{keep}"' in html
    earlier = page.get(get_chat_url(chat), {"before": 3}).content.decode()
    # An earlier page lacks the end of the thread, which scripts would replace.
    assert 'id="tail"' not in earlier
    assert f'action="{keep}"' in earlier
    assert f'hx-post="{keep}"' not in earlier
    page.post(keep)
    html = page.get(get_chat_url(chat)).content.decode()
    assert f'data-note="{kept}"' in html
    assert f'data-note="{note}"' not in html
