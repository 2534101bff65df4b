"""The page of one compaction: its numbers, its losses, its changes, and its text to correct."""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils.html import escape

from chats.compaction.people.undo import NothingToRedo
from chats.compaction.sections import parse_sections
from chats.models import Chat, Compaction, Message, Turn
from chats.web.reasons import NOT_USED
from contextpolicy.models import AuditEvent
from tests.chats.web.markup import tight
from tests.support.chat_pages import HTMX, get_chat_url
from tests.support.compactions_on_pages import Policy, get_branch

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]
TEXT = "## Facts\n- Eva has ticket AB-48213 [#1]\n\n## Decisions\n- Wait"
SUMMARY = 'id="summary"'
LOST = {"kept": {"identifier": ["AB-48213"]}, "lost": {"url": ["https://a.example/e47"]}}


@pytest.fixture
def folded(chat: Chat, talk: Talk, summary: Fold) -> Compaction:
    """Two turns, the first of them under a summary that lost an address."""
    talk("Ticket AB-48213, see https://a.example/e47 first, then call <b>Eva</b> about it.")
    talk("the second question")
    return summary(
        2,
        text=TEXT,
        sections=parse_sections(TEXT),
        summary_tokens=20,
        retention=LOST,
        model_name="qwen3",
        duration_ms=9400,
        cost="0.0012",
        text_commitment="ab" * 32,
    )


def address(chat: Chat, row: Compaction, rest: str = "") -> str:
    """Return the page of a compaction, or one of its subpages."""
    return get_chat_url(chat, f"compactions/{row.pk}/{rest}")


def test_the_page_tells_the_numbers(page: Client, chat: Chat, folded: Compaction) -> None:
    html = tight(page.get(address(chat, folded)).content.decode())

    assert 'data-status="in_use"' in html
    assert "messages 1 to 2" in html
    assert "qwen3" in html
    assert "9.4 s" in html
    assert "0.0012" in html
    assert "1 of 2" in html
    assert 'role="img" aria-label="Before: ' in html
    assert "then call &lt;b&gt;Eva&lt;/b&gt;" in html


def test_the_page_says_what_started_a_summary(page: Client, chat: Chat, folded: Compaction) -> None:
    for trigger, code in (
        ("turns", "turns"),
        ("overflow", "overflow"),
        ("prepare", "over_mark"),
    ):
        Compaction.objects.filter(pk=folded.pk).update(trigger=trigger)
        html = page.get(address(chat, folded)).content.decode()
        assert re.findall(r'class="figure__note" data-reason="(\w+)"', html) == [code]


def test_a_lost_fact_is_shown_where_it_was_said_and_can_be_added(
    page: Client, chat: Chat, folded: Compaction
) -> None:
    html = page.get(address(chat, folded)).content.decode()
    assert "<mark>https://a.example/e47</mark>" in html
    assert "?edit=1&amp;add=1" in html

    html = page.get(address(chat, folded), {"edit": "1", "add": "1"}).content.decode()

    text = html.split("<textarea")[1].split("</textarea>")[0]
    facts, _, decisions = text.partition("## Decisions")
    assert "https://a.example/e47 first" in facts
    assert "[#1]\n- Ticket" in facts
    assert "e47" not in decisions


@pytest.mark.parametrize("number", ["0", "2", "x", "9" * 30])
def test_adding_what_was_not_lost_adds_nothing(
    page: Client, chat: Chat, folded: Compaction, number: str
) -> None:
    html = page.get(address(chat, folded), {"edit": "1", "add": number}).content.decode()
    assert html.split("<textarea")[1].split("</textarea>")[0].endswith(f">\n{TEXT}")


def test_an_edit_is_a_version_beside_the_model_s(
    page: Client, chat: Chat, folded: Compaction
) -> None:
    text = TEXT.replace("Wait", "Call her")

    response = page.post(address(chat, folded, "revise"), {"text": text})

    new = Compaction.objects.get(revises=folded)
    assert response.headers["Location"] == address(chat, new)
    html = tight(page.get(address(chat, new)).content.decode())
    assert 'data-note="edited-by-you"' in html
    assert ">- Wait</del>" in html
    assert ">- Call her</ins>" in html
    assert "compaction.revised" in html
    assert get_branch(chat).active_compaction == new
    assert 'data-reason="revision"' in page.get(get_chat_url(chat)).content.decode()


