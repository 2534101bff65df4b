"""The state pages of a chat: view, correct and clear it; other users have no access."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.actions import state_edits
from chats.models import Branch, Chat, ChatState, Message, Turn
from chats.prompt.meter_parts import HISTORY_REPLACED
from chats.providers.base import Finished, TextDelta
from chats.record.states import StateChanged
from chats.turns.start import start_turn
from chats.web.reasons import LEFT_OUT
from chats.web.receipt_labels import PARTS
from chats.web.state.form import build_control_name
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.publish import create_policy_version
from tests.chats.states import SCHEMA, keep_a_state, lay
from tests.chats.web.markup import described, tight
from tests.support.chat_pages import HTMX

XSS = "<script>alert(1)</script>"
EMPTY = {build_control_name(name): "" for name in SCHEMA["properties"]}
CLASS, DATE, DESTINATION, INSURED, PEOPLE, WISHES = sorted(EMPTY)


def newest(chat: Chat) -> ChatState:
    return ChatState.objects.filter(branch__chat=chat).order_by("-version")[0]


def address(chat: Chat, part: str = "state") -> str:
    return f"/chats/{chat.pk}/{part}"


@pytest.mark.requirement("S2.5", by="user")
def test_the_chat_shows_each_field_with_its_source(
    page: Client, chat: Chat, kept: ChatState
) -> None:
    body = page.get(address(chat, "")).content.decode()
    panel = tight(body[body.index('id="chat-state"') :])
    assert ": 1 of 6 fields known" in panel
    assert "Oslo" in panel
    assert "extracted from message 1" in panel
    assert "unknown" in panel


def test_other_policies_show_no_state(page: Client, chat: Chat, now: datetime) -> None:
    body = page.get(address(chat, "")).content.decode()
    assert 'id="chat-state"' not in body
    assert 'id="state-place"' in body
    answer = page.get(address(chat))
    assert answer.status_code == 409
    assert 'data-reason="no_state"' in answer.content.decode()


def test_the_meter_counts_the_state_in_place_of_dialogue(
    page: Client, chat: Chat, kept: ChatState, talk: Callable[..., Turn]
) -> None:
    talk("Hello")
    body = page.get(address(chat, "meter")).content.decode()
    assert "Replaces the dialogue: messages 1 to 2" in body
    assert str(HISTORY_REPLACED) in body


def test_the_new_state_comes_with_the_end_of_a_reply(
    page: Client, chat: Chat, kept: ChatState
) -> None:
    body = page.get(address(chat, "tail"), headers=HTMX).content.decode()
    assert '<div id="state-place" hx-swap-oob="true">' in body


@pytest.mark.requirement("S2.5", by="user")
@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "htmx"])
def test_a_correction_is_the_next_version(
    page: Client, chat: Chat, kept: ChatState, alice: User, headers: dict[str, str]
) -> None:
    said = {
        DESTINATION: "Rome",
        DATE: "2026-05-03",
        PEOPLE: "2",
        CLASS: '"first"',
        INSURED: "true",
        WISHES: '["a window"]',
    }
    answer = page.post(address(chat), {"version": 1, **said}, headers=headers)
    assert answer.status_code == (200 if headers else 302)
    if headers:
        assert 'data-note="state-saved"' in answer.content.decode()
    row = newest(chat)
    assert (row.version, row.kind, row.corrected_by) == (2, "corrected", alice)
    assert row.values == {
        "destination": "Rome",
        "date": "2026-05-03",
        "people": 2,
        "class": "first",
        "insured": True,
        "wishes": ["a window"],
    }
    event = AuditEvent.objects.get(type="state.corrected")
    assert event.actor == f"user:{alice.pk}"
    assert event.data == {
        "state": str(row.pk),
        "version": 2,
        "fields": sorted(SCHEMA["properties"]),
    }
    body = page.get(address(chat)).content.decode()
    assert body.count("Corrected by you after message 0") == 6
    assert 'value="2026-05-03"' in body


def test_a_field_left_empty_is_not_known_any_more(
    page: Client, chat: Chat, kept: ChatState
) -> None:
    page.post(address(chat), {"version": 1, **EMPTY, PEOPLE: "3"})
    assert newest(chat).values == {"people": 3}


def test_saving_what_is_there_changes_nothing(page: Client, chat: Chat, kept: ChatState) -> None:
    page.post(address(chat), {"version": 1, **EMPTY, DESTINATION: "Oslo"})
    assert newest(chat) == kept
    assert not AuditEvent.objects.filter(type="state.corrected").exists()


def test_a_state_that_changed_meanwhile_is_not_written_over(
    page: Client, chat: Chat, kept: ChatState, now: datetime
) -> None:
    lay(chat, {"destination": "Bergen"}, now=now, seq=3)
    for headers in ({}, HTMX):
        answer = page.post(
            address(chat), {"version": 1, **EMPTY, DESTINATION: "Rome"}, headers=headers
        )
        body = answer.content.decode()
        assert answer.status_code == (200 if headers else 409)
        assert "The state has changed since you opened it and is now at version 2." in body
        assert 'id="typed"' in body
        assert "Rome" in body
        assert 'name="version" value="2"' in body
        assert 'value="Bergen"' in body
    assert newest(chat).values == {"destination": "Bergen"}
    answer = page.post(address(chat, "state/reset"), {"version": 1})
    assert answer.status_code == 409
    assert newest(chat).version == 2


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({DESTINATION: "x" * 81}, "at most 80 characters"),
        ({DATE: "soon"}, "must be a date"),
        ({PEOPLE: "0"}, "must be at least 1"),
        ({PEOPLE: "two"}, "whole number"),
        ({CLASS: '"third"'}, "Select a valid choice"),
        ({WISHES: "no json"}, "valid JSON"),
        ({WISHES: "[" * 2_000}, "valid JSON"),
        ({WISHES: "1" * 5_000}, "valid JSON"),
        ({WISHES: '{"a": 1}'}, "must be of type array"),
        ({WISHES: '["%s"]' % ("x" * 17_000)}, "The limit is 16,384"),
        ({WISHES: r'["\u0000"]'}, "NUL"),
        ({WISHES: r'["\ud83d"]'}, "surrogate"),
        ({DESTINATION: "a\0b"}, "Null characters"),
    ],
    ids=range(13),
)
def test_what_does_not_fit_is_refused_and_stays_in_the_form(
    page: Client, chat: Chat, kept: ChatState, said: dict[str, str], sentence: str
) -> None:
    answer = page.post(address(chat), {"version": 1, **EMPTY, DESTINATION: "Nowhere", **said})
    body = answer.content.decode()
    assert answer.status_code == 422
    assert sentence in body
    if DESTINATION not in said:
        assert 'value="Nowhere"' in body
    assert newest(chat) == kept


def test_errors_and_helps_are_tied_to_their_fields(page: Client, chat: Chat, now: datetime) -> None:
    a, b = map(build_control_name, "ab")
    properties = {"a": {"type": "integer", "description": "How many come"}, "b": {"type": "number"}}
    keep_a_state(now=now, state_schema={"type": "object", "properties": properties})
    assert described(page.get(address(chat)).content.decode()) == {a: f"id_{a}_helptext"}
    body = page.post(address(chat), {"version": 0, a: "two", b: "x"}).content.decode()
    assert described(body) == {a: f"id_{a}_helptext id_{a}_error", b: f"id_{b}_error"}


def test_fields_that_were_left_alone_are_not_called_typed(
    page: Client, chat: Chat, now: datetime
) -> None:
    keep_a_state(now=now)
    lay(chat, {"destination": "Oslo", "people": 2, "wishes": ["a window"]}, now=now)
    lay(chat, {"destination": "Bergen", "people": 2, "wishes": []}, now=now, seq=3)
    said = {DESTINATION: "Oslo", PEOPLE: "3", WISHES: '["a window"]'}
    answer = page.post(address(chat), {"version": 1, **EMPTY, **said})
    assert [(field.label, field.value) for field in answer.context["typed"]] == [("people", "3")]
    # For an unknown version, every inactive value may have been typed.
    answer = page.post(address(chat), {"version": "x", **EMPTY, **said})
    assert [field.label for field in answer.context["typed"]] == ["Destination", "people", "wishes"]


@pytest.mark.parametrize("version", ["", "x", "-1", "9" * 40])
def test_a_form_without_a_version_that_was_seen_saves_nothing(
    page: Client, chat: Chat, kept: ChatState, version: str
) -> None:
    assert page.post(address(chat), {**EMPTY, "version": version}).status_code == 409
    assert newest(chat) == kept


def test_the_state_is_emptied(page: Client, chat: Chat, kept: ChatState, alice: User) -> None:
    answer = page.post(address(chat, "state/reset"), {"version": 1}, headers=HTMX)
    assert "State cleared." in answer.content.decode()
    row = newest(chat)
    assert (row.version, row.kind, row.values) == (2, "reset", {})
    assert AuditEvent.objects.get(type="state.reset").data["fields"] == ["destination"]
    page.post(address(chat, "state/reset"), {"version": 2})
    assert newest(chat) == row


@pytest.mark.requirement("S2.5", by="user")
def test_a_correction_counts_from_the_next_turn_on(
    page: Client,
    chat: Chat,
    alice: User,
    now: datetime,
    work: Callable[..., Any],
) -> None:
    keep_a_state(now=now)
    found = [TextDelta('{"destination": "Oslo"}'), Finished("stop")]
    reply = [TextDelta("Fine."), Finished("stop")]
    work(start_turn(user=alice, chat=chat, text="To Oslo", now=now).turn, found, reply)
    page.post(address(chat), {"version": 1, **EMPTY, DESTINATION: "Rome"})
    assert newest(chat).to_seq == 2

    turn = start_turn(user=alice, chat=chat, text="For two", now=now).turn
    both = [TextDelta('{"destination": "Rome", "people": 2}'), Finished("stop")]
    worker = work(turn, both, reply)
    assert '{"destination": "Rome"}' in worker.scripted.requests[0].messages[1].content
    assert "To Oslo" not in worker.scripted.requests[0].messages[1].content
    assert '{"destination": "Rome", "people": 2}' in (
        worker.scripted.requests[1].messages[0].content
    )
    body = page.get(address(chat)).content.decode()
    assert "Corrected by you after message 2" in body
    assert "Extracted from message 3" in body


def test_a_correction_during_a_reply_leaves_its_message_to_be_read(
    page: Client, chat: Chat, kept: ChatState, say: Callable[[str], Turn]
) -> None:
    turn = say("Go on")
    branch = Branch.objects.get(pk=turn.branch_id)
    Message.objects.filter(turn=None, branch=branch).update(seq=1, turn=turn)
    Branch.objects.filter(pk=branch.pk).update(last_seq=5)
    Turn.objects.filter(pk=turn.pk).update(
        status="running", lease_token="t", lease_until="2100-01-01T00:00:00Z"
    )
    page.post(address(chat), {"version": 1, **EMPTY, DESTINATION: "Rome"})
    assert newest(chat).to_seq == kept.to_seq == 1


def test_values_are_shown_as_text(page: Client, chat: Chat, now: datetime) -> None:
    keep_a_state(now=now)
    lay(chat, {"destination": XSS, "wishes": [XSS]}, now=now)
    for part in ("", "state", "tail"):
        body = page.get(address(chat, part), headers=HTMX if part == "tail" else {}).content
        assert b"&lt;script&gt;alert" in body
        assert b"<script>alert" not in body
    answer = page.post(address(chat), {"version": 0, **EMPTY, DESTINATION: XSS}, headers=HTMX)
    assert b"<script>alert" not in answer.content


def test_fields_of_an_older_schema_are_shown_and_stay(
    page: Client, chat: Chat, now: datetime
) -> None:
    open_schema = {**SCHEMA, "additionalProperties": True}
    keep_a_state(now=now, state_schema=open_schema)
    lay(chat, {"mood": "good"}, now=now)
    body = page.get(address(chat)).content.decode()
    assert 'data-note="undeclared-field"' in body
    page.post(address(chat), {"version": 1, **EMPTY, PEOPLE: "2"})
    assert newest(chat).values == {"mood": "good", "people": 2}
    assert AuditEvent.objects.get(type="state.corrected").data["fields"] == ["people"]


def publish_schema(policy: ContextPolicy, schema: dict[str, Any], *, now: datetime) -> None:
    values = {"strategy": "entity_state", "state_schema": schema}
    create_policy_version(policy=policy, values=values, locks=(), note="", actor="system", now=now)


def test_values_stay_with_their_fields_when_the_schema_changes(
    page: Client, chat: Chat, now: datetime
) -> None:
    text = {"type": "string"}
    old = {"type": "object", "properties": {"city": text, "name": text}}
    policy = keep_a_state(now=now, state_schema=old)
    lay(chat, {"city": "Oslo", "name": "Ada"}, now=now)
    sent = re.findall(r'name="(f[^"]*)"', page.get(address(chat)).content.decode())
    said = dict(zip(sent, ["Paris", "Ada"], strict=True))
    added = {"type": "object", "properties": {"budget": text, "city": text, "name": text}}
    publish_schema(policy, added, now=now)
    page.post(address(chat), {"version": 1, **said})
    assert newest(chat).values == {"city": "Paris", "name": "Ada"}

    # The typed text of a field that is gone is shown, and nothing is saved.
    fewer = {"type": "object", "properties": {"name": text}, "additionalProperties": True}
    publish_schema(policy, fewer, now=now)
    answer = page.post(address(chat), {"version": 2, **said, sent[0]: "Rome"})
    assert answer.status_code == 409
    assert [(field.label, field.value) for field in answer.context["typed"]] == [("city", "Rome")]
    assert newest(chat).version == 2
    # One that the user left alone is no reason to refuse.
    page.post(address(chat), {"version": 2, **said, sent[1]: "Eve"})
    assert newest(chat).values == {"city": "Paris", "name": "Eve"}


def test_a_long_text_has_room_for_its_lines(page: Client, chat: Chat, now: datetime) -> None:
    properties = {"story": {"type": "string"}, "name": {"type": "string", "maxLength": 80}}
    keep_a_state(now=now, state_schema={"type": "object", "properties": properties})
    lay(chat, {"name": "Two\nlines", "story": "Once"}, now=now)
    body = page.get(address(chat)).content.decode()
    assert body.count("<textarea") == 2
    name, story = map(build_control_name, ["name", "story"])
    page.post(address(chat), {"version": 1, name: "Two\r\nlines", story: "Once\r\nmore"})
    assert newest(chat).values == {"name": "Two\nlines", "story": "Once\nmore"}


def test_two_corrections_at_once_leave_one(
    chat: Chat, alice: User, kept: ChatState, now: datetime
) -> None:
    one = state_edits.load_chat_state(chat=chat)
    state_edits.edit_state(chat=chat, user=alice, version=1, values={"people": 2}, now=now)
    with pytest.raises(StateChanged):
        # The slower request passed its own version check earlier.
        state_edits.save_state_version(one, user=alice, kind="corrected", values={}, now=now)
    assert newest(chat).version == 2


def test_charlie_finds_no_state(charlies_page: Client, chat: Chat, kept: ChatState) -> None:
    assert charlies_page.get(address(chat)).status_code == 404
    assert charlies_page.post(address(chat), {"version": 1, **EMPTY}).status_code == 404
    assert charlies_page.post(address(chat, "state/reset"), {"version": 1}).status_code == 404
    assert newest(chat) == kept


def test_the_receipt_says_in_words_what_became_of_the_state(
    page: Client,
    chat: Chat,
    alice: User,
    now: datetime,
    kept: ChatState,
    work: Callable[..., Any],
) -> None:
    turn = start_turn(user=alice, chat=chat, text="Hm", now=now).turn
    Branch.objects.filter(pk=turn.branch_id).update(last_seq=1)
    lay(chat, {"destination": "Oslo"}, now=now, seq=1)
    work(turn, [TextDelta("No."), Finished("stop")], [TextDelta("Fine."), Finished("stop")])
    body = tight(page.get(f"/chats/{chat.pk}/turns/{turn.pk}/receipt").content.decode())
    assert "State extraction, step 1, attempt 1" in body
    assert "Call 1, step 1, attempt 1" in body
    assert str(PARTS["schema"]) in body
    assert "The state was not updated: the model’s response is not JSON." in body
    assert 'data-reason="state"' in body
    assert re.search(r"<span[^>]*>Background</span>(<[^>]+>)*State<", body)
    thread = page.get(address(chat, "")).content.decode()
    assert thread.count(str(LEFT_OUT["state"].beside)) == 2
