"""Summary requests, rebuilt from rows, for the owner of the chat and for auditors."""

import re
from datetime import datetime

import pytest
from django.test import Client
from django.utils import timezone

from chats.actions import marks
from chats.compaction import maintain
from chats.compaction.reconstruction import (
    NoSuchCall,
    compare_with_previous_call,
    rebuild_summary_request,
)
from chats.ground.commitments import compute_commitment
from chats.models import AccountSettings, Branch, Chat, Compaction, Message
from chats.record import history
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.segments import format_prompt_json
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.summaries.prompts import SUMMARY_V1, SUMMARY_V2, build_summary_request
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.resolution import load_policy_values
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    SENTENCE,
    SMALL_POLICY,
    Fold,
    Say,
    SetPolicy,
    Writes,
    add_minutes,
    script_summary,
)
from tests.support.summary_attempts import REJECTED_SUMMARIES

# With these values one request reads the whole chat.
MARKS = {"prepare_at_tokens": 1_400, "compact_at_tokens": 1_800, "compact_to_tokens": 1_200}


@pytest.fixture
def row(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: SetPolicy, now: datetime
) -> Compaction:
    """A summary attempt with one model call and an unusable answer."""
    set_policy(summarization_model=writer.slug, token_budget=4_000, **MARKS)
    writes(*[script_summary("Too short")] * 9)
    maintain.maintain_chat_context(
        chat_id=long_chat.pk, counter=ApproximateCounter(), now=add_minutes(now)
    )
    made = Compaction.objects.filter(kind="summary").order_by("attempt")[0]
    assert len(made.calls) == 1
    return made


@pytest.mark.tampers
def test_inv_53_it_fits_the_commitment_of_the_ledger_and_shows_what_was_changed(
    row: Compaction, now: datetime
) -> None:
    found = rebuild_summary_request(row)
    assert (found.fault, [wire.role for wire in found.messages]) == ("", ["system", "user"])
    assert "order 4711" in found.messages[1].content

    first = Message.objects.get(branch=row.branch, seq=row.from_seq)
    Message.objects.filter(pk=first.pk).update(parts=[{"type": "text", "text": "Never said."}])
    assert rebuild_summary_request(row).fault == "differs"
    Compaction.objects.filter(pk=row.pk).update(calls=[*row.calls, "0" * 64])
    row.refresh_from_db()
    assert rebuild_summary_request(row, number=2).fault == "differs"
    with pytest.raises(NoSuchCall):
        rebuild_summary_request(row, number=3)
    row.salt = ""
    assert rebuild_summary_request(row).fault == "erased"
    row.calls = []
    assert rebuild_summary_request(row).fault == "none"


def in_the_first_version(row: Compaction) -> tuple[WireMessage, ...]:
    """Return the request for the same messages in the first version of the prompt."""
    messages = Message.objects.filter(branch=row.branch, seq__range=(row.from_seq, row.to_seq))
    return build_summary_request(
        messages=history.load_all(messages.order_by("seq"), counter=ApproximateCounter()),
        previous=None,
        values=load_policy_values(row.effective_policy),
        version=SUMMARY_V1,
    )


def test_one_that_was_made_before_its_parts_were_kept(row: Compaction) -> None:
    row.made_of = None
    old = in_the_first_version(row)
    row.calls = [compute_commitment(format_prompt_json(old, ()), salt=row.salt)]
    assert rebuild_summary_request(row).messages == old
    assert 'from="user" at="' in old[1].content
    row.calls = [compute_commitment("Another request.", salt=row.salt), *row.calls]
    assert rebuild_summary_request(row).fault == "parts"
    assert rebuild_summary_request(row, number=2).fault == "parts"


def test_one_whose_record_names_no_version_is_built_again_in_the_first(row: Compaction) -> None:
    new = rebuild_summary_request(row).messages
    old = in_the_first_version(row)
    made_of = row.made_of or {}
    row.made_of = {name: made_of[name] for name in ("lost", "texts", "calls")}
    assert rebuild_summary_request(row).fault == "differs"
    row.calls = [compute_commitment(format_prompt_json(old, ()), salt=row.salt)]
    assert (rebuild_summary_request(row).fault, rebuild_summary_request(row).messages) == ("", old)
    assert new != old


