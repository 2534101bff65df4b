"""Requests of past calls over REST, for the owner, and for auditors with a reason."""

import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, Compaction, Message, PassedOn, Receipt
from chats.prompt.sent_request import FAULTS
from chats.record import audit_access
from contextpolicy import event_types, ledger
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.roles import AUDITOR, POLICY_ADMIN, seed_roles
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    SENTENCE,
    SMALL_POLICY,
    Fold,
    Say,
    SetPolicy,
    Work,
    Writes,
    script_summary,
)
from tests.support.clocks import NOON
from tests.support.error_codes import read_status_and_code
from tests.support.sent_requests import REASON, list_read_events, reply_and_get_receipt
from tests.support.streamed_responses import read_stream
from tests.support.summary_attempts import SUMMARY_IN_ONE_REQUEST


@pytest.fixture
def asked_summary(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: SetPolicy, fold: Fold
) -> Compaction:
    """A summary that a model wrote in one call."""
    set_policy(summarization_model=writer.slug, **SUMMARY_IN_ONE_REQUEST)
    writes(*[script_summary()] * 3)
    return fold(long_chat)


def address(receipt: Receipt) -> str:
    """Return the owner's path of a call's request."""
    chat_id = receipt.turn.branch.chat_id
    return f"chats/{chat_id}/turns/{receipt.turn_id}/receipts/{receipt.pk}/request"


def test_the_owner_reads_piece_by_piece_what_was_sent(
    of_alice: Program, chat: Chat, work: Work
) -> None:
    first, second = (
        reply_and_get_receipt(chat, work, text) for text in ("the first", "the second")
    )
    body = of_alice.get(address(second)).json()
    assert (body["fault"], body["sha256"]) == ("", second.prompt_sha256)
    assert [line["text"] for line in body["messages"] if line["kind"] == "new"][-1] == "the second"
    assert body["prefix"]["before"] == str(first.pk)
    assert body["prefix"]["broken_by"] == ""
    parts = [part for line in body["messages"] for part in line["segments"]]
    assert [part["tokens"] for part in parts] == [segment[3] for segment in second.segments]
    assert {part["origin"] for part in parts} == {segment[0] for segment in second.segments}


def test_the_file_is_what_the_page_gives(of_alice: Program, chat: Chat, work: Work) -> None:
    receipt, page = reply_and_get_receipt(chat, work, "it's $HOME"), signed_in(chat.owner)
    web = f"/chats/{chat.pk}/turns/{receipt.turn_id}/request?call={receipt.pk}&as="
    for form in ("json", "curl"):
        file = of_alice.get(f"{address(receipt)}/file", form=form)
        assert file.content == page.get(web + form).content
        assert file["Cache-Control"] == "no-store"
    assert "$API_KEY" in file.content.decode()
    assert of_alice.get(f"{address(receipt)}/file", form="shell").status_code == 400


def test_what_cannot_be_given_whole_is_no_file_and_says_why(
    of_alice: Program, chat: Chat, work: Work
) -> None:
    receipt = reply_and_get_receipt(chat, work, "the order is 4711")
    Message.objects.filter(seq=1).update(parts=[{"type": "text", "text": "the order is 4712"}])
    body = of_alice.get(address(receipt)).json()
    assert (body["fault"], body["messages"]) == ("differs", [])
    assert body["reason"] == FAULTS["differs"]
    assert read_status_and_code(of_alice.get(f"{address(receipt)}/file")) == (
        409,
        "request_not_whole",
    )


def test_a_hidden_text_stays_hidden_from_the_owner_alone(
    of_alice: Program, program: MakeProgram, chat: Chat, work: Work
) -> None:
    hide = {"system_text": "The secret recipe.", "hide_system_text": True}
    policy = create_policy(slug="hide", name="Hide", values=hide, actor="system", now=NOON)
    assign_policy(policy=policy, level="instance", actor="system", now=NOON)
    receipt = reply_and_get_receipt(chat, work, "hello")
    body = of_alice.get(address(receipt))
    assert body.json()["hidden"] is True
    assert "secret recipe" not in body.content.decode()
    assert read_status_and_code(of_alice.get(f"{address(receipt)}/file")) == (
        409,
        "request_not_whole",
    )
    auditor = program(person("priya", AUDITOR))
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    told = auditor.get(f"audit/receipts/{receipt.pk}/request").content.decode()
    assert "secret recipe" in told


