"""The counts of pages, REST and previews are those of the run; before that they carry ≈."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import Chat, Receipt
from chats.people import keys
from chats.prompt.meter import build_meter
from chats.providers.base import Finished, TextDelta
from chats.simulation.preview import compose_side
from chats.turns.start import start_turn
from chats.web.thread.rows import load_active_branch
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.programs import Program

CHINESE = "请用简洁的中文回答，不要编造事实；如果不知道，就直接说不知道，并且说明原因。"
ARABIC = "ما هو موعد القطار القادم إلى بغداد؟"
QUESTION = "Wie heißt die Straße, in der Jürgen wohnt? " + ARABIC
REPLY = [TextDelta("好的。Straße des 17. Juni."), Finished("stop")]


@pytest.fixture
def program(alice: User, demo_model: object) -> Program:
    """A program of Alice's."""
    now = timezone.now()
    _, secret = keys.create_key(owner=alice, name="a program", scopes=keys.SCOPES, now=now)
    return Program(secret)


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B"])
def test_counts_before_a_message_are_those_of_its_receipt(
    chat: Chat, alice: User, program: Program, work: Callable[..., Any], layout: str
) -> None:
    now = timezone.now()
    values = {"system_text": CHINESE, "layout": layout, "max_chars_per_message": 40}
    made = create_policy(slug="p", name="P", values=values, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now)
    Chat.objects.filter(pk=chat.pk).update(system_text="Отвечай вежливо, даже если спешишь.")

    # The first message has no counts to go by, the second those of the first.
    for _ in range(2):
        chat.refresh_from_db()
        foretold = program.post(f"chats/{chat.pk}/context", {"question": QUESTION}).json()
        shown = build_meter(chat=chat, now=now)
        side = compose_side(load_active_branch(chat), proposal=None, now=now, question=QUESTION)
        turn = start_turn(user=alice, chat=chat, text=QUESTION, now=now).turn
        work(turn, REPLY)
        receipt = Receipt.objects.get(turn=turn)

        assert foretold["prompt_tokens"] == side.tokens == receipt.prompt_tokens
        assert foretold["approximate"] is shown.approximate is False
        told = [s["tokens"] for s in foretold["segments"]]
        assert told == [segment[3] for segment in receipt.segments]
        # The estimate would have been another number.
        estimated = ApproximateCounter().count(CHINESE)
        assert receipt.segments[0][3] < estimated


def test_a_page_shows_estimates_until_the_tokenizer_is_loaded(
    chat: Chat, alice: User, client: Client, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(alice)
    with monkeypatch.context() as patched:
        patched.setattr("chats.web.thread.rows.get_page_counter", ApproximateCounter)
        patched.setattr(
            "chats.prompt.next_context.get_page_counter", lambda **_: ApproximateCounter()
        )
        early = client.get(f"/chats/{chat.pk}/").content.decode()
        asked = program.post(f"chats/{chat.pk}/context", {"question": QUESTION}).json()
    address = f"/chats/{chat.pk}/meter"
    assert f'hx-post="{address}"' in early
    assert 'hx-trigger="draft from:body, load delay:2s"' in early
    assert '<span class="meter__text"><bdi>≈ ' in early
    assert 'data-note="estimated-counts"' in early
    assert 'data-note="exact-counts"' not in early
    assert asked["approximate"] is True

    later = client.post(address).content.decode()
    assert "≈" not in later
    assert "load delay" not in later
    assert 'data-note="exact-counts"' in later


LAZY = """
from chats.prompt import tokenizer

first = tokenizer.get_page_counter()
assert first.version == "approx-1", first.version
assert tokenizer.O200kCounter().count("") == 0
tokenizer.start_loader().join(60)
assert tokenizer.get_page_counter().version == "o200k-1"
"""


def test_the_first_page_of_a_process_does_not_wait_for_the_tokenizer() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
