"""Tools that the server of a model runs: allowed by type, sent unchanged, named in receipts."""

from typing import Any

import pytest
from django.test import Client

from chats.models import Receipt
from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.wire import build_openai_body
from chats.web.receipts.wording import note_words
from contextpolicy.models import ModelSpec
from tests.support.gateway_clients import TOOLS, GatewayClient, assistant, user
from tests.support.gateway_responses import create_response

pytestmark = pytest.mark.django_db

SEARCH: dict[str, Any] = {
    "type": "web_search_20250305",
    "name": "web_search",
    "max_uses": 3,
    "allowed_domains": ["example.org"],
}
OFFERED = {"type": "web_search", "search_context_size": "low"}


@pytest.fixture
def hosted(program: GatewayClient) -> None:
    """The demo model's server runs two types of tools."""
    ModelSpec.objects.update(hosted_tools="web_search_20250305, web_search")


@pytest.mark.usefixtures("hosted")
@pytest.mark.parametrize("stream", [False, True])
def test_an_allowed_type_is_sent_unchanged(program: GatewayClient, stream: bool) -> None:
    said = [user("Search the news.")]
    first = program.ask(said, tools=[SEARCH, *TOOLS], stream=stream)
    assert first.status == 200
    assert build_openai_body(program.requests[-1])["tools"] == [SEARCH, *TOOLS]
    assert build_anthropic_body(program.requests[-1])["tools"][0] == SEARCH
    said += [assistant(first.text), user("And now?")]
    second = program.ask(said, tools=[SEARCH], stream=stream)
    assert second.headers["X-Context-Decision"] == "continue"
    assert build_openai_body(program.requests[-1])["tools"] == [SEARCH]


@pytest.mark.usefixtures("hosted")
@pytest.mark.parametrize("kind", [[], {}, None, 1e300, ["web_search"]])
def test_a_tool_choice_without_a_name_of_a_type_is_refused(
    program: GatewayClient, kind: Any
) -> None:
    tools = [{"type": "web_search"}]
    answer = create_response(program, "Hi", tools=tools, tool_choice={"type": kind})
    assert (answer.status, answer.json["error"]["param"]) == (400, "tool_choice")


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize("allowed", ["", "file_search", "web_search", "web_search_20250305"])
def test_search_options_need_an_allowed_type(
    program: GatewayClient, path: str, allowed: str
) -> None:
    ModelSpec.objects.update(hosted_tools=allowed)
    options = {"search_context_size": "low"}
    body: dict[str, Any] = {"model": "demo", "web_search_options": options}
    body |= {"input": "Hi"} if path == "responses" else {"messages": [user("Hi")]}
    waiting = program.open(body, path=path)
    program.work(waiting["X-Context-Report-Id"])
    answer = program.close(waiting)
    assert answer.status == 200
    is_allowed = allowed.startswith("web_search")
    assert ("web_search_options" in program.requests[-1].parameters) == is_allowed
    left_out = answer.headers.get("X-Context-Parameters-Left-Out")
    assert left_out == (None if is_allowed else "web_search_options")


@pytest.mark.usefixtures("hosted")
def test_the_receipt_names_it_and_counts_its_definition(program: GatewayClient) -> None:
    plain = program.ask([user("Hello")], tools=TOOLS)
    answer = program.ask([user("Search the news.")], tools=[SEARCH, *TOOLS, SEARCH])
    receipt = Receipt.objects.get(turn=answer.turn)
    assert [note for note in receipt.notes if "hosted" in note] == [
        "hosted_tool:web_search_20250305"
    ]
    sentence = "The model’s server was allowed to run the hosted tool web_search_20250305."
    assert sentence in note_words(receipt.notes)
    assert receipt.budget["tools"] > Receipt.objects.get(turn=plain.turn).budget["tools"]
    own = Client()
    own.force_login(answer.chat.owner)
    page = own.get(f"/chats/{answer.chat.pk}/turns/{answer.turn.pk}/receipt")
    assert sentence in page.content.decode()


@pytest.mark.parametrize("kind", ["web_search_20250305", "mcp", "Function", ""])
def test_other_types_are_refused(program: GatewayClient, kind: str) -> None:
    ModelSpec.objects.update(hosted_tools="web_search")
    answer = program.ask([user("Hello")], tools=[*TOOLS, {"type": kind}])
    error = answer.json["error"]
    assert (answer.status, error["code"], error["param"]) == (
        400,
        "unsupported_content",
        "tools[1]",
    )
    assert "Hosted tools" in error["message"]


def test_an_administrator_cannot_replace_functions(program: GatewayClient) -> None:
    ModelSpec.objects.update(hosted_tools="function, custom, web_search")
    program.ask([user("Hello")], tools=[*TOOLS, OFFERED])
    assert build_openai_body(program.requests[-1])["tools"] == [*TOOLS, OFFERED]
    assert not program.requests[-1].tools[0].hosted


class TestResponses:
    @pytest.mark.usefixtures("hosted")
    @pytest.mark.parametrize("choice", [None, "required", {"type": "web_search"}])
    def test_an_allowed_type_is_not_left_out(self, program: GatewayClient, choice: Any) -> None:
        more = {} if choice is None else {"tool_choice": choice}
        body = {"model": "demo", "input": "Search the news.", "tools": [OFFERED], **more}
        response = program.open(body, path="responses")
        program.work(response["X-Context-Report-Id"])
        answer = program.close(response)
        assert answer.status == 200
        assert "X-Context-Tools-Left-Out" not in answer.headers
        assert answer.json["tools"] == [OFFERED]
        sent = build_openai_body(program.requests[-1])
        assert sent["tools"] == [OFFERED]
        assert sent.get("tool_choice") == choice

    def test_without_it_the_tool_is_left_out(self, program: GatewayClient) -> None:
        body = {"model": "demo", "input": "Search the news.", "tools": [OFFERED]}
        response = program.open(body, path="responses")
        program.work(response["X-Context-Report-Id"])
        answer = program.close(response)
        assert answer.headers["X-Context-Tools-Left-Out"] == "web_search"
        assert program.requests[-1].tools == ()