def test_a_request_has_authors_and_days_and_keeps_its_time_zone(
    long_chat: Chat,
    writer: ModelSpec,
    writes: Writes,
    set_policy: SetPolicy,
    say: Say,
    fold: Fold,
) -> None:
    """Older summaries get the authors and days of their bullets as a list."""
    set_policy(summarization_model=writer.slug, token_budget=4_000, **MARKS)
    writes(*[script_summary()] * 9)
    fold(long_chat)
    set_policy(summarization_model=writer.slug, token_budget=4_000, dates=True, **MARKS)
    for number in range(5):
        say(long_chat, f"Then {number}? {SENTENCE}", SENTENCE * 6)
    second = fold(long_chat)
    assert second.prompt_version == SUMMARY_V2
    question = rebuild_summary_request(second).messages[1].content
    day = timezone.now().date().isoformat()[:5]
    assert f'from="User" day="{day}' in question
    assert f"Sources of its bullets: #1 User, {day}" in question
    AccountSettings.objects.update_or_create(
        owner=long_chat.owner, defaults={"time_zone": "Pacific/Kiritimati"}
    )
    Branch.objects.filter(pk=second.branch_id).update(time_zone="Pacific/Pago_Pago")
    second.refresh_from_db()
    assert rebuild_summary_request(second).fault == ""


def test_a_built_in_summary_gets_days_at_the_next_compaction(
    long_chat: Chat, set_policy: SetPolicy, say: Say, fold: Fold
) -> None:
    set_policy(token_budget=4_000, **MARKS)
    first = fold(long_chat)
    assert "- User: Question 0. " in first.text
    set_policy(token_budget=4_000, dates=True, **MARKS)
    for number in range(5):
        say(long_chat, f"Then {number}? {SENTENCE}", SENTENCE * 6)
    second = fold(long_chat)
    assert second.previous_id == first.pk
    bullet = next(b for s in second.sections for b in s["bullets"] if "Question 0." in b["text"])
    assert re.match(r"User, \d{4}-\d\d-\d\d: ", bullet["text"])
    assert bullet["sources"] == [1]


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
def test_a_summary_keeps_its_days_after_a_change_of_zone(
    long_chat: Chat, set_policy: SetPolicy, say: Say, fold: Fold, layout: str
) -> None:
    """The summary may come before the first prompt with dates, as in an imported chat."""
    live_in(long_chat, "Pacific/Kiritimati")
    set_policy(token_budget=4_000, dates=True, layout=layout, **MARKS)
    first = fold(long_chat)
    days = list_days(first)
    assert days
    live_in(long_chat, "Pacific/Pago_Pago")
    for number in range(5):
        say(long_chat, f"Then {number}? {SENTENCE}", SENTENCE * 6)
    second = fold(long_chat)
    assert second.previous_id == first.pk
    assert list_days(second) == days


def live_in(chat: Chat, zone: str) -> None:
    """Store the time zone of the browser of a chat's owner."""
    AccountSettings.objects.update_or_create(owner=chat.owner, defaults={"time_zone": zone})


def list_days(row: Compaction) -> set[str]:
    """Return the days of the bullets of a summary."""
    texts = [bullet["text"] for section in row.sections for bullet in section["bullets"]]
    return set(re.findall(r"User, (\d{4}-\d\d-\d\d): ", "\n".join(texts)))


def test_inv_53_what_was_pinned_when_the_last_summary_was_written_is_among_the_sources(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: SetPolicy, say: Say, fold: Fold
) -> None:
    set_policy(summarization_model=writer.slug, token_budget=4_000, **MARKS)
    writes(*[script_summary()] * 9)
    pinned = Message.objects.filter(branch__chat=long_chat).order_by("seq")[2]
    marks.pin_message(message=pinned, actor="user:1", now=timezone.now())
    first = fold(long_chat)
    assert pinned.seq in first.exceptions
    marks.unpin_message(message=pinned, actor="user:1", now=timezone.now())
    for number in range(5):
        say(long_chat, f"Then {number}? {SENTENCE}", SENTENCE * 6)
    second = fold(long_chat)
    assert second.previous_id == first.pk
    assert pinned.seq not in second.exceptions
    found = rebuild_summary_request(second)
    assert (found.fault, found.calls) == ("", 1)
    assert pinned.text in found.messages[1].content


