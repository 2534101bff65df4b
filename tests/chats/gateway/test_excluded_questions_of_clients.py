"""Requests of OpenAI clients that end with a message that its owner excluded from prompts."""

from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import marks
from chats.models import Chat, Message, Turn
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    assistant,
    call,
    calling,
    result,
    user,
)

ASKED = "Which ring does the heron wear?"


def mark_question(mark: str) -> None:
    """Exclude the question of the chat, or include it again."""
    row = Message.objects.filter(branch__chat=Chat.objects.get(), role="user").latest("seq")
    change = {"exclude": marks.exclude_message, "include": marks.include_message}[mark]
    change(message=row, actor="user:1", now=timezone.now())


def test_a_regeneration_is_refused_until_the_message_is_included(
    program: GatewayClient, alice: User
) -> None:
    del alice
    *asked, _ = program.talk(["Hello", ASKED])
    mark_question("exclude")
    refused = program.ask(asked)
    assert (refused.status, refused.json["error"]["code"]) == (409, "message_excluded")
    assert refused.headers["X-Should-Retry"] == "false"
    assert Turn.objects.count() == 2
    mark_question("include")
    assert program.ask(asked).status == 200


def test_the_next_step_of_a_tool_round_is_refused(program: GatewayClient, alice: User) -> None:
    del alice
    program.ask([user(ASKED)], *calling("c1"), tools=TOOLS)
    mark_question("exclude")
    called = [assistant(None, call("c1")), result("c1", "B-417")]
    refused = program.ask([user(ASKED), *called], tools=TOOLS)
    assert (refused.status, refused.json["error"]["code"]) == (409, "message_excluded")


def test_a_question_that_is_excluded_before_its_turn_is_not_sent_again(
    program: GatewayClient, alice: User
) -> None:
    del alice
    opened = program.open({"model": "demo", "messages": [user(ASKED)]})
    mark_question("exclude")
    program.work(opened["X-Context-Report-Id"])
    refused = program.close(opened)
    assert (refused.status, refused.json["error"]["code"]) == (409, "message_excluded")
    assert refused.headers["X-Should-Retry"] == "false"


def test_a_new_message_is_answered_without_the_excluded_one(
    program: GatewayClient, alice: User
) -> None:
    del alice
    said = program.talk([ASKED])
    mark_question("exclude")
    assert program.ask([*said, user("And the stork?")]).status == 200
    assert ASKED not in "\n".join(text for _, text in program.prompt)