def test_an_auditor_reads_only_what_a_reason_opened_and_the_ledger_has_it_first(
    program: MakeProgram, chat: Chat, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = reply_and_get_receipt(chat, work, "my secret canary")
    auditor = program(person("priya", AUDITOR))
    request = f"audit/receipts/{receipt.pk}/request"
    for path in (request, f"{request}/file"):
        refused = auditor.get(path)
        assert read_status_and_code(refused) == (403, "reading_not_open")
        assert "canary" not in refused.content.decode()
    for reason in ("because", "x" * 301):
        answer = auditor.post("audit/readings", {"chat": str(chat.pk), "reason": reason})
        assert read_status_and_code(answer) == (400, "reason_needed")
    nul = auditor.post("audit/readings", {"chat": str(chat.pk), "reason": f"{REASON}\x00"})
    assert nul.status_code in {400, 422}
    nobodys = {"chat": str(receipt.pk), "reason": REASON}
    assert auditor.post("audit/readings", nobodys).status_code == 404
    assert list_read_events("content.opened", chat) == []

    opened = auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert opened.status_code == 201
    assert auditor.get(f"audit/readings/{chat.pk}").json() == opened.json()
    assert auditor.get("audit/readings").json()["data"] == [opened.json()]
    assert [row["reason"] for row in list_read_events("content.opened", chat)] == [REASON]
    assert "my secret canary" in auditor.get(request).content.decode()
    assert list_read_events("content.read", chat) == [{"receipt": str(receipt.pk)}]
    sent = json.loads(auditor.get(f"{request}/file", form="json").content)
    assert sent["messages"][-1]["content"] == "my secret canary"
    assert list_read_events("content.downloaded", chat) == [
        {"receipt": str(receipt.pk), "form": "json"}
    ]
    # If the ledger event cannot be written, the content is not shown.
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "EVENT_TYPES", event_types.EVENT_TYPES - {"content.read"})
        with pytest.raises(ledger.UnknownEventType):
            auditor.get(request)


def test_a_reading_is_ones_own_and_ends_by_hand_or_after_half_an_hour(
    program: MakeProgram, chat: Chat, work: Work
) -> None:
    receipt = reply_and_get_receipt(chat, work, "my secret canary")
    auditor, other = (program(person(name, AUDITOR)) for name in ("priya", "otto"))
    request = f"audit/receipts/{receipt.pk}/request"
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert read_status_and_code(other.get(request)) == (403, "reading_not_open")
    assert other.get("audit/readings").json()["data"] == []
    assert other.call("DELETE", f"audit/readings/{chat.pk}").status_code == 404
    with time_machine.travel(timezone.now() + timedelta(minutes=31)):
        assert read_status_and_code(auditor.get(request)) == (403, "reading_not_open")
        assert auditor.get("audit/readings").json()["data"] == []
    assert auditor.get(request).status_code == 200

    assert auditor.call("DELETE", f"audit/readings/{chat.pk}").status_code == 204
    assert len(list_read_events("content.closed", chat)) == 1
    assert read_status_and_code(auditor.get(request)) == (403, "reading_not_open")
    assert auditor.call("DELETE", f"audit/readings/{chat.pk}").status_code == 404
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert auditor.get(request).status_code == 200


def test_who_is_no_auditor_is_told_of_no_reading(
    program: MakeProgram, of_charlie: Program, chat: Chat, work: Work
) -> None:
    receipt = reply_and_get_receipt(chat, work, "my secret canary")
    wanted = {"chat": str(chat.pk), "reason": REASON}
    for client, status in ((of_charlie, 404), (program(person("petra", POLICY_ADMIN)), 403)):
        assert client.get(f"audit/receipts/{receipt.pk}/request").status_code == status
        assert client.post("audit/readings", wanted).status_code == status
        assert client.get(address(receipt)).status_code == 404
        assert client.post("audit/export", {}).status_code == status
    assert list_read_events("content.opened", chat) == []


