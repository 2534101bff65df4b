"""Items of resumed sessions: outputs behind messages, hosted calls, references, tool choices."""

from typing import Any

import pytest

from chats.providers.wire import build_openai_body
from contextpolicy.models import ModelSpec
from tests.support.gateway_clients import GatewayClient, calling, user
from tests.support.gateway_responses import FUNCTION_TOOL, build_tool_output, create_response

pytestmark = pytest.mark.django_db
SAID = {"role": "assistant", "content": "Let me see."}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}"}


def list_sent(program: GatewayClient) -> list[tuple[str, str, list[str]]]:
    """Return role, text or call id, and call ids of each message of the newest prompt."""
    messages = build_openai_body(program.requests[-1])["messages"]
    return [
        (
            each["role"],
            each["content"] or "",
            [made["id"] for made in each.get("tool_calls", ())] or [each.get("tool_call_id", "")],
        )
        for each in messages
        if each["role"] != "system"
    ]


ASKED = ("user", "Go", [""])


@pytest.mark.parametrize(
    ("items", "sent"),
    [
        pytest.param(
            [call("c_a"), SAID, build_tool_output("c_a", "rain")],
            [("assistant", "Let me see.", ["c_a"]), ("tool", "rain", ["c_a"])],
            id="assistant between",
        ),
        pytest.param(
            [call("c_a"), user("Wait"), build_tool_output("c_a", "rain")],
            [("assistant", "", ["c_a"]), ("tool", "rain", ["c_a"]), ("user", "Wait", [""])],
            id="user between",
        ),
        pytest.param(
            [
                call("c_a"),
                SAID,
                call("c_b"),
                build_tool_output("c_b", "snow"),
                build_tool_output("c_a", "rain"),
            ],
            [
                ("assistant", "Let me see.", ["c_a", "c_b"]),
                ("tool", "rain", ["c_a"]),
                ("tool", "snow", ["c_b"]),
            ],
            id="two calls",
        ),
        *(
            pytest.param(
                [
                    call("c_a"),
                    *between,
                    call("c_b"),
                    *after,
                    build_tool_output("c_a", "rain"),
                    build_tool_output("c_b", "snow"),
                ],
                [
                    ("assistant", "", ["c_a", "c_b"]),
                    ("tool", "rain", ["c_a"]),
                    ("tool", "snow", ["c_b"]),
                ],
                id=name,
            )
            for name, between, after in (
                ("reasoning between", [REASONING], []),
                ("hosted call between", [SEARCH], []),
                ("both between", [REASONING, SEARCH, REASONING], [SEARCH]),
            )
        ),
        pytest.param(
            [
                call("c_a"),
                REASONING,
                build_tool_output("c_a", "rain"),
                REASONING,
                call("c_b"),
                build_tool_output("c_b", "snow"),
            ],
            [
                ("assistant", "", ["c_a"]),
                ("tool", "rain", ["c_a"]),
                ("assistant", "", ["c_b"]),
                ("tool", "snow", ["c_b"]),
            ],
            id="reasoning between steps",
        ),
        pytest.param(
            [call("c_a"), build_tool_output("c_a", "rain"), SAID, user("Wait")],
            [
                ("assistant", "", ["c_a"]),
                ("tool", "rain", ["c_a"]),
                ("assistant", "Let me see.", [""]),
                ("user", "Wait", [""]),
            ],
            id="usual order",
        ),
    ],
)
def test_an_output_follows_its_call(
    program: GatewayClient, items: list[Any], sent: list[tuple[str, str, list[str]]]
) -> None:
    answer = create_response(program, [user("Go"), *items], tools=[FUNCTION_TOOL])
    assert answer.status == 200
    assert list_sent(program) == [ASKED, *sent]


def test_an_output_of_the_previous_response_may_follow_a_message(program: GatewayClient) -> None:
    first = create_response(program, "Go", *calling("c_a"), tools=[FUNCTION_TOOL])
    answer = create_response(
        program,
        [user("Wait"), build_tool_output("c_a", "rain")],
        previous_response_id=first.json["id"],
        tools=[FUNCTION_TOOL],
    )
    assert answer.status == 200
    assert [role for role, *_ in list_sent(program)] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize(
    "items",
    [
        [call("c_a"), SAID],
        [build_tool_output("c_a", "x")],
        [call("c_a"), build_tool_output("c_b", "x")],
        [build_tool_output("c_a", "x"), call("c_a")],
    ],
)
def test_a_call_without_its_output_is_still_refused(
    program: GatewayClient, items: list[Any]
) -> None:
    answer = create_response(program, [user("Go"), *items, user("And?")])
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_value")


