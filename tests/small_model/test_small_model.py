"""The product with the real small model that `make run MODEL=small` starts."""

import os
import signal
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.faults.programs import until
from tests.small_model.beside import Beside, words

WINDOW = 8192
# So small that a chat is compacted twice within a minute. The model writes the summaries.
TIGHT = {
    "strategy": "dynamic_summary",
    "turn_threshold": None,
    "token_budget": 1_800,
    "reserve_tokens": 400,
    "keep_last_messages": 4,
    "summary_max_tokens": 300,
}
TIGHT_PROMPT = 1_800
FACTS = "Order {0} is for Ben Ode of Oslo. Why?"


def test_setup_offers_it_with_one_button_and_says_how_small_it_is(beside: Beside) -> None:
    offer = " ".join(beside.offered.split())
    assert f'name="base_url" value="{beside.address}/v1"' in offer
    assert "135 million parameters" in offer
    assert "often wrong" in offer
    assert "340 MB" in offer

    assert "notice notice--ok" in beside.connected
    assert "135 million parameters" not in beside.connected


def test_its_window_is_read_from_the_server_and_the_demo_model_stays_the_default(
    beside: Beside,
) -> None:
    listed = httpx2.get(f"{beside.address}/v1/models", timeout=10).json()["data"][0]
    assert listed["meta"]["n_ctx"] == beside.model()["context_window"] == WINDOW
    assert "8192 tokens" in beside.connected.replace(",", "")

    (default,) = beside.database.rows("SELECT * FROM contextpolicy_modelspec WHERE is_default = 1")
    assert default["slug"] == "demo"


def test_only_its_own_address_is_allowed(beside: Beside) -> None:
    assert "base_url_refused" in beside.refused
    assert f"127.0.0.1:{beside.product.port}" in beside.refused
    assert listening_on(beside.port) == {"0100007F"}


def test_pages_of_other_sites_may_not_read_it_and_it_lists_no_prompts(beside: Beside) -> None:
    foreign = {"Origin": "https://other.example"}
    answer = httpx2.get(f"{beside.address}/v1/models", headers=foreign, timeout=10)
    assert answer.headers.get("Access-Control-Allow-Origin", "") == ""
    assert httpx2.get(f"{beside.address}/slots", timeout=10).status_code == 501


def test_a_reply_streams_and_its_tokens_are_counted(beside: Beside, chat: str) -> None:
    # A long reply: on a busy machine, a piece contains several tokens.
    answered = beside.say(chat, "Tell me a long story about a cat and its friends.")

    assert answered.status == "completed"
    assert len(answered.pieces) > 3
    (receipt,) = beside.receipts(chat)
    assert receipt["usage"]["output"] > 3
    assert receipt["usage"]["input"] > 10


def test_a_stop_frees_its_slot(beside: Beside, chat: str) -> None:
    beside.desk.ask("change_model", slug=beside.slug, values={"max_output": 2_000})
    answer = beside.api.post(f"/chats/{chat}/messages", json={"text": "Tell a long story."})
    turn = answer.json()["turn"]["id"]
    events = beside.events(chat, turn)
    next(event for event in events if words(event))
    # The reply of an earlier test may still be running.
    until(lambda: beside.writing() == 1, seconds=20, what="one reply in the making")

    beside.api.post(f"/chats/{chat}/turns/{turn}/stop").raise_for_status()

    until(lambda: beside.writing() == 0, seconds=10, what="a free slot")
    assert next(event for event in events if event.name == "done").data["status"] == "stopped"


def test_an_overflow_is_learned(beside: Beside, chat: str) -> None:
    values = {"strategy": "sliding_window", "token_budget": 50_000, "reserve_tokens": 1_000}
    beside.desk.ask("govern", values=values)
    beside.desk.ask("change_model", slug=beside.slug, values={"context_window": 100_000})

    assert beside.say(chat, "a b " * 6_000).status == "failed"
    assert beside.model()["learned_window"] == WINDOW

    beside.desk.ask("forget_limit", slug=beside.slug)


