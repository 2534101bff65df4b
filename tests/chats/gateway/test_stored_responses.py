"""Stored responses and items by id: references, retrieval, item lists, deletion."""

import uuid
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from openai.types.responses import Response
from openai.types.responses.response_item import ResponseItem
from pydantic import TypeAdapter

from chats.actions import erasure
from chats.models import Chat, DeletedResponse, Message, Turn
from chats.providers.base import Finished, ReasoningDelta, TextDelta
from contextpolicy.models import AuditEvent
from tests.support.gateway_clients import GatewayClient, MakeClient, calling, user
from tests.support.gateway_responses import (
    FUNCTION_TOOL,
    build_tool_output,
    create_response,
    parse_response,
)

pytestmark = pytest.mark.django_db

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
THINKING = (ReasoningDelta("Hm."), TextDelta("Salve"), Finished("stop"))


def reference(item: Any) -> dict[str, str]:
    """Return the reference that the AI SDK sends in place of a stored item."""
    return {"type": "item_reference", "id": item.id}


def get(program: GatewayClient, path: str, method: str = "GET", **query: Any) -> Any:
    """Return status and JSON of a path below /v1/responses/."""
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    answer = client.generic(method, f"/v1/responses/{path}?{urlencode(query)}")
    return answer.status_code, answer.json()


def test_references_to_items_of_replies_are_resolved(program: GatewayClient) -> None:
    first = parse_response(create_response(program, "Hello", *THINKING))
    assert [item.type for item in first.output] == ["reasoning", "message"]
    said = [user("Hello"), *map(reference, first.output), user("And?")]
    second = create_response(program, said)
    assert second.headers["X-Context-Decision"] == "continue"
    assert program.prompt == [("user", "Hello"), ("assistant", "Salve"), ("user", "And?")]
    assert Chat.objects.count() == 1


def test_references_to_calls_of_tools_are_resolved(program: GatewayClient) -> None:
    first = parse_response(
        create_response(program, "Weather?", *calling("a", "b"), tools=[FUNCTION_TOOL])
    )
    said = [
        user("Weather?"),
        *map(reference, first.output),
        build_tool_output("a", "rain"),
        build_tool_output("b", "sun"),
    ]
    second = create_response(program, said, tools=[FUNCTION_TOOL])
    assert second.headers["X-Context-Decision"] == "continue"
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain", "sun"]
    listed = get(program, f"{parse_response(second).id}/input_items", order="asc")[1]["data"]
    again = create_response(
        program,
        [*({"type": "item_reference", "id": i["id"]} for i in listed), user("And?")],
        tools=[FUNCTION_TOOL],
    )
    assert again.status == 200
    assert [text for _, text in program.prompt][:4] == ["Weather?", "", "rain", "sun"]
    # The type of a reference is optional.
    bare = [*({"id": i["id"]} for i in listed), user("And?")]
    assert create_response(program, bare, tools=[FUNCTION_TOOL]).status == 200
    assert [text for _, text in program.prompt][:4] == ["Weather?", "", "rain", "sun"]


def test_a_reference_leads_nowhere_for_others(
    program: GatewayClient, make: MakeClient, charlie: User
) -> None:
    mine = parse_response(create_response(program, "Hello"))
    apart = parse_response(create_response(program, "Mine", safety_identifier="ann"))
    unkept = parse_response(create_response(program, "Secret", store=False))
    asked = Message.objects.get(role="user", parts__0__text="Hello")
    for asker, item_id, more in (
        (make(charlie), mine.output[0].id, {}),
        (make(charlie), f"msg_{asked.pk.hex}", {}),
        (program, apart.output[0].id, {"safety_identifier": "ben"}),
        (program, unkept.output[0].id, {}),
        (program, f"msg_{uuid.uuid4().hex}", {}),
        (program, "msg_1", {}),
        (program, 7, {}),
    ):
        said = [user("Hello"), {"type": "item_reference", "id": item_id}, user("And?")]
        refused = create_response(asker, said, **more)
        error = refused.json["error"]
        assert (refused.status, error["code"], error["param"]) == (
            404,
            "item_not_found",
            "input[1].id",
        ), item_id
    said = [user("Mine"), reference(apart.output[0]), user("And?")]
    assert create_response(program, said, safety_identifier="ann").status == 200


def test_a_response_is_read_again_by_its_id(program: GatewayClient) -> None:
    first = parse_response(create_response(program, "Hello", *THINKING))
    status, told = get(program, first.id)
    again = Response.model_validate(told)
    assert status == 200
    assert (again.id, again.status, again.output) == (first.id, "completed", first.output)
    assert (again.output_text, again.model) == ("Salve", "demo")

    waiting = program.open({"model": "demo", "input": "And?"}, path="responses")
    turn = Turn.objects.get(pk=waiting["X-Context-Report-Id"])
    assert get(program, f"resp_{turn.pk.hex}")[1]["status"] == "in_progress"
    Turn.objects.filter(pk=turn.pk).update(
        status="failed", error_code="provider_error", error_sentence="It broke."
    )
    failed = Response.model_validate(get(program, f"resp_{turn.pk.hex}")[1])
    assert failed.status == "failed"
    assert failed.error
    assert failed.error.message == "It broke."


