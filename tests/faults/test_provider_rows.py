"""Rows F12 to F21: faults of a model server during a reply, several at the same time.

Twice here, five times in `make faults`.
"""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chats.turns.breaker import REASONS
from tests.faults.client import Client, Screen
from tests.faults.harness import Refused, Tree
from tests.faults.programs import until
from tests.faults.promises import parts_of, receipts_of, reply_of, text_of, tokens_of
from tests.faults.shares import EVERY_ROW
from tests.faults.stores import Row, count

pytestmark = pytest.mark.usefixtures("long_lease")
REPEATS = 5 if EVERY_ROW else 2
FRESH = itertools.count()


def post_each(tree: Tree, mark: str, *, model: str = "") -> list[str]:
    """Post the same message in five new chats; return the turns."""
    return [tree.post(f"{next(FRESH)} [[fake {mark}]]", model=model) for _ in range(REPEATS)]


def calls_of(tree: Tree, turn: str) -> int:
    """The number of calls of a turn that reached the model server."""
    return len(calls_for(tree, turn))


def calls_for(tree: Tree, turn: str) -> list[dict[str, Any]]:
    """The calls of a turn that reached the model server, in order."""
    asked = tree.database.rows(
        "SELECT m.parts FROM chats_message m JOIN chats_turn t ON t.trigger_id = m.id"
        " WHERE t.id = %s",
        [tree.key(turn)],
    )
    question = text_of(asked[0])
    return [call for call in tree.fake.requests() if last_question(call) == question]


def last_question(call: dict[str, Any]) -> str:
    """The newest user message of a recorded call."""
    said = [m["content"] for m in call["body"]["messages"] if m["role"] == "user"]
    return str(said[-1])


def failed(tree: Tree, turn: str, *, code: str, seconds: float = 25) -> Row:
    """The turn's row, which must have failed with this code."""
    row = tree.wait_until_over(turn, seconds=seconds)
    assert (row["status"], row["error_code"]) == ("failed", code)
    assert row["error_sentence"]
    assert str(tree.fake.port) not in row["error_sentence"]
    return row


def test_f12_a_refused_key_is_tried_once_and_opens_the_breaker_until_an_operator_acts(
    tree: Tree,
) -> None:
    opened = count(
        tree.database, "contextpolicy_auditevent", "type = %s", "provider.breaker_opened"
    )
    for repeat in range(REPEATS):
        turn = tree.post(f"{next(FRESH)} [[fake fault=401]]", model="locked")
        failed(tree, turn, code="provider_auth")
        assert calls_of(tree, turn) == 1
        assert (
            count(tree.database, "contextpolicy_auditevent", "type = %s", "provider.breaker_opened")
            == opened + repeat + 1
        )
        with pytest.raises(Refused, match=r"model_unavailable.*API key"):
            tree.post("While the breaker is open", model="locked")
        # The same state on the operators' pages.
        assert notice(tree, "locked") == REASONS["provider_auth"]
        tree.desk.ask("save_account", slug="locked")
        assert notice(tree, "locked") == ""
    turn = tree.post("After the operator acted [[fake tokens=3]]", model="locked")
    assert tree.wait_until_over(turn)["status"] == "completed"


@pytest.fixture
def long_chats(tree: Tree) -> list[str]:
    """Chats with messages that can leave the prompt, and a model without a learned limit."""
    tree.desk.ask("forget_limit", slug="narrow")
    chats = [tree.new_chat(model="narrow") for _ in range(REPEATS)]
    for _ in range(4):
        turns = [tree.post("word " * 400 + "[[fake tokens=50]]", chat=chat) for chat in chats]
        for turn in turns:
            tree.wait_until_over(turn)
    return chats


def notice(tree: Tree, account: str) -> str:
    """Why an account is paused."""
    query = "SELECT paused_reason AS why FROM chats_provideraccount WHERE slug = %s"
    return str(tree.database.rows(query, [account])[0]["why"])


OVERFLOWS = ["context", "context413", "context429", "context200"]


