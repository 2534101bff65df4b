"""Summaries replace only messages that the client resent unchanged. Expired chats keep a record."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from chats.actions import branching, erasure, organising
from chats.actions.expiry import select_expired_chats
from chats.background import due_jobs
from chats.compaction.coverage import get_active_summary
from chats.ground import queue
from chats.models import Branch, Chat, Folder, GatewayNode, Message
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import SENTENCE, Fold, SetPolicy
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    Messages,
    assistant,
    call,
    calling,
    list_queued_tasks,
    result,
    user,
)

pytestmark = pytest.mark.django_db


def long(program: GatewayClient, count: int = 8) -> Messages:
    """Return a conversation long enough for a compaction."""
    return program.talk([f"Question {n}. {SENTENCE * 8}" for n in range(count)])


def sources(prompt: list[tuple[str, str]]) -> int:
    """Return the number of questions that a prompt contains verbatim."""
    return sum(1 for role, text in prompt if role == "user" and text.startswith("Question "))


@pytest.mark.gateway_case(18)
@pytest.mark.gateway_case(19)
def test_a_branch_takes_over_the_summary_that_ends_before_it(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    said = long(program)
    chat = Chat.objects.get()
    row = fold(chat, at=timezone.now())
    covered = row.to_seq
    assert 2 < covered <= 14
    on = program.ask([*said, user("Go on")])
    assert on.headers["X-Context-Status"] == "summarised"
    assert sources(program.prompt) == 8 - covered // 2
    # An edit after the summary keeps it. An edit of a summarised message sends the originals.
    behind = [*said[:14], user("Another question")]
    assert program.ask(behind).headers["X-Context-Status"] == "summarised"
    before = [*said[:2], user("Question 1, but another")]
    edited = program.ask(before)
    assert edited.headers["X-Context-Status"] == "full"
    assert program.prompt == [(m["role"], m["content"]) for m in before]
    # A changed reply inside the summarised range invalidates the summary.
    changed = [said[0], assistant("I never said this."), *said[2:], user("Go on")]
    answer = program.ask(changed)
    assert answer.headers["X-Context-Status"] != "summarised"
    assert Message.objects.get(branch=answer.turn.branch, seq=2).text == "I never said this."
    # The original branch still uses it.
    again = program.ask([*said, user("Go on"), assistant(on.text), user("And?")])
    assert again.headers["X-Context-Status"] == "summarised"
    assert get_active_summary(again.turn.branch.active_compaction) == row


@pytest.mark.gateway_case(17)
def test_nothing_is_prepared_for_a_chat_that_is_not_proven(
    program: GatewayClient,
    set_policy: SetPolicy,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    made_up = [m for n in range(6) for m in (user(f"{n} {SENTENCE * 8}"), assistant(SENTENCE))]
    with django_capture_on_commit_callbacks(execute=True):
        program.ask([*made_up, user("One more")])
    tasks = list_queued_tasks(sent)
    assert queue.MAINTAIN_CHAT not in tasks
    assert queue.WRITE_TITLE not in tasks
    assert queue.WARM_UP not in tasks
    with django_capture_on_commit_callbacks(execute=True):
        long(program)
    assert queue.MAINTAIN_CHAT in list_queued_tasks(sent)


@pytest.mark.gateway_case(24)
def test_calls_and_results_stay_together_on_both_sides_of_a_summary(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(token_budget=2400, reserve_tokens=300)
    said: Messages = []
    for n in range(6):
        said.append(user(f"Question {n}. {SENTENCE * 5}"))
        program.ask(said, *calling(f"a{n}", f"b{n}"), tools=TOOLS)
        said.append(assistant(None, call(f"a{n}"), call(f"b{n}")))
        said += [result(f"a{n}", SENTENCE), result(f"b{n}", "cold " * 40)]
        said.append(assistant(program.ask(said, tools=TOOLS).text))
    fold(Chat.objects.get(), at=timezone.now())
    said.append(user("And now?"))
    answer = program.ask(said, *calling("last"), tools=TOOLS)
    assert answer.headers["X-Context-Status"] == "summarised"
    said += [assistant(None, call("last")), result("last", "done")]
    program.ask(said, tools=TOOLS)
    wires = program.requests[-1].messages
    asked = [each.call_id for wire in wires for each in wire.tool_calls]
    assert sorted(asked) == sorted(wire.tool_call_id for wire in wires if wire.role == "tool")
    assert Branch.objects.count() == 1


def test_a_running_loop_of_tools_is_never_folded(
    program: GatewayClient, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300, keep_last_messages=0)
    said = long(program)
    said.append(user("The weather?"))
    program.ask(said, *calling("a"), tools=TOOLS)
    said += [assistant(None, call("a")), result("a", "cold")]
    response = program.open({"model": "demo", "messages": said, "tools": TOOLS})
    row = fold(Chat.objects.get(), at=timezone.now())
    assert row.to_seq <= len(said) - 3
    program.work(response["X-Context-Report-Id"])
    assert program.close(response).status == 200
    assert [wire.role for wire in program.requests[-1].messages][-3:] == [
        "user", "assistant", "tool",
    ]  # fmt: skip


@pytest.mark.gateway_case(31)
def test_another_model_with_a_smaller_window_gets_what_fits(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(token_budget=4000, reserve_tokens=300, summary_max_tokens=100)
    said = long(program)
    ModelSpec.objects.create(slug="narrow", provider="demo", name="narrow", context_window=1600)
    answer = program.ask([*said, user("Go on")], model="narrow")
    assert answer.status == 200, answer.body
    assert (answer.status, answer.chat) == (200, Chat.objects.get())
    assert answer.headers["X-Context-Status"] in ("windowed", "pending")
    assert sources(program.prompt) < 8


def test_a_provisional_chat_goes_after_a_day_and_its_row_stays(program: GatewayClient) -> None:
    chat = program.ask([user("hi")]).chat
    kept = program.ask([user("hello")]).chat
    # The user unarchived this chat, so it is not provisional any more.
    Chat.objects.filter(pk=kept.pk).update(archived=False)
    later = timezone.now() + timedelta(hours=25)
    assert list(select_expired_chats(now=later)) == [chat]
    assert not select_expired_chats(now=timezone.now()).exists()
    assert due_jobs.enqueue_erasures(now=later) == 1
    assert erasure.erase_expired(chat_id=chat.pk, now=later)
    assert not Message.objects.filter(branch__chat=chat).exists()
    rows = AuditEvent.objects.filter(scope=f"chat:{chat.pk}").order_by("seq")
    types = [row.type for row in rows]
    assert types[:2] == ["chat.created", "turn.started"]
    assert types[-1] == "chat.erased"
    started = rows[1].data
    assert (started["gateway"], started["identity"]) == ("new", "")
    assert "hi" not in str([row.data for row in rows]).split("'")


@pytest.mark.parametrize("kept", ["unarchived", "pinned", "filed", "continued", "regenerated"])
def test_a_provisional_chat_that_its_owner_keeps_is_not_erased(
    program: GatewayClient, kept: str
) -> None:
    chat = Chat.objects.select_related("owner").get(pk=program.ask([user("hi")]).chat.pk)
    folder = Folder.objects.create(owner=chat.owner, name="Kept")
    if kept == "continued":
        start_turn(user=chat.owner, chat=chat, text="And then?", now=timezone.now())
    elif kept == "regenerated":
        message = Message.objects.get(branch__chat=chat, role="assistant")
        branching.regenerate_reply(user=chat.owner, message=message, now=timezone.now())
    else:
        changes: dict[str, dict[str, Any]] = {
            "unarchived": {"archived": False},
            "pinned": {"pinned": True},
            "filed": {"folder": folder.pk},
        }
        change = changes[kept]
        organising.organise_chat(chat=chat, user=chat.owner, **change)
    chat.refresh_from_db()
    organising.organise_chat(chat=chat, user=chat.owner, archived=True)
    later = timezone.now() + timedelta(days=400)
    assert not select_expired_chats(now=later).exists()


def test_an_earlier_version_left_the_time_of_erasure_of_an_unarchived_chat(
    program: GatewayClient,
) -> None:
    chat = program.ask([user("hi")]).chat
    Chat.objects.filter(pk=chat.pk).update(archived=False)
    chat = Chat.objects.select_related("owner").get(pk=chat.pk)
    organising.organise_chat(chat=chat, user=chat.owner, archived=True)
    assert not select_expired_chats(now=timezone.now() + timedelta(days=400)).exists()


def test_an_erased_message_leaves_no_mark_by_which_it_could_be_guessed(
    program: GatewayClient,
) -> None:
    said = long(program, 3)
    message = Message.objects.get(seq=3)
    erasure.erase_message(user=message.branch.chat.owner, message=message, now=timezone.now())
    assert set(GatewayNode.objects.values_list("seq", flat=True)) == {1, 2}
    answer = program.ask([*said, user("Go on")])
    # The erased message is not restored. The client's text is stored as a new message.
    assert answer.headers["X-Context-Decision"] == "branch"
    message.refresh_from_db()
    assert message.parts == []