def test_a_second_attempt_stands_beside_the_first(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(summarization_model=writer.slug, token_budget=4_000, **MARKS)
    writes(REJECTED_SUMMARIES["missing_sections"], script_summary())
    maintain.maintain_chat_context(
        chat_id=long_chat.pk, counter=ApproximateCounter(), now=add_minutes(now)
    )
    first, second = Compaction.objects.filter(kind="summary").order_by("attempt")
    assert [len(first.calls), len(second.calls)] == [1, 1]
    found = compare_with_previous_call(second)
    assert found.lines[0].kind == "same"
    assert found.prefix is not None
    assert found.prefix.tokens >= found.lines[0].tokens
    assert compare_with_previous_call(first).prefix is None


def test_its_owner_reads_it_and_an_auditor_after_a_reason(row: Compaction) -> None:
    chat = row.branch.chat
    page = signed_in(chat.owner)
    address = f"/chats/{chat.pk}/compactions/{row.pk}/request"
    assert "order 4711" in page.get(address).content.decode()
    assert address in page.get(address.removesuffix("request")).content.decode()

    priya = signed_in(person("priya", AUDITOR))
    words = f"/admin/chats/receipt/words/?compaction={row.pk}"
    assert words in priya.get(f"/admin/chats/compaction/{row.pk}/change/").content.decode()
    assert "order 4711" not in priya.get(words).content.decode()
    shown = priya.post(words, {"reason": "Complaint 2026-118"}, follow=True).content.decode()
    assert "order 4711" in shown
    assert row.calls[0] in shown
    read = AuditEvent.objects.get(type="content.read")
    assert (read.chat_id, read.data) == (chat.pk, {"compaction": str(row.pk)})
    assert refused(signed_in(person("petra", POLICY_ADMIN)), words)
    for nowhere in ("?compaction=x", f"?compaction={chat.pk}", f"?receipt={chat.pk}", ""):
        answer = priya.get(f"/admin/chats/receipt/words/{nowhere}")
        assert 'data-note="no-call-chosen"' in answer.content.decode()


def test_a_hidden_instruction_is_told_to_auditors_alone(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(
        summarization_model=writer.slug,
        token_budget=4_000,
        summary_instruction="Rank people by what they spent.",
        summary_sections=["Orders", "Open questions"],
        hide_system_text=True,
        **MARKS,
    )
    fact = "- The order 4711 of 3 May 2026 goes to Anna Berg in Oslo [#1]"
    headed = f"## Orders\n{fact}\n## Open questions"
    writes(script_summary(headed))
    maintain.maintain_chat_context(
        chat_id=long_chat.pk, counter=ApproximateCounter(), now=add_minutes(now)
    )
    made = Compaction.objects.get(kind="summary")
    assert (made.text, made.reason) == (headed, "")
    assert [section["title"] for section in made.sections] == ["Orders", "Open questions"]

    address = f"/chats/{long_chat.pk}/compactions/{made.pk}/request"
    theirs = signed_in(long_chat.owner).get(address).content.decode()
    assert "Rank people" not in theirs
    assert "instruction of 31 characters" in theirs
    priya = signed_in(person("priya", AUDITOR))
    words = f"/admin/chats/receipt/words/?compaction={made.pk}"
    shown = priya.post(words, {"reason": "Complaint 2026-118"}, follow=True).content.decode()
    assert "Rank people by what they spent." in shown


def refused(browser: Client, address: str) -> bool:
    """Return True if the page answers 403."""
    return browser.get(address).status_code == 403


@pytest.mark.parametrize(("window", "room"), [(16_000, 4_000), (5_000, 0)])
def test_a_summariser_has_room_for_thoughts_and_only_its_sections_are_kept(
    long_chat: Chat,
    writer: ModelSpec,
    writes: Writes,
    set_policy: SetPolicy,
    fold: Fold,
    window: int,
    room: int,
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=window)
    set_policy(summarization_model=writer.slug, token_budget=4_000, **MARKS)
    thinking = f"<analysis>Let me see.</analysis>\nHere it is:\n{GOOD_SUMMARY}## Notes\n- none\n"
    provider = writes(*[script_summary(thinking)] * 9)
    row = fold(long_chat)
    assert row.text == GOOD_SUMMARY.strip()
    assert provider.requests[0].max_output_tokens == SMALL_POLICY["summary_max_tokens"] + room
    assert rebuild_summary_request(row).fault == ""