@pytest.mark.parametrize("fault", OVERFLOWS)
def test_f13_an_overflow_is_compacted_and_tried_once_more_and_no_oftener(
    tree: Tree, long_chats: list[str], fault: str
) -> None:
    for chat in long_chats:
        turn = tree.post(f"{next(FRESH)} [[fake fault={fault} after=0]]", chat=chat)
        failed(tree, turn, code="context_overflow")
        first, second = calls_for(tree, turn)
        assert len(str(second["body"]["messages"])) < len(str(first["body"]["messages"]))
        booked = [(r["outcome"], r["error_code"]) for r in receipts_of(tree, turn)]
        assert booked == [("failed", "context_overflow")] * 2


@pytest.mark.parametrize("fault", OVERFLOWS)
def test_f13_an_overflow_of_what_cannot_shrink_is_said_at_once(tree: Tree, fault: str) -> None:
    for turn in post_each(tree, f"fault={fault} after=0", model="narrow"):
        failed(tree, turn, code="context_overflow")
        assert calls_of(tree, turn) == 1


def test_f13_a_reply_to_half_a_prompt_is_taken_back_from_who_watches(
    tree: Tree, long_chats: list[str], alice: Client
) -> None:
    for chat in long_chats:
        # The earlier bill would turn this estimate into a prompt many times too long.
        tree.desk.ask("forget_limit", slug="narrow")
        word = f"half{next(FRESH)}x"
        tree.fake.configure(faults=[{"billed": 130_000, "match": word}])
        turn = alice.send(chat, f"{word} [[fake tokens=30 ms=20]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            screen.show_all(events)
        assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
        assert (tokens_of(tree, turn), calls_of(tree, turn)) == (30, 2)


def test_f13_a_smaller_prompt_that_fits_is_answered(tree: Tree, long_chats: list[str]) -> None:
    fitting = "[[fake context_limit=1500 tokens=5]]"
    for chat in long_chats:
        turn = tree.post(f"{next(FRESH)} {fitting}", chat=chat)
        row = tree.wait_until_over(turn)
        assert (row["status"], row["error_code"], tokens_of(tree, turn)) == ("completed", "", 5)
        assert calls_of(tree, turn) == 2
        outcomes = [(r["outcome"], r["error_code"]) for r in receipts_of(tree, turn)]
        assert outcomes == [("failed", "context_overflow"), ("ok", "")]


def test_f14_a_short_retry_after_is_waited_for_and_shown(tree: Tree) -> None:
    begun = time.monotonic()
    turns = post_each(tree, "fault=429 retry_after=1")
    until(lambda: tree.turn(turns[0])["waiting_until"], what="the wait in the row")
    for turn in turns:
        failed(tree, turn, code="provider_rate_limited")
        assert calls_of(tree, turn) == 3
    assert time.monotonic() - begun >= 2


def test_f14_one_limited_call_is_made_good_by_the_next(tree: Tree) -> None:
    words = [f"limited{next(FRESH)}x" for _ in range(REPEATS)]
    tree.fake.configure(faults=[{"fault": "429", "match": word} for word in words])
    for word in words:
        turn = tree.post(f"{word} [[fake tokens=4]]")
        row = tree.wait_until_over(turn)
        assert (row["status"], tokens_of(tree, turn), calls_of(tree, turn)) == ("completed", 4, 2)
        assert row["waiting_until"] is None


def test_f14_a_long_retry_after_fails_at_once_and_says_how_long(tree: Tree) -> None:
    for turn in post_each(tree, "fault=429 retry_after=180"):
        row = failed(tree, turn, code="provider_rate_limited", seconds=20)
        assert "180 seconds" in row["error_sentence"]
        assert calls_of(tree, turn) == 1


def test_f14_without_a_time_the_wait_grows_and_the_calls_end_at_three(tree: Tree) -> None:
    for turn in post_each(tree, "fault=429"):
        failed(tree, turn, code="provider_rate_limited")
        assert calls_of(tree, turn) == 3


@pytest.mark.parametrize("fault", ["500", "502", "503"])
def test_f15_a_server_error_is_tried_three_times_at_most(tree: Tree, fault: str) -> None:
    for turn in post_each(tree, f"fault={fault}"):
        failed(tree, turn, code="provider_unavailable")
        assert calls_of(tree, turn) == 3


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("closed", "provider_unavailable"),
        ("no-host", "provider_unavailable"),
        # This one treats the handshake as an incomplete request, and waits.
        ("not-tls", "provider_timeout"),
    ],
)
def test_f15_a_server_out_of_reach_is_tried_three_times_at_most(
    tree: Tree, model: str, code: str
) -> None:
    for turn in post_each(tree, "tokens=1", model=model):
        failed(tree, turn, code=code)
        assert len(receipts_of(tree, turn)) <= 3