def test_calls_of_hosted_tools_are_left_out_and_reported(program: GatewayClient) -> None:
    items = [
        user("Go"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "local_shell_call", "id": "l_1", "call_id": "c", "action": {}},
        {"type": "local_shell_call_output", "id": "l_1", "output": "x"},
        {"type": "web_search_call", "id": "ws_2"},
        SAID,
        user("And?"),
    ]
    answer = create_response(program, items)
    assert answer.status == 200
    listed = "web_search_call, local_shell_call, local_shell_call_output"
    assert answer.headers["X-Context-Items-Left-Out"] == listed
    assert [text for _, text, _ in list_sent(program)] == ["Go", "Let me see.", "And?"]


def test_a_reasoning_item_with_only_an_id_is_no_reference(program: GatewayClient) -> None:
    said = [user("Go"), {"type": "reasoning", "id": "rs_1"}, SAID, user("And?")]
    assert create_response(program, said).status == 200
    unknown = create_response(program, [user("Go"), {"id": "rs_1"}])
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "item_not_found")


OTHER = {**FUNCTION_TOOL, "name": "other"}


@pytest.mark.parametrize(
    ("allowed", "mode", "names", "choice"),
    [
        ([{"type": "function", "name": "other"}], "auto", ["other"], "auto"),
        ([{"type": "function", "name": "other"}], "required", ["other"], "required"),
        ([{"type": "web_search"}], "auto", ["weather", "other"], "none"),
        ([], "auto", ["weather", "other"], "none"),
    ],
)
def test_only_allowed_tools_are_offered(
    program: GatewayClient, allowed: list[Any], mode: str, names: list[str], choice: str
) -> None:
    tool_choice = {"type": "allowed_tools", "mode": mode, "tools": allowed}
    answer = create_response(program, "Hi", tools=[FUNCTION_TOOL, OTHER], tool_choice=tool_choice)
    assert answer.status == 200
    request = program.requests[-1]
    assert [tool.name for tool in request.tools] == names
    assert request.parameters["tool_choice"] == choice


@pytest.mark.parametrize(
    "tool_choice",
    [
        {"type": "allowed_tools", "mode": "required", "tools": []},
        {"type": "allowed_tools", "mode": "some", "tools": []},
        {"type": "allowed_tools", "tools": "weather"},
    ],
)
def test_a_choice_that_allows_no_tool_is_refused(
    program: GatewayClient, tool_choice: dict[str, Any]
) -> None:
    answer = create_response(program, "Hi", tools=[FUNCTION_TOOL], tool_choice=tool_choice)
    error = answer.json["error"]
    assert (answer.status, error["param"], error["code"]) == (
        400,
        "tool_choice",
        "unsupported_parameter",
    )


@pytest.mark.parametrize(
    "kind",
    [
        *("web_search", "web_search_2025_08_26", "web_search_preview_2025_03_11"),
        *("image_generation", "tool_search"),
    ],
)
def test_a_tool_that_is_left_out_takes_its_choice_along(program: GatewayClient, kind: str) -> None:
    answer = create_response(
        program, "Hi", tools=[{"type": kind}, FUNCTION_TOOL], tool_choice={"type": kind}
    )
    assert (answer.status, answer.headers["X-Context-Tools-Left-Out"]) == (200, kind)
    assert "tool_choice" not in program.requests[-1].parameters
    assert [tool.name for tool in program.requests[-1].tools] == ["weather"]


def test_a_choice_among_hosted_tools_reaches_the_server(program: GatewayClient) -> None:
    ModelSpec.objects.update(hosted_tools="web_search_2025_08_26")
    hosted = {"type": "web_search_2025_08_26"}
    for choice in ({"type": "web_search"}, hosted):
        answer = create_response(program, "Hi", tools=[hosted], tool_choice=choice)
        assert answer.status == 200
        assert program.requests[-1].parameters["tool_choice"] == choice
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    create_response(program, "Hi", tools=[hosted, FUNCTION_TOOL], tool_choice=allowed)
    assert [tool.name for tool in program.requests[-1].tools] == ["web_search_2025_08_26"]


@pytest.mark.parametrize("kind", ["web_search_\nX", "web_search_ä", "image_generation_" + "x" * 99])
def test_an_unusual_type_of_tool_is_refused(program: GatewayClient, kind: str) -> None:
    answer = create_response(program, "Hi", tools=[{"type": kind}])
    assert answer.status == 400
    assert program.requests == []
