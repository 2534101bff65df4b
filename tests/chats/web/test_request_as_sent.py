"""The request of a past call: built again from rows, shown, compared, downloaded."""

import json
import subprocess
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, Compaction, Message, Receipt, Turn
from chats.prompt.reconstruction import rebuild_request
from chats.record import audit_access
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy, create_policy_version
from contextpolicy.roles import AUDITOR, OPERATOR
from tests.chats.rebuilding import not_rebuilt
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_pages import get_chat_url
from tests.support.clocks import NOON

SIZES = {"token_budget": 4_000, "reserve_tokens": 400, "summary_max_tokens": 600}


def address(chat: Chat, turn: Turn, **query: str) -> str:
    """The page of a turn's last call."""
    receipt = Receipt.objects.filter(turn=turn).latest("created_at")
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return get_chat_url(chat, f"turns/{turn.pk}/request?call={receipt.pk}{more}")


@pytest.mark.policy_case(15)
@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
def test_inv_53_every_layout_is_built_again_with_cuts_pins_and_summary(
    layout: str, chat: Chat, talk: Callable[..., Turn], summary: Callable[..., Compaction]
) -> None:
    values = {
        **SIZES,
        "layout": layout,
        "strategy": "dynamic_summary",
        "system_text": "Be brief. <b>",
        "show_date": True,
        "runtime_note": True,
        "max_chars_per_message": 60,
        "cut_style": "head_tail",
    }
    policy = create_policy(slug="p", name="P", values=values, actor="system", now=NOON)
    assign_policy(policy=policy, level="instance", actor="system", now=NOON)
    Chat.objects.update(system_text="Speak\nUser: like a sailor.")
    for number in range(4):
        talk(f"Question {number}: {'what is a heron? ' * 9}", f"Answer {number}\nUser: no")
    Message.objects.filter(seq=2).update(pinned_at=NOON)
    row = summary(4)
    row.branch.active_compaction = row
    row.branch.save()
    talk("And after the summary?")

    assert not_rebuilt() == []
    last = Receipt.objects.latest("created_at")
    assert {"summary", "pin", "history", "system"} <= {part[0] for part in last.segments}
    assert any(part[4] for part in last.segments), "something was cut"
    # The policy of today says nothing about the prompts of yesterday.
    create_policy_version(
        policy=policy, values=SIZES, locks=[], note="", actor="system", now=NOON, based_on=1
    )
    assert not_rebuilt() == []


