"""A client that resends its growing conversation is recognised. Other requests are not.

The case numbers come from section 4 of the study of gateways.
"""

from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.gateway.matching import identity
from chats.models import Branch, Chat, GatewayChat, GatewayNode, Message
from chats.providers.base import Finished, TextDelta
from contextpolicy.models import ModelSpec
from tests.support.gateway_clients import (
    TOOLS,
    USAGE,
    GatewayClient,
    MakeClient,
    Messages,
    assistant,
    call,
    calling,
    list_chat_messages,
    result,
    system,
    user,
)

pytestmark = pytest.mark.django_db
SAME = (TextDelta("The same."), USAGE, Finished("stop"))


def decision(answer: Any) -> str:
    """Return the decision of the response: how its position was found."""
    assert answer.status == 200, answer.body
    return str(answer.headers["X-Context-Decision"])


def grown(program: GatewayClient, count: int) -> Messages:
    """Return a conversation with this number of questions and replies."""
    return program.talk([f"Question {n}" for n in range(1, count + 1)])


@pytest.mark.gateway_case(2)
@pytest.mark.gateway_case(1)
@pytest.mark.gateway_case(3)
@pytest.mark.gateway_case(4)
@pytest.mark.gateway_case(6)
def test_one_chat_whatever_changes_around_its_messages(
    program: GatewayClient, make: MakeClient, alice: User, demo_model: ModelSpec
) -> None:
    ModelSpec.objects.create(slug="other", provider="demo", name="other")
    said: Messages = []
    for n in range(1, 7):
        if n == 4:
            # A rotated key still belongs to the same user.
            program = make(alice)
        said.append(user([{"type": "text", "text": f"Question {n}", "cache_control": {"t": n}}]))
        asides = [system(f"Reminder {n}", "developer")] if n > 2 else []
        sent = [system(f"It is {n} May, the folder is /{n}."), *said[:-1], *asides, said[-1]]
        answer = program.ask(sent, model="other" if n > 3 else "demo")
        assert decision(answer) == ("new" if n == 1 else "continue")
        said.append(assistant(answer.text))
    chat = Chat.objects.get()
    assert Branch.objects.count() == 1
    assert [seq for seq, _, _ in list_chat_messages(chat)] == list(range(1, 13))
    assert (chat.model and chat.model.slug, chat.archived, chat.erase_at) == ("other", False, None)
    assert program.prompt[0] == ("system", "It is 6 May, the folder is /6.\n\nReminder 6")