def test_the_request_of_a_summary_is_read_by_the_same_rule(
    of_alice: Program, program: MakeProgram, chat: Chat, long_chat: Chat, fold: Fold
) -> None:
    summary = fold(long_chat)
    own = of_alice.get(f"chats/{chat.pk}/compactions/{summary.pk}/request")
    assert (own.status_code, own.json()["compaction"]) == (200, str(summary.pk))
    auditor = program(person("priya", AUDITOR))
    request = f"audit/compactions/{summary.pk}/request"
    assert read_status_and_code(auditor.get(request)) == (403, "reading_not_open")
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert auditor.get(request).json() == own.json()
    assert list_read_events("content.read", chat) == [{"compaction": str(summary.pk)}]


def test_the_request_of_a_summary_is_a_file_by_the_same_rule(
    of_alice: Program,
    program: MakeProgram,
    chat: Chat,
    asked_summary: Compaction,
) -> None:
    own = f"chats/{chat.pk}/compactions/{asked_summary.pk}/request/file"
    body = of_alice.get(own)
    assert [message["role"] for message in body.json()["messages"]] == ["system", "user"]
    assert body["Content-Disposition"] == 'attachment; filename="request.json"'
    curl = of_alice.get(own, form="curl").content.decode()
    assert "$API_KEY" in curl
    assert "/chat/completions" in curl
    assert read_status_and_code(of_alice.get(own, call=9)) == (404, "no_such_call")

    auditor = program(person("priya", AUDITOR))
    theirs = f"audit/compactions/{asked_summary.pk}/request/file"
    assert read_status_and_code(auditor.get(theirs)) == (403, "reading_not_open")
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert auditor.get(theirs).content == body.content
    downloaded = {"compaction": str(asked_summary.pk), "form": "json"}
    assert list_read_events("content.downloaded", chat) == [downloaded]

    # A summary by extraction has no model request, so there is no file.
    Compaction.objects.filter(pk=asked_summary.pk).update(calls=[], salt="")
    assert read_status_and_code(of_alice.get(own)) == (409, "request_not_whole")
    assert read_status_and_code(auditor.get(theirs)) == (409, "request_not_whole")
    assert len(list_read_events("content.downloaded", chat)) == 1


def test_the_request_of_a_summary_stands_beside_the_call_before(
    program: MakeProgram, chat: Chat, asked_summary: Compaction, say: Say, fold: Fold
) -> None:
    for number in range(5):
        say(chat, f"Then {number}? {SENTENCE}", SENTENCE * 6)
    second = fold(chat)
    assert second.previous_id == asked_summary.pk

    mine = signed_in(chat.owner)
    address = f"/chats/{chat.pk}/compactions/{{}}/request"
    gone = 'data-note="no-longer-sent"'
    assert gone not in mine.get(address.format(asked_summary.pk)).content.decode()
    assert gone in mine.get(address.format(second.pk)).content.decode()

    auditor = program(person("priya", AUDITOR))
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    first, after = (
        auditor.get(f"audit/compactions/{row.pk}/request").json() for row in (asked_summary, second)
    )
    kinds = [(line["kind"], line["role"]) for line in after["compared"]]
    assert kinds == [("same", "system"), ("gone", "user"), ("new", "user")]
    assert after["compared"][1]["text"] == first["messages"][1]["text"]
    assert after["compared"][2]["text"] == after["messages"][1]["text"]
    assert [line["kind"] for line in first["compared"]] == ["new", "new"]
    assert first["prefix"] is None
    prefix, (system, _, question) = after["prefix"], after["compared"]
    assert (prefix["messages"], prefix["tokens"]) == (1, system["tokens"])
    assert prefix["broken_by"] == "summary"
    assert question["origins"] == ["summary", "history"]
    seqs = [piece["seq"] for piece in question["segments"]]
    assert seqs[0] is None
    assert seqs[1:] == list(range(asked_summary.to_seq + 1, second.to_seq + 1))


def test_the_pages_have_the_file_of_a_summary_too(asked_summary: Compaction, alice: User) -> None:
    mine = signed_in(alice)
    address = f"/chats/{asked_summary.branch.chat_id}/compactions/{asked_summary.pk}/request"
    assert "?call=1&amp;as=curl" in mine.get(address).content.decode()
    body = mine.get(address, {"as": "json"})
    assert body["Content-Disposition"] == 'attachment; filename="request.json"'
    assert "$API_KEY" in mine.get(address, {"as": "curl"}).content.decode()
    priya = signed_in(person("priya", AUDITOR))
    words = f"/admin/chats/receipt/words/?compaction={asked_summary.pk}"
    shown = priya.post(words, {"reason": REASON}, follow=True).content.decode()
    assert 'name="form" value="curl"' in shown
    assert priya.post(words, {"form": "json"}).content == body.content