def test_the_items_before_a_response_are_listed_page_by_page(program: GatewayClient) -> None:
    first = parse_response(
        create_response(program, "One", *calling("a", text="Let me see."), tools=[FUNCTION_TOOL])
    )
    picture = {"type": "input_image", "image_url": "https://example.org/a.png"}
    parts = [{"type": "input_text", "text": "Two"}, picture]
    said = [user("One"), *(item.model_dump(exclude_none=True) for item in first.output)]
    said += [build_tool_output("a", "rain"), user(parts)]
    second = parse_response(create_response(program, said, tools=[FUNCTION_TOOL]))

    status, told = get(program, f"{second.id}/input_items", order="asc")
    assert status == 200
    for item in told["data"]:
        ITEM.validate_python(item)
    kinds = [item.get("role") or item["type"] for item in told["data"]]
    assert kinds == ["user", "assistant", "function_call", "function_call_output", "user"]
    assert told["data"][1]["id"] == first.output[0].id
    assert told["data"][-1]["content"][1]["image_url"] == "https://example.org/a.png"
    assert (told["has_more"], told["first_id"]) == (False, told["data"][0]["id"])

    ids: list[str] = []
    after: dict[str, str] = {}
    for _ in range(5):
        page = get(program, f"{second.id}/input_items", limit=1, **after)[1]
        ids += [item["id"] for item in page["data"]]
        after = {"after": page["last_id"]}
    assert ids == [item["id"] for item in reversed(told["data"])]
    assert page["has_more"] is False
    refused = ({"limit": 0}, {"limit": "0001000000"}, {"limit": "x"}, {"order": "up"})
    for bad in (*refused, {"after": "msg_1"}):
        status, told = get(program, f"{second.id}/input_items", **bad)
        assert (status, told["error"]["param"]) == (400, next(iter(bad)))


def test_another_persons_response_is_not_found(
    program: GatewayClient, make: MakeClient, charlie: User
) -> None:
    first = parse_response(create_response(program, "Hello"))
    other = make(charlie)
    for asker, named in (
        (other, first.id),
        (program, f"resp_{uuid.uuid4().hex}"),
        (program, "x"),
        (program, parse_response(create_response(program, "Secret", store=False)).id),
    ):
        for method, path in (("GET", named), ("GET", f"{named}/input_items"), ("DELETE", named)):
            status, told = get(asker, path, method)
            assert (status, told["error"]["code"]) == (404, "response_not_found")
    assert get(program, first.id)[0] == 200
    assert get(program, first.id, "PUT")[0] == 405


def test_a_deleted_response_is_gone_by_its_id_and_its_chat_stays(program: GatewayClient) -> None:
    first = parse_response(create_response(program, "Hello"))
    before = Message.objects.count()
    told = get(program, first.id, "DELETE")
    assert told == (200, {"id": first.id, "object": "response", "deleted": True})
    for method, path in (
        ("GET", first.id),
        ("GET", f"{first.id}/input_items"),
        ("DELETE", first.id),
    ):
        assert get(program, path, method)[0] == 404
    assert create_response(program, "More", previous_response_id=first.id).status == 404
    said = [user("Hello"), reference(first.output[0]), user("And?")]
    assert create_response(program, said).status == 404
    assert Message.objects.count() == before
    assert DeletedResponse.objects.count() == 1
    (event,) = AuditEvent.objects.filter(type="gateway.response_deleted")
    assert event.chat_id == Chat.objects.get().pk


def test_erased_words_are_in_no_response_and_no_list(program: GatewayClient, alice: User) -> None:
    first = parse_response(create_response(program, "The secret word"))
    said = [user("The secret word"), reference(first.output[0]), user("And?")]
    second = parse_response(create_response(program, said))
    asked = get(program, f"{second.id}/input_items", order="asc")[1]["data"][0]
    for message in Message.objects.filter(seq__lte=2):
        erasure.erase_message(user=alice, message=message, now=timezone.now())
    assert get(program, first.id)[0] == 404
    _, listed = get(program, f"{second.id}/input_items")
    assert "secret" not in str(listed)
    assert [item["content"][0]["text"] for item in listed["data"]] == ["And?"]
    for gone in (first.output[0].id, asked["id"]):
        refused = create_response(program, [{"type": "item_reference", "id": gone}, user("x")])
        assert (refused.status, refused.json["error"]["code"]) == (404, "item_not_found")