def test_f15_a_server_with_a_certificate_of_its_own_hears_nothing(tree: Tree) -> None:
    for turn in post_each(tree, "tokens=1", model="impostor"):
        row = failed(tree, turn, code="provider_unavailable")
        assert "certificate" in row["error_sentence"]
        assert len(receipts_of(tree, turn)) <= 3
    assert tree.impostor.callers > 0
    assert tree.impostor.heard == b""


def test_f16_no_answer_at_all_times_out(tree: Tree) -> None:
    for turn in post_each(tree, "fault=hang"):
        failed(tree, turn, code="provider_timeout")
        assert calls_of(tree, turn) <= 3


def test_f16_a_stall_in_the_middle_keeps_what_came_and_calls_once(tree: Tree) -> None:
    for turn in post_each(tree, "fault=stall after=6"):
        failed(tree, turn, code="provider_timeout")
        assert (calls_of(tree, turn), tokens_of(tree, turn)) == (1, 6)
        assert reply_of(tree, turn)["finish"] == "incomplete"


@pytest.mark.parametrize("fault", ["cut", "nofinish"])
def test_f17_a_cut_reply_is_kept_as_incomplete_and_not_sent_again(tree: Tree, fault: str) -> None:
    for turn in post_each(tree, f"fault={fault} after=6 tokens=9"):
        row = tree.wait_until_over(turn)
        assert row["status"] == "failed"
        assert row["error_code"] in {"provider_unavailable", "reply_incomplete"}
        assert calls_of(tree, turn) == 1
        assert reply_of(tree, turn)["finish"] == "incomplete"
        kept = text_of(reply_of(tree, turn))
        later = tree.post(f"{next(FRESH)} [[fake tokens=2]]", chat=chat_of(tree, turn))
        assert tree.wait_until_over(later)["status"] == "completed"
        sent = next(c for c in tree.fake.requests() if c["seq"] == seq_of(tree, later))
        assert kept not in str(sent["body"]["messages"])


def chat_of(tree: Tree, turn: str) -> str:
    """The chat of a turn."""
    query = "SELECT b.chat_id AS id FROM chats_branch b JOIN chats_turn t ON t.branch_id = b.id"
    return str(tree.database.rows(f"{query} WHERE t.id = %s", [tree.key(turn)])[0]["id"])


def seq_of(tree: Tree, turn: str) -> int:
    """The number that the model server gave to the last call of a turn."""
    return int(calls_for(tree, turn)[-1]["seq"])


@pytest.mark.parametrize("fault", ["error_event", "malformed"])
def test_f18_a_broken_stream_never_passes_for_complete(tree: Tree, fault: str) -> None:
    for turn in post_each(tree, f"fault={fault} after=6"):
        row = tree.wait_until_over(turn)
        assert row["status"] == "failed"
        assert row["error_code"].startswith("provider_")
        assert (calls_of(tree, turn), tokens_of(tree, turn)) == (1, 6)
        assert reply_of(tree, turn)["finish"] == "incomplete"


# Three or four bytes each, so that every character of that many bytes is split.
TORN = "split=60"


