"""Divider, meter, rail and receipt agree with the prompt in every state of a compaction.

Each state is produced by actions of users and workers. Then the test reads the pages, sends a
message and compares its receipt with the pages, message by message.
"""

import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

from chats.actions import branching, erasure, marks
from chats.compaction import maintain
from chats.compaction.people import undo
from chats.models import Chat, Compaction, Message, Receipt
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from chats.web.thread.sent_now import SentNow
from tests.chats.web.markup import tight
from tests.support.chat_summaries import SENTENCE, Say, SetPolicy, add_minutes, reload_branch
from tests.support.summary_attempts import COUNTER, compact_chat

PART = re.compile(
    r'<tr><th scope="row"><span class="swatch[^"]*"></span>([^<]+)</th>'
    r'<td class="n">([\d,]+)</td><td class="why">([^<]*)</td></tr>'
)
RAIL = re.compile(r'id="message-([0-9a-f-]{36})" data-sent="(\w+)"')
WAYS = {
    "full": r"([\d,]+)(?: messages?)? sent in full",
    "cut": r"([\d,]+)(?: messages?)? sent in shortened form",
    "summary": r"([\d,]+)(?: messages?)? sent as the summary",
    "none": r"([\d,]+)(?: messages?)? not sent",
}
# Lines of the meter by the parts of a receipt's budget.
LABELS = {
    "system": "System",
    "tools": "Tools",
    "pins": "Pins",
    "history": "History",
}


class Case:
    """A chat with the actions of its users and workers."""

    def __init__(self, user: User, chat: Chat, say: Say, policy: SetPolicy, now: datetime) -> None:
        self.user, self.chat, self.say, self.policy, self.now = user, chat, say, policy, now
        self.minutes = 0

    def later(self) -> datetime:
        """Return the time one minute after the previous action."""
        self.minutes += 1
        return add_minutes(self.now, self.minutes)

    def talk(self, turns: int = 4) -> None:
        """Add turns to summarise."""
        for _ in range(turns):
            self.say(self.chat, f"More. {SENTENCE}", SENTENCE * 3)

    def compact(self) -> Compaction:
        """Create and publish a summary."""
        return compact_chat(self.user, self.chat, self.later())

    def undo(self, row: Compaction) -> Compaction:
        """Undo the summary."""
        return undo.undo_summary(user=self.user, compaction=row, now=self.later())

    def message(self, seq: int) -> Message:
        """Return the message at a position of the active branch."""
        return Message.objects.select_related("branch__chat").get(
            branch=reload_branch(self.chat), seq=seq
        )

    def mark(self, action: Callable[..., Message], seq: int) -> None:
        """Pin, unpin, exclude, include or keep a message."""
        action(message=self.message(seq), actor=f"user:{self.user.pk}", now=self.later())


State = Callable[[Case], Compaction]


def in_force(case: Case) -> Compaction:
    """Return the active summary."""
    return case.compact()


def undone(case: Case) -> Compaction:
    """Return the only summary, undone."""
    return case.undo(case.compact())


def undone_second(case: Case) -> Compaction:
    """Return the second summary, undone. The first one is active again."""
    case.compact()
    case.talk()
    return case.undo(case.compact())


def undone_both(case: Case) -> Compaction:
    """Return the second summary after both were undone."""
    first = case.compact()
    case.talk()
    second = case.undo(case.compact())
    case.undo(first)
    return second


def redone(case: Case) -> Compaction:
    """Return the second summary after undo and redo."""
    row = undone_second(case)
    return undo.redo_summary(user=case.user, compaction=row, now=case.later())


def replaced(case: Case) -> Compaction:
    """Return the first summary after the second one replaced it."""
    first = case.compact()
    case.talk()
    case.compact()
    return first


def prepared(case: Case) -> Compaction:
    """Return a summary that is pending approval."""
    case.policy(
        token_budget=9000,
        reserve_tokens=1000,
        keep_last_messages=2,
        summary_max_tokens=400,
        approval="owner",
        prepare_at=0.2,
        compact_at=0.25,
        compact_to=0.15,
    )
    maintain.maintain_chat_context(chat_id=case.chat.pk, counter=COUNTER, now=case.later())
    return Compaction.objects.get(status="prepared")


def overtaken(case: Case) -> Compaction:
    """Return a prepared summary whose source messages changed."""
    row = prepared(case)
    case.mark(marks.exclude_message, 3)
    return row


def window_over_summary(case: Case) -> Compaction:
    """Return a window move on top of a summary, caused by a smaller budget."""
    row = case.compact()
    case.talk(12)
    Message.objects.filter(branch__chat=case.chat, seq=row.to_seq + 2).update(pinned_at=case.now)
    case.policy(token_budget=1900, reserve_tokens=400, keep_last_messages=2, summary_max_tokens=200)
    case.say(case.chat, "Does it fit?", "No more.")
    return Compaction.objects.get(kind="window")