@pytest.mark.whole
def test_between_two_compactions_the_prompt_comes_from_its_cache_and_no_nonsense_is_in_force(
    beside: Beside, chat: str
) -> None:
    beside.desk.ask("govern", values={**TIGHT, "summarization_model": beside.slug})
    beside.desk.ask("change_model", slug=beside.slug, values={"max_output": 60})

    usages: list[dict[str, int]] = []
    for number in range(60):
        assert beside.say(chat, FACTS.format(4_001 + number)).status == "completed"
        usages = undisturbed(beside, chat)
        if len(usages) >= 5:
            break

    share = sum(u["cached"] for u in usages) / sum(u["input"] for u in usages)
    assert share >= 0.95, usages
    rows = beside.compactions(chat)
    assert any(row["model_name"] == beside.model()["name"] for row in rows), "it was never asked"
    assert beside.desk.ask("unsound") == []


@pytest.mark.whole
def test_a_program_that_resends_its_growing_chat_is_served_from_the_cache(beside: Beside) -> None:
    beside.desk.ask("govern", values={**TIGHT, "summarization_model": beside.slug})
    beside.desk.ask("change_model", slug=beside.slug, values={"max_output": 20})
    key = beside.api.headers["Authorization"].removeprefix("Bearer ")
    program = OpenAI(base_url=f"{beside.product.url}/v1", api_key=key, timeout=120)

    messages: list[Any] = []
    chats, told = set(), []
    for number in range(60):
        messages.append({"role": "user", "content": FACTS.format(4_001 + number)})
        answer = program.chat.completions.with_raw_response.create(
            model=beside.slug, messages=messages
        )
        chats.add(answer.headers["X-Context-Chat"])
        reply = answer.parse()
        assert reply.usage is not None
        told.append(reply.usage)
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})

    assert len(chats) == 1
    assert max(usage.prompt_tokens for usage in told) < TIGHT_PROMPT
    used = undisturbed(beside, chats.pop())
    share = sum(u["cached"] for u in used) / sum(u["input"] for u in used)
    assert len(used) >= 5
    assert share >= 0.95, used


def test_a_killed_model_comes_back_at_its_address(beside: Beside, chat: str) -> None:
    before, port = beside.process(), beside.port

    os.kill(before, signal.SIGKILL)

    until(lambda: beside.process() not in {0, before}, seconds=20, what="another process")
    until(beside.is_ready, seconds=60, what="the model")
    assert beside.port == port
    assert beside.say(chat, "Are you there?").status == "completed"


def test_its_log_is_its_owners_and_holds_no_words(beside: Beside, chat: str) -> None:
    beside.say(chat, "My secret word is Zebulonix.")

    assert stat.S_IMODE(beside.log.stat().st_mode) == 0o600
    said = beside.log.read_text(encoding="utf-8")
    assert "is served at" in said
    assert "Zebulonix" not in said


def test_pages_and_files_are_served_without_a_warning(beside: Beside) -> None:
    # Django warned at the first file: "must consume synchronous iterators".
    for path in ("/login/", "/static/css/chat.css", "/static/js/app.js"):
        for encoding in ("identity", "gzip"):
            url = f"{beside.product.url}{path}"
            answer = httpx2.get(url, headers={"Accept-Encoding": encoding}, timeout=10)
            assert answer.status_code == 200
            assert len(answer.content) > 100


def test_it_ends_with_the_launcher(beside: Beside) -> None:
    """The launcher is killed, so it cannot end its child processes."""
    other = Beside()
    pid = other.process()
    assert other.port != beside.port
    other.product.program.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), seconds=5, what="its end")
    other.close()


def undisturbed(beside: Beside, chat: str) -> list[dict[str, int]]:
    """The first-token times after a compaction, without the first prompt after each compaction."""
    times = published(beside, chat)
    calls = beside.receipts(chat)
    begun = [sum(time < call["created_at"] for time in times) for call in calls]
    return [
        call["usage"]
        for call, before, since in zip(calls[1:], begun, begun[1:], strict=False)
        if since and since == before
    ]


def published(beside: Beside, chat: str) -> list[str]:
    """The times at which the compactions of a chat were published."""
    rows = beside.compactions(chat)
    return sorted(row["published_at"] for row in rows if row["published_at"])


def listening_on(port: int) -> set[str]:
    """The addresses that have a listener on a port, in the kernel's notation."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            address, _, number = line.split()[1].rpartition(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                found.add(address)
    return found