@pytest.mark.parametrize(
    "form",
    [
        "split=7",
        TORN,
        "fault=crlf",
        f"fault=crlf {TORN}",
        "fault=comments",
        "fault=bom",
        f"fault=bom {TORN}",
        "fault=multiline",
    ],
)
def test_f18_the_form_of_a_stream_changes_no_text(tree: Tree, form: str) -> None:
    words = "Grüße_aus_東京_und_Čachtice_👩‍🚀_fin"
    for turn in post_each(tree, f"{form} reply={words}"):
        assert tree.wait_until_over(turn)["status"] == "completed"
        assert text_of(reply_of(tree, turn)) == words.replace("_", " ")
        assert calls_of(tree, turn) == 1


@pytest.mark.parametrize("mark", ["fault=empty", "fault=whitespace", "fault=reasoning_only"])
def test_f19_an_answer_without_words_is_tried_once_more_and_then_said(
    tree: Tree, mark: str
) -> None:
    for turn in post_each(tree, f"{mark} reasoning=5"):
        failed(tree, turn, code="empty_reply")
        assert calls_of(tree, turn) == 2


@pytest.mark.parametrize("fault", ["empty", "whitespace", "reasoning_only"])
def test_f19_of_the_answer_without_words_nothing_is_seen_once_there_is_another(
    tree: Tree, alice: Client, fault: str
) -> None:
    words = [f"speechless{next(FRESH)}x" for _ in range(REPEATS)]
    given = {"fault": fault, "reasoning": 5}
    tree.fake.configure(faults=[{**given, "match": word} for word in words])
    for word in words:
        chat = alice.new_chat()
        turn = alice.send(chat, f"{word} [[fake tokens=12 ms=20]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            screen.show_all(events)
        assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
        assert (screen.restarted, tokens_of(tree, turn), calls_of(tree, turn)) == (0, 12, 2)


def test_f19_a_refusal_is_a_reply_and_a_limit_is_shown_as_a_cut(tree: Tree) -> None:
    refused, limited = post_each(tree, "fault=refusal"), post_each(tree, "fault=length tokens=7")
    for turn in refused:
        assert tree.wait_until_over(turn)["status"] == "completed"
        assert text_of(reply_of(tree, turn)) == "I cannot help with that."
    for turn in limited:
        assert tree.wait_until_over(turn)["status"] == "completed"
        assert reply_of(tree, turn)["finish"] == "length"


@pytest.mark.parametrize(
    "mark", ["fault=filter tokens=7", "fault=filter tokens=0", "fault=filter400"]
)
def test_f19_a_content_filter_ends_a_reply_as_such(tree: Tree, mark: str) -> None:
    for turn in post_each(tree, mark):
        failed(tree, turn, code="content_filtered")
        booked = [(r["outcome"], r["error_code"]) for r in receipts_of(tree, turn)]
        assert booked == [("failed", "content_filtered")]
        assert calls_of(tree, turn) == 1
        kept = tree.turn(turn)["reply_id"] is not None
        assert kept == ("tokens=7" in mark)
        if kept:
            assert (reply_of(tree, turn)["finish"], tokens_of(tree, turn)) == ("incomplete", 7)
            later = tree.post(f"{next(FRESH)} [[fake tokens=2]]", chat=chat_of(tree, turn))
            tree.wait_until_over(later)
            sent = next(c for c in tree.fake.requests() if c["seq"] == seq_of(tree, later))
            assert text_of(reply_of(tree, turn)) not in str(sent["body"]["messages"])


def scripted(tree: Tree, **reply: Any) -> str:
    """A turn with a reply that the test scripted."""
    word = f"scripted{next(FRESH)}x"
    tree.fake.configure(replies=[{"match": word, **reply}])
    return tree.post(word)


def test_f21_a_delta_longer_than_a_reply_may_be_is_cut_there(tree: Tree) -> None:
    turn = scripted(tree, text="x" * 900_000)
    assert tree.wait_until_over(turn)["status"] == "completed"
    reply = reply_of(tree, turn)
    assert (text_of(reply), reply["finish"]) == ("x" * 400_000, "limit")


def test_f21_more_tool_calls_than_a_step_may_have_end_the_turn(tree: Tree) -> None:
    calls = [{"name": "chat_history_search", "arguments": {"query": "x"}}] * 3_000
    turn = scripted(tree, tool_calls=calls)
    began = time.monotonic()
    failed(tree, turn, code="too_many_tool_calls")
    assert time.monotonic() - began < 10
    kinds = [part["type"] for part in parts_of(reply_of(tree, turn))]
    assert kinds == ["tool_call"] * 64
    until(
        lambda: calls_for(tree, turn)[-1]["outcome"] == "client_gone",
        seconds=5,
        what="the end of the call upstream",
    )


def test_f20_a_reply_without_the_end_mark_is_complete(tree: Tree) -> None:
    for turn in post_each(tree, "fault=nodone tokens=9"):
        assert tree.wait_until_over(turn)["status"] == "completed"
        assert (reply_of(tree, turn)["finish"], tokens_of(tree, turn)) == ("stop", 9)


@pytest.fixture
def thin_worker(tree: Tree) -> Iterator[None]:
    """One worker whose memory may not grow by 64 MB during the test."""
    tree.clear("worker")
    worker = tree.worker()
    first = tree.post("Warm [[fake tokens=2000]]")
    tree.wait_until_over(first)
    before = worker.resident_bytes()
    worker.forget_peak()
    yield
    assert worker.peak_bytes() - before < 64 << 20


@pytest.mark.usefixtures("thin_worker")
def test_f21_a_giant_reply_is_cut_at_the_limit_and_costs_no_memory(tree: Tree) -> None:
    for _ in range(REPEATS):
        word = f"giant{next(FRESH)}x"
        tree.fake.configure(replies=[{"match": word, "text": ("y" * 9_999 + " ") * 1000}])
        turn = tree.post(word)
        row = tree.wait_until_over(turn, seconds=40)
        assert (row["status"], row["error_code"]) == ("completed", "")
        assert reply_of(tree, turn)["finish"] == "limit"
        assert 400_000 <= len(text_of(reply_of(tree, turn))) <= 420_000
        tree.fake.wait_for_outcome("client_gone", timeout=5)


@pytest.mark.usefixtures("thin_worker")
def test_f21_an_endless_line_is_a_broken_stream(tree: Tree) -> None:
    for turn in post_each(tree, "fault=bigline after=3"):
        failed(tree, turn, code="provider_protocol")
        assert (calls_of(tree, turn), tokens_of(tree, turn)) == (1, 3)


def ask_for_tools(tree: Tree, *, reason: str) -> str:
    """Post a message whose reply has ten thousand tool call deltas; return the turn."""
    word = f"tools{next(FRESH)}x"
    calls = [{"name": "no_such_tool", "arguments": {"n": n, "y": reason}} for n in range(2500)]
    options = {"fault": "unlimited"}
    tree.fake.configure(replies=[{"match": word, "tool_calls": calls, "options": options}])
    return tree.post(f"{word} [[fake tokens=5]]")


@pytest.mark.usefixtures("thin_worker")
def test_f21_thousands_of_tool_calls_end_the_turn_and_not_the_chat(tree: Tree) -> None:
    for number in range(REPEATS):
        turn = ask_for_tools(tree, reason="y" * 2000 * (number % 2))
        row = tree.wait_until_over(turn, seconds=40)
        ended = (row["status"], row["error_code"], row["step"])
        assert ended == ("failed", "too_many_tool_calls", 1)
        assert calls_of(tree, turn) == 1
        tree.fake.wait_for_outcome("client_gone", timeout=5)
        assert goes_on(tree, chat_of(tree, turn))


def goes_on(tree: Tree, chat: str) -> bool:
    """Return True if a new message in the chat is answered."""
    row = tree.wait_until_over(tree.post(f"{next(FRESH)} [[fake tokens=2]]", chat=chat))
    return (row["status"], row["error_code"]) == ("completed", "")