def summary_under_window(case: Case) -> Compaction:
    """Return the summary below that window move."""
    window = window_over_summary(case)
    assert window.base is not None
    return window.base


def pinned_covered(case: Case) -> Compaction:
    """Return a summary with a message pinned afterwards."""
    row = case.compact()
    case.mark(marks.pin_message, 3)
    return row


def pinned_before(case: Case) -> Compaction:
    """Return a summary whose range has a pinned message and one unpinned afterwards."""
    case.mark(marks.pin_message, 3)
    case.mark(marks.pin_message, 4)
    row = case.compact()
    case.mark(marks.unpin_message, 4)
    return row


def excluded_before(case: Case) -> Compaction:
    """Return an undone summary with an excluded message, which stays excluded."""
    case.mark(marks.exclude_message, 3)
    return case.undo(case.compact())


def excluded_covered(case: Case) -> Compaction:
    """Return the second summary after one of its messages was excluded."""
    case.compact()
    case.talk()
    row = case.compact()
    case.mark(marks.exclude_message, row.to_seq)
    return row


def incomplete(case: Case) -> Compaction:
    """Return a summary over two incomplete replies, of which the owner kept one."""
    Message.objects.filter(branch__chat=case.chat, seq__in=[2, 4]).update(finish="incomplete")
    row = case.compact()
    case.mark(marks.keep_incomplete_reply, 4)
    return row


def branched(case: Case) -> Compaction:
    """Return the second summary, after a branch inside its range on which the first is active."""
    case.compact()
    case.talk()
    row = case.compact()
    branching.branch_from_message(
        user=case.user, message=case.message(row.to_seq - 1), now=case.later()
    )
    case.chat.refresh_from_db()
    return row


def erased(case: Case) -> Compaction:
    """Return the second summary after one of its messages was erased."""
    case.compact()
    case.talk()
    row = case.compact()
    erasure.erase_message(user=case.user, message=case.message(row.to_seq), now=case.later())
    return row


def cut(case: Case) -> Compaction:
    """Return an undone summary under a policy that shortens messages."""
    row = undone(case)
    case.policy(
        token_budget=9000,
        reserve_tokens=1000,
        keep_last_messages=2,
        summary_max_tokens=400,
        max_chars_per_message=200,
    )
    return row


def not_used(case: Case) -> Compaction:
    """Return a published summary under a policy that does not use summaries."""
    row = case.compact()
    case.policy(strategy="simple", window_size=5, max_chars_per_message=4000)
    return row


def kept_as_text(case: Case) -> Compaction:
    """Return a published summary under a layout that sends the chat as text."""
    row = case.compact()
    case.policy(
        token_budget=9000,
        reserve_tokens=1000,
        keep_last_messages=2,
        summary_max_tokens=400,
        layout="A",
    )
    return row


STATES: list[State] = [
    in_force,
    undone,
    undone_second,
    undone_both,
    redone,
    replaced,
    prepared,
    overtaken,
    window_over_summary,
    summary_under_window,
    pinned_covered,
    pinned_before,
    excluded_before,
    excluded_covered,
    incomplete,
    branched,
    erased,
    cut,
    not_used,
    kept_as_text,
]


def receipt_of_next(case: Case, work: Callable[..., Any]) -> Receipt:
    """Send a message and return the receipt of its call."""
    turn = start_turn(user=case.user, chat=case.chat, text="And now?", now=case.later()).turn
    work(turn, [TextDelta("Well."), Finished("stop")])
    return Receipt.objects.get(turn=turn)


def fates_in(receipt: Receipt, *, last: int) -> dict[int, str]:
    """Return the form in which each earlier message was sent: full, cut, summary or none."""
    found = {}
    for origin, _, seq, _, cut_to, _, results_to in receipt.segments:
        if seq and origin != "question":
            found[seq] = "full" if cut_to is None and results_to is None else "cut"
    for first, end, reason in receipt.left_out:
        for seq in range(first, end + 1):
            found[seq] = "summary" if reason == "covered" else "none"
    assert sorted(found) == list(range(1, last + 1))
    return found


def counts_in(words: str) -> dict[str, int]:
    """Return the numbers in a divider's sentence."""
    found = {way: re.search(pattern, words) for way, pattern in WAYS.items()}
    return {way: int(hit[1].replace(",", "")) for way, hit in found.items() if hit}