def test_the_page_ends_a_reading_too(chat: Chat, work: Work) -> None:
    receipt = reply_and_get_receipt(chat, work, "my secret canary")
    browser = signed_in(person("priya", AUDITOR))
    words = f"/admin/chats/receipt/words/?receipt={receipt.pk}"
    shown = browser.post(words, {"reason": REASON}, follow=True).content.decode()
    assert "my secret canary" in shown
    ended = browser.post(words, {"end": "1"}, follow=True).content.decode()
    assert 'name="reason"' in ended
    assert "canary" not in ended


def test_the_ledger_is_exported_as_the_page_does_it(program: MakeProgram, chat: Chat) -> None:
    auditor = program(person("priya", AUDITOR))
    answer = auditor.post("audit/export", {"q": f"chat:{chat.pk}"})
    assert answer["Content-Type"] == "application/jsonl"
    lines = read_stream(answer).splitlines()
    foot = json.loads(lines[-1])
    assert (foot["rows"], foot["search"]) == (len(lines) - 1, f"chat:{chat.pk}")
    assert (
        lines[0]
        == ledger.format_event_line(AuditEvent.objects.get(chat_id=chat.pk, seq=1)).encode()
    )
    kinds = ["ledger.export_started", "ledger.exported"]
    found = AuditEvent.objects.filter(type__in=kinds).order_by("pk")
    assert [row.type for row in found] == kinds
    assert found[1].data["rows"] == foot["rows"]
    table = read_stream(auditor.post("audit/export", {"form": "csv"}))
    assert table.startswith(b'\xef\xbb\xbf"scope","seq"')
    assert read_status_and_code(auditor.post("audit/export", {"q": "colour:red"}))[0] == 400


@pytest.fixture
def editor(alice: User, program: MakeProgram) -> Program:
    """Alice's client, with permission to change policies."""
    seed_roles()
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    alice.groups.set(alice.groups.model.objects.filter(name=POLICY_ADMIN))
    return program(alice)


def test_the_summariser_is_run_for_real_for_ones_own_chat_alone(
    editor: Program, program: MakeProgram, writes: Writes, writer: ModelSpec, long_chat: Chat
) -> None:
    provider = writes(script_summary())
    values = {**SMALL_POLICY, **SUMMARY_IN_ONE_REQUEST, "summarization_model": "writer"}
    asked = {"chat": str(long_chat.pk), "values": values}
    governor = program(person("petra", POLICY_ADMIN))
    assert governor.post("policies/preview/trial", asked).status_code == 404
    narrow = program(long_chat.owner, scopes=("policy:write",))
    assert read_status_and_code(narrow.post("policies/preview/trial", asked)) == (
        403,
        "insufficient_scope",
    )
    broken = editor.post("policies/preview/trial", {**asked, "values": {"strategy": "none"}})
    assert read_status_and_code(broken) == (422, "policy_impossible")
    assert provider.requests == []

    made = editor.post("policies/preview/trial", asked)
    assert made.status_code == 200
    assert (made.json()["text"], made.json()["input"]) == (GOOD_SUMMARY, 1_000)
    assert made.json()["cost"]["unknown"] in {0, 1}
    assert len(provider.requests) == PassedOn.objects.count() == 1
    assert AuditEvent.objects.filter(type="summary.tried").count() == 1
    idle = {**values, "summarization_model": ""}
    refused = editor.post("policies/preview/trial", {**asked, "values": idle})
    assert read_status_and_code(refused) == (409, "no_summariser")


def test_an_owner_hears_who_read_what_unless_the_instance_does_not_tell(
    of_alice: Program, program: MakeProgram, chat: Chat, settings: Any
) -> None:
    auditor = program(person("priya", AUDITOR))
    auditor.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})

    def told(client: Program) -> set[str]:
        events = client.get("audit/events", chat=str(chat.pk)).json()["data"]
        return {event["type"] for event in events}

    assert "content.opened" in told(of_alice) & told(auditor)
    settings.OWNERS_SEE_READINGS = False
    assert not told(of_alice) & set(audit_access.CONTENT)
    assert "content.opened" in told(auditor)