@pytest.mark.gateway_case(5)
@pytest.mark.gateway_case(7)
def test_a_loop_of_tools_is_found_by_its_results(program: GatewayClient) -> None:
    said = [user("The weather in Oslo and Rome?")]
    first = program.ask(said, *calling("a", "b"), tools=TOOLS)
    assert first.json["choices"][0]["finish_reason"] == "tool_calls"
    assert first.json["choices"][0]["message"]["content"] is None
    # Other clients return it with different ids, spaces and an empty text.
    spaced = [call("x", '{ "city":"Oslo" }'), call("y", '{"city"  : "Oslo"}')]
    said += [assistant("", *spaced), result("x", "cold"), result("y", "warm")]
    second = program.ask(said, *calling("c"), tools=TOOLS)
    assert decision(second) == "continue"
    assert [wire.role for wire in program.requests[-1].messages] == [
        "user", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert [m.content for m in program.requests[-1].messages[2:]] == ["cold", "warm"]
    said += [assistant(None, call("c")), result("c", "colder")]
    third = program.ask(said, tools=TOOLS)
    assert decision(third) == "continue"
    said += [assistant(third.text), user("Thanks")]
    assert decision(program.ask(said)) == "continue"
    chat = Chat.objects.get()
    assert Branch.objects.count() == 1
    assert [(seq, role) for seq, role, _ in list_chat_messages(chat)] == [
        (1, "user"), (2, "assistant"), (3, "assistant"), (4, "assistant"), (5, "user"),
        (6, "assistant"),
    ]  # fmt: skip
    # The model got each call once, with its result.
    assert [m.role for m in program.requests[-1].messages].count("tool") == 3


def test_other_results_of_the_same_calls_are_another_branch(program: GatewayClient) -> None:
    said = [user("The weather?")]
    program.ask(said, *calling("a"), tools=TOOLS)
    said.append(assistant(None, call("a")))
    program.ask([*said, result("a", "cold")], tools=TOOLS)
    other = program.ask([*said, result("a", "warm")], tools=TOOLS)
    assert decision(other) == "branch"
    assert [m.content for m in program.requests[-1].messages if m.role == "tool"] == ["warm"]
    first, second = Branch.objects.order_by("created_at")
    assert (second.parent, second.fork_seq) == (first, 1)


@pytest.mark.gateway_case(8)
@pytest.mark.gateway_case(9)
@pytest.mark.gateway_case(10)
@pytest.mark.gateway_case(11)
@pytest.mark.gateway_case(13)
@pytest.mark.gateway_case(14)
def test_equal_beginnings_are_chats_of_their_own(program: GatewayClient) -> None:
    head = system("A long text of five thousand tokens. " * 100)
    program.talk(["hi"], [head])
    fresh = program.ask([head, user("hi")], prompt_cache_key="one", user="u")
    again = program.ask([head, user("hi")], prompt_cache_key="one", user="u")
    assert decision(fresh) == decision(again) == "new"
    assert program.prompt[1:] == [("user", "hi")]
    # Both conversations continue in parallel, each recognised by its own reply.
    for answer in (fresh, again, fresh, again):
        said = [head, user("hi"), assistant(answer.text), user("And?")]
        more = program.ask(said, prompt_cache_key="one", user="u")
        assert more.chat == answer.chat
    assert Chat.objects.count() == 3


@pytest.mark.gateway_case(12)
@pytest.mark.gateway_case(20)
def test_nothing_is_found_across_people(
    program: GatewayClient, make: MakeClient, bob: User
) -> None:
    header = {"X-Session-Id": "shared"}
    said = [user("My secret is 4711")]
    mine = program.ask(said, headers=header)
    said += [assistant(mine.text), user("What was it?")]
    program.ask(said, headers=header)
    of_bob = make(bob).ask(said, headers=header)
    assert decision(of_bob) == "new"
    assert (of_bob.chat.owner, mine.chat.owner.username) == (bob, "alice")
    crafted = [assistant(mine.text), user("What was it?")] * 6
    assert decision(make(bob).ask([user("x"), *crafted], headers=header)) != "continue"
    # Another end user of the same key counts as another person.
    assert decision(program.ask(said, user="another")) == "new"


def test_a_chat_is_provisional_until_one_of_its_replies_comes_back(program: GatewayClient) -> None:
    answer = program.ask([user("hi")])
    chat = answer.chat
    assert chat.is_provisional
    assert not GatewayChat.objects.get().proven
    said = [user("hi"), assistant("A reply that nobody gave."), user("And?")]
    assert decision(program.ask(said)) == "new"
    said[1] = assistant(answer.text)
    assert decision(program.ask(said)) == "continue"
    chat.refresh_from_db()
    assert (chat.archived, chat.erase_at, chat.title) == (False, None, "hi")


@pytest.mark.parametrize(
    ("said", "title"),
    [
        (["<environment_context>\n <cwd>/src</cwd>\n</environment_context>", "Mend it"], "Mend it"),
        (["<p>One</p> of many", "Mend it"], "<p>One</p> of many"),
        (["<note>Alone</note>"], "<note>Alone</note>"),
    ],
)
def test_a_chat_is_titled_by_what_somebody_wrote(
    program: GatewayClient, said: list[str], title: str
) -> None:
    assert program.ask([user(text) for text in said]).chat.title == title


def test_the_parts_of_a_message_stand_apart(program: GatewayClient) -> None:
    parts = [{"type": "text", "text": text} for text in ("First.", "Second.")]
    chat = program.ask([{"role": "user", "content": parts}]).chat
    (message,) = Message.objects.filter(branch__chat=chat, role="user")
    assert message.text == "First.\n\nSecond."


def test_a_reply_without_its_thoughts_and_spaces_is_still_ours(program: GatewayClient) -> None:
    first = program.ask(
        [user("hi")], TextDelta("<think>Hm.</think>\n\nYes,  I am  here.\n"), Finished("stop")
    )
    said = [user("hi"), assistant("Yes, I am here."), user("And?")]
    second = program.ask(said)
    assert (second.chat, decision(second)) == (first.chat, "continue")
    # From here on the client repeats its own form. Another form counts as a different reply.
    said += [assistant(second.text), user("More?")]
    assert decision(program.ask(said)) == "continue"
    said[1] = assistant("Yes, I am  here.")
    assert decision(program.ask([*said, user("Well?")])) != "continue"


@pytest.mark.gateway_case(18)
@pytest.mark.gateway_case(19)
def test_an_edit_is_a_branch_that_knows_nothing_of_what_it_left(program: GatewayClient) -> None:
    said = grown(program, 4)
    edited = [*said[:4], user("Another question 3")]
    answer = program.ask(edited)
    assert (decision(answer), answer.chat) == ("branch", Chat.objects.get())
    assert program.prompt == [(m["role"], m["content"]) for m in edited]
    # A reply that the client changed also counts as a different message.
    changed = [*said[:5], assistant("I never said this."), user("Go on")]
    assert decision(program.ask(changed)) == "branch"
    assert ("assistant", "I never said this.") in program.prompt
    assert ("assistant", said[5]["content"]) not in program.prompt
    # The original conversation continues on its branch.
    assert decision(program.ask([*said, user("Question 5")])) == "continue"
    assert Branch.objects.count() == 3


def test_the_same_again_is_another_reply_beside_the_first(program: GatewayClient) -> None:
    said = grown(program, 2)
    program.ask([*said, user("Question 3")])
    again = program.ask([*said, user("Question 3")])
    assert decision(again) == "branch"
    assert Message.objects.filter(role="user").count() == 3
    assert Branch.objects.get(parent__isnull=False).fork_seq == 5
    # Each of the two replies continues on its own branch.
    more = program.ask([*said, user("Question 3"), assistant(again.text), user("Question 4")])
    assert (decision(more), more.turn.branch.fork_seq) == ("continue", 5)


@pytest.mark.gateway_case(16)
def test_parallel_calls_are_replies_beside_each_other(program: GatewayClient) -> None:
    said = [*grown(program, 1), user("All at once")]
    responses = [program.open({"model": "demo", "messages": said}) for _ in range(20)]
    assert {response.status_code for response in responses} == {200}
    for response in responses:
        program.work(response["X-Context-Report-Id"])
    texts = {program.close(response).text for response in responses}
    assert len(texts) == 20
    assert Chat.objects.count() == 1
    assert Message.objects.filter(role="user").count() == 2


@pytest.mark.gateway_case(15)
@pytest.mark.gateway_case(17)
def test_an_id_names_the_room_and_the_messages_the_place(program: GatewayClient) -> None:
    header = {"X-Session-Id": "agent"}
    parent = program.talk(["Plan it"], headers=header)
    lines = [program.talk([f"Part {n}"], headers=header) for n in range(5)]
    chat = Chat.objects.get()
    one_more = program.ask([user("Write a poem")], headers=header)
    assert (decision(one_more), Branch.objects.filter(chat=chat).count()) == ("branch", 7)
    # A call for a title gets a separate chat.
    title = program.ask([user("Write a title for this chat")], headers=header)
    assert (decision(title), title.chat == chat) == ("new", False)
    for n, line in enumerate(lines):
        assert decision(program.ask([*line, user(f"More of {n}")], headers=header)) == "continue"
        assert len(program.prompt) == 3
    answer = program.ask([*parent, user("Go on")], headers=header)
    assert (decision(answer), answer.chat) == ("continue", chat)
    assert answer.headers["X-Context-Identity"] == "x-session-id"
    other = program.ask([*parent, user("Go on")], headers={"X-Session-Id": "another"})
    assert (decision(other), other.chat == chat) == ("new", False)


def test_an_id_that_is_none_is_said_and_nothing_takes_its_place(program: GatewayClient) -> None:
    bad = {"X-Session-Id": "x" * 256, "X-Conversation-Id": "fine"}
    answer = program.ask([user("hi")], headers=bad)
    assert answer.headers["X-Context-Identity"] == "invalid:x-session-id"
    named = identity.parse_identity({}, {"metadata": {"chat_id": "c1"}, "user": "u"})
    assert named == ("metadata.chat_id", "c1", "\x1f\x1fu")
    assert identity.parse_identity({}, {"prompt_cache_key": "k"}).value == ""


@pytest.mark.gateway_case(21)
@pytest.mark.gateway_case(22)
def test_a_program_that_windows_itself_gets_one_branch(program: GatewayClient) -> None:
    said: Messages = []
    for n in range(1, 31):
        said.append(user(f"Question {n}"))
        said = said[-13:] if said[-13:][0]["role"] == "user" else said[-12:]
        answer = program.ask(said)
        assert program.prompt == [(m["role"], m["content"]) for m in said]
        said.append(assistant(answer.text))
    chat = Chat.objects.get()
    windowed = Branch.objects.get(client_windowed=True)
    assert Branch.objects.count() == 2
    assert (chat.active_branch, windowed.last_seq, windowed.compaction_paused) == (
        windowed, 60, True,
    )  # fmt: skip
    # The client's own summary at the start is sent unchanged.
    summed = [user("Summary so far: 30 questions."), *said[-9:], user("Question 31")]
    answer = program.ask(summed)
    assert program.prompt == [(m["role"], m["content"]) for m in summed]
    assert (decision(answer), answer.chat) == ("branch", chat)
    summed += [assistant(answer.text), user("Question 32")]
    assert decision(program.ask(summed)) == "continue"
    assert program.prompt == [(m["role"], m["content"]) for m in summed]


def test_a_short_tail_proves_nothing_without_an_id(program: GatewayClient) -> None:
    said = grown(program, 4)
    tail = [*said[-4:], user("Go on")]
    answer = program.ask(tail)
    assert decision(answer) == "new"
    assert program.prompt == [(m["role"], m["content"]) for m in tail]


@pytest.mark.gateway_case(23)
def test_a_chat_that_is_erased_stays_erased(program: GatewayClient) -> None:
    said = [*grown(program, 1), user("Go on")]
    response = program.open({"model": "demo", "messages": said, "stream": True})
    Chat.objects.get().delete()
    assert not GatewayNode.objects.exists()
    answer = program.close(response)
    assert answer.json["error"]["code"] == "chat_gone"
    assert not Message.objects.exists()
    assert decision(program.ask(said)) == "new"


def test_twenty_conversations_under_one_key_do_not_mix(program: GatewayClient) -> None:
    lines: list[Messages] = [[] for _ in range(20)]
    for n in range(3):
        for number, line in enumerate(lines):
            # Every other conversation starts with the same words.
            line.append(user(f"{'hi' if number % 2 else number} {n}"))
            answer = program.ask(line)
            assert program.prompt == [(m["role"], m["content"]) for m in line]
            line.append(assistant(answer.text))
    assert (Chat.objects.count(), Branch.objects.count()) == (20, 20)
    assert not Chat.objects.filter(archived=True).exists()