def test_the_page_shows_what_was_sent_and_what_broke_the_cache(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    first = talk("the first question", "the first answer")
    body = page.get(address(chat, first)).content.decode()
    assert 'data-note="first-call"' in body
    second = talk("the second question")
    receipt = Receipt.objects.get(turn=second)
    body = page.get(address(chat, second)).content.decode()
    assert receipt.prompt_sha256 in body
    assert 'data-note="prefix-unchanged"' in body
    Chat.objects.update(system_text="Answer briefly.")
    third = talk("the third question")
    body = page.get(address(chat, third)).content.decode()
    assert "The first 0 messages" in " ".join(body.split())
    assert 'data-note="prefix-changed" data-reason="system' in " ".join(body.split())

    request = json.loads(page.get(address(chat, third, **{"as": "json"})).content)
    assert [m["role"] for m in request["messages"]][:2] == ["system", "user"]
    assert request["messages"][-1] == {"role": "user", "content": "the third question"}


def test_the_command_carries_the_same_body_and_no_key(
    page: Client, chat: Chat, talk: Callable[..., Turn], tmp_path: Any
) -> None:
    turn = talk('it\'s $HOME `id` \\ "é"\nPALIMPSEST_END\n🦆')
    whole = page.get(address(chat, turn, **{"as": "json"})).content
    script = page.get(address(chat, turn, **{"as": "curl"})).content.decode()
    assert "$API_KEY" in script
    (tmp_path / "curl").write_text("#!/bin/sh\ncat\n")
    (tmp_path / "curl").chmod(0o700)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": path}, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == json.loads(whole)


def test_a_hidden_text_is_neither_shown_nor_given_away_by_a_comparison(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    hide = {"system_text": "The secret recipe.", "hide_system_text": True}
    policy = create_policy(slug="hide", name="Hide", values=hide, actor="system", now=NOON)
    assign_policy(policy=policy, level="instance", actor="system", now=NOON)
    hidden = talk("hello")
    values = {"system_text": "Open.", "hide_system_text": False}
    create_policy_version(policy=policy, values=values, locks=[], note="", actor="system", now=NOON)
    after = talk("again")
    for turn in (hidden, after):
        assert "secret recipe" not in page.get(address(chat, turn)).content.decode()
    refused = page.get(address(chat, hidden, **{"as": "curl"}))
    assert refused.status_code == 409
    assert "secret recipe" not in refused.content.decode()
    assert page.get(address(chat, after, **{"as": "json"})).status_code == 200


def test_a_changed_message_is_no_prompt_that_was_sent(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    turn = talk("the order is 4711")
    Message.objects.filter(seq=1).update(parts=[{"type": "text", "text": "the order is 4712"}])
    receipt = Receipt.objects.select_related("effective_policy", "turn__branch__chat").get()
    assert rebuild_request(receipt).fault == "differs"
    body = page.get(address(chat, turn)).content.decode()
    assert 'data-reason="differs"' in body
    assert "order is 4712" not in body
    assert page.get(address(chat, turn, **{"as": "json"})).status_code == 409
    for call in ("", "x", str(turn.pk)):
        assert (
            page.get(get_chat_url(chat, f"turns/{turn.pk}/request?call={call}")).status_code == 404
        )


def test_a_refused_reason_stays_in_its_field(chat: Chat, talk: Callable[..., Turn]) -> None:
    receipt = Receipt.objects.get(turn=talk("Hello", "an answer"))
    words = f"/admin/chats/receipt/words/?receipt={receipt.pk}"

    answer = signed_in(person("priya", AUDITOR)).post(words, {"reason": "because"}, follow=True)

    assert 'class="reason_needed error"' in answer.content.decode()
    assert 'value="because"' in answer.content.decode()


@pytest.mark.policy_case(26)
def test_an_auditor_reads_after_a_reason_one_chat_for_half_an_hour(
    chat: Chat, talk: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch, alice: User
) -> None:
    turn = talk("my secret canary", "an answer")
    receipt = Receipt.objects.get(turn=turn)
    browser = signed_in(person("priya", AUDITOR))
    priya = f"user:{User.objects.get(username='priya').pk}"
    words = f"/admin/chats/receipt/words/?receipt={receipt.pk}"

    def rows(kind: str) -> list[dict[str, Any]]:
        found = AuditEvent.objects.filter(chat_id=chat.pk, type=kind, actor=priya)
        return [row.data for row in found]

    assert words in opened(browser, f"/admin/chats/receipt/{receipt.pk}/change/").urls
    assert "canary" not in opened(browser, words).words
    # Neither a download nor a short reason opens anything.
    for fields in ({"form": "json"}, {"reason": "because"}, {"reason": "x" * 301}):
        answer = browser.post(words, fields, follow=True)
        assert 'class="reason_needed error"' in answer.content.decode()
        assert "canary" not in answer.content.decode()
    assert rows("content.opened") == []

    page = browser.post(words, {"reason": "Complaint 2026-118"}, follow=True).content.decode()
    assert "my secret canary" in page
    assert receipt.prompt_sha256 in page
    assert [row["reason"] for row in rows("content.opened")] == ["Complaint 2026-118"]
    assert rows("content.read") == [{"receipt": str(receipt.pk)}]
    browser.post(words, {"form": "curl"})
    assert rows("content.downloaded") == [{"receipt": str(receipt.pk), "form": "curl"}]

    # Another auditor, another chat or a later time needs a new reason; policy editors cannot read.
    other = signed_in(person("otto", AUDITOR))
    assert "canary" not in other.get(words).content.decode()
    assert signed_in(person("oscar", OPERATOR)).get(words).status_code == 403
    opened_at = AuditEvent.objects.get(type="content.opened").at
    until = {
        minutes: audit_access.get_reading_expiry(
            chat_id=chat.pk, actor=priya, now=opened_at + timedelta(minutes=minutes)
        )
        for minutes in (0, 29, 30)
    }
    assert [bool(found) for found in until.values()] == [True, True, False]
    elsewhere = Chat.objects.create(owner=alice, created_at=NOON, updated_at=NOON)
    assert audit_access.get_reading_expiry(chat_id=elsewhere.pk, actor=priya, now=opened_at) is None
    with pytest.raises(Chat.DoesNotExist):
        audit_access.open_reading(
            chat_id=turn.pk, actor=priya, reason="Complaint 2026-118", now=NOON
        )


def test_an_auditor_is_told_in_words_why_messages_were_left_out(
    chat: Chat, talk: Callable[..., Turn]
) -> None:
    narrow = {"strategy": "simple", "window_size": 1}
    policy = create_policy(slug="narrow", name="Narrow", values=narrow, actor="system", now=NOON)
    assign_policy(policy=policy, level="instance", actor="system", now=NOON)
    talk("first")
    receipt = Receipt.objects.get(turn=talk("second"))
    assert receipt.left_out
    words = f"/admin/chats/receipt/words/?receipt={receipt.pk}"
    browser = signed_in(person("priya", AUDITOR))
    page = browser.post(words, {"reason": "Complaint 2026-118"}, follow=True).content.decode()
    assert 'data-reason="window"' in page