@pytest.mark.parametrize(
    ("text", "code"), [(" ", "summary_empty"), ("word " * 4000, "summary_too_long")]
)
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "htmx"])
def test_a_refused_edit_stays_in_the_editor(
    page: Client, chat: Chat, folded: Compaction, text: str, code: str, headers: dict[str, str]
) -> None:
    response = page.post(address(chat, folded, "revise"), {"text": text}, headers=headers)

    html = response.content.decode()
    assert response.status_code == 422
    assert f'role="alert" data-reason="{code}"' in html
    assert 'aria-invalid="true"' in html
    assert text.strip()[:40] in html.split("<textarea")[1]
    assert not Compaction.objects.filter(revises=folded).exists()


def test_a_policy_may_keep_edits_to_itself(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy(edit_right="nobody")
    response = page.post(address(chat, folded, "revise"), {"text": "- Mine"})
    assert response.status_code == 403
    assert 'data-reason="not_allowed_by_policy"' in response.content.decode()


def test_a_text_is_weighed_and_stored_nowhere(page: Client, chat: Chat, folded: Compaction) -> None:
    events = AuditEvent.objects.count()
    where = address(chat, folded, "weigh")

    html = page.post(where, {"text": TEXT}, headers=HTMX).content.decode()
    assert "tokens" in html
    assert "Still missing" in html
    html = page.post(where, {"text": ""}, headers=HTMX).content.decode()
    assert 'data-reason="summary_empty"' in html

    folded.refresh_from_db()
    assert (folded.text, AuditEvent.objects.count()) == (TEXT, events)


def test_any_two_summaries_are_compared(
    page: Client, chat: Chat, folded: Compaction, summary: Fold
) -> None:
    other = summary(1, status="undone", text="- Something else")
    foreign = "00000000-0000-0000-0000-000000000000"

    html = tight(page.get(address(chat, folded), {"with": str(other.pk)}).content.decode())
    assert "Something else</" in html
    assert f'<option value="{other.pk}" selected>' in html
    html = page.get(address(chat, folded), {"with": foreign}).content.decode()
    assert 'class="diff"' not in html


def test_every_state_has_its_words(
    page: Client, chat: Chat, folded: Compaction, summary: Fold
) -> None:
    for fields, code, part in (
        ({"status": "undone"}, "undone", escape(NothingToRedo().localized)),
        ({"status": "rejected", "reason": "not_smaller"}, "rejected", NOT_USED["not_smaller"]),
        ({"status": "failed", "reason": "odd", "text": ""}, "failed", 'data-note="no-text-stored"'),
        (
            {"status": "overtaken", "reason": "context_changed"},
            "overtaken",
            'data-reason="context_changed"',
        ),
        ({"status": "replaced"}, "replaced", SUMMARY),
        ({"status": "prepared", "needs_approval": True}, "pending_approval", 'id="approval"'),
    ):
        row = summary(2, **{"text": "- Words", **fields})
        html = tight(page.get(address(chat, row)).content.decode())
        assert re.search(rf'data-status="{code}">\w', html), fields
        assert str(part) in html, fields
        row.delete()
    row = summary(2, status="replaced", kind="window", text="")
    html = tight(page.get(address(chat, row)).content.decode())
    assert re.search(r'data-status="replaced">\w', html)
    assert SUMMARY not in html


def test_an_erased_summary_says_so(
    page: Client, chat: Chat, folded: Compaction, summary: Fold
) -> None:
    row = summary(2, status="overtaken", text="", erased_at=folded.created_at)
    html = page.get(address(chat, row)).content.decode()
    assert 'data-note="summary-erased"' in html
    assert 'data-note="no-text-stored"' not in html


def test_pinned_messages_in_the_range_are_no_originals_of_it(
    page: Client, chat: Chat, folded: Compaction
) -> None:
    Message.objects.filter(seq=2).update(pinned_at=folded.created_at)
    Compaction.objects.filter(pk=folded.pk).update(exceptions=[2])
    assert "always sent" in page.get(address(chat, folded)).content.decode()