@pytest.mark.parametrize("state", STATES, ids=[state.__name__ for state in STATES])
def test_divider_meter_rail_and_receipt_say_the_same(
    state: State,
    alice: User,
    roomy: Chat,
    say: Say,
    set_policy: SetPolicy,
    now: datetime,
    work: Callable[..., Any],
    client: Client,
) -> None:
    case = Case(alice, roomy, say, set_policy, now)
    row = state(case)
    client.force_login(alice)
    last_seq = reload_branch(roomy).last_seq
    thread = tight(client.get(f"/chats/{roomy.pk}/").content.decode())
    page = tight(client.get(f"/chats/{roomy.pk}/compactions/{row.pk}/").content.decode())
    seqs = {str(m.pk): m.seq for m in Message.objects.filter(branch__chat=roomy)}
    originals = originals_of(client, roomy, row)

    receipt = receipt_of_next(case, work)
    fates = fates_in(receipt, last=last_seq)

    rails = {seqs[pk]: sent for pk, sent in RAIL.findall(thread)}
    assert rails, "no rail on the page"
    assert {seq: fates[seq] for seq in rails if seq} == rails
    # Messages outside the thread are covered by a summary and not sent.
    assert {fates[seq] for seq in fates if seq not in rails} <= {"summary", "none"}
    check_meter(thread, receipt=receipt)
    if state is branched:
        assert 'id="sent-now"' not in page
        return
    wanted = Counter(fates[seq] for seq in range(row.from_seq, row.to_seq + 1))
    sentence = re.search(r'id="sent-now">(.*?)</p>', page)
    assert sentence, "the page of the compaction does not say what is sent"
    assert counts_in(sentence[1]) == dict(wanted)
    check_divider(thread, row=row, wanted=wanted)
    for seq, words in originals.items():
        if fates[seq] == "none":
            assert "not sent" in words
        elif fates[seq] == "summary":
            assert "sent" not in words
        else:
            assert "sent" in words
            assert "not sent" not in words


def originals_of(client: Client, chat: Chat, row: Compaction) -> dict[int, str]:
    """Return the label of each original on the first page of originals."""
    address = f"/chats/{chat.pk}/compactions/{row.pk}/originals"
    html = tight(client.get(address, headers={"HX-Request": "true"}).content.decode())
    marks = (
        r'id="original-[0-9a-f-]{36}-(\d+)".*?<span>#\1</span>(?:<span class="chip"[^>]*>([^<]+))?'
    )
    return {int(seq): words for seq, words in re.findall(marks, html)}


def check_meter(thread: str, *, receipt: Receipt) -> None:
    """Check each part of the meter against the receipt, and the sum without the question."""
    lines = {label: int(tokens.replace(",", "")) for label, tokens, _ in PART.findall(thread)}
    budget = receipt.budget
    is_text = receipt.effective_policy.values["layout"] != "multi_turn"
    # In a text layout the first piece includes the separators, also that of the question.
    near = 8 if is_text else 0
    for part, label in LABELS.items():
        assert abs(lines.get(label, 0) - budget[part]) <= near, part
    layer = lines["Summary"] if "Summary" in lines else lines["Window"]
    assert abs(layer - budget["summary"]) <= near
    beside = ("Free", "Reply reserve", "Your message")
    used = sum(tokens for label, tokens in lines.items() if label not in beside)
    assert abs(used - receipt.prompt_tokens + budget["question"]) <= near


def check_divider(thread: str, *, row: Compaction, wanted: Counter[str]) -> None:
    """Check the sentence of the divider in the thread, if there is one."""
    marker = re.search(
        rf'<(section|details) class="marker[^"]*" id="compaction-{row.pk}".*?</\1>',
        thread,
        re.DOTALL,
    )
    if marker is None:
        assert row.pk is not None
        return
    row.refresh_from_db()
    words = strip_tags(marker[0])
    if row.status == "undone" or (len(wanted) > 1 and 'data-status="unused"' not in marker[0]):
        assert counts_in(words) == dict(wanted)
    if row.kind == "window":
        assert f'class="marker__what" data-count="{wanted["none"]}"' in marker[0]


def test_the_page_of_the_second_says_that_the_first_stands_for_its_messages(
    alice: User, roomy: Chat, say: Say, set_policy: SetPolicy, now: datetime, client: Client
) -> None:
    case = Case(alice, roomy, say, set_policy, now)
    first = case.compact()
    case.talk()
    second = case.undo(case.compact())
    client.force_login(alice)

    again = second.to_seq - first.to_seq
    sent = SentNow(full=again, cut=0, summary=first.to_seq, none=0, first=1, last=first.to_seq)
    for address in (f"/chats/{roomy.pk}/", f"/chats/{roomy.pk}/compactions/{second.pk}/"):
        body = tight(client.get(address).content.decode())
        assert sent.words in body
        assert "in full again" not in body
