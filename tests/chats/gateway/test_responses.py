"""OpenAI's Responses API: formats, events, previous responses and compaction."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone
from openai.types.responses import CompactedResponse

from chats.actions import erasure
from chats.gateway.matching import candidate_branches, find_branch
from chats.gateway.matching.conversation import Conversation
from chats.gateway.responses import previous_response
from chats.ground import secrets
from chats.models import Chat, Message, Turn
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from tests.support.gateway_clients import (
    TOOLS,
    USAGE,
    GatewayClient,
    MakeClient,
    calling,
    list_chat_messages,
    system,
    user,
)
from tests.support.gateway_responses import (
    FUNCTION_TOOL,
    build_tool_output,
    create_response,
    parse_events,
    parse_response,
)

pytestmark = pytest.mark.django_db

OPEN_CALL: dict[str, Any] = {"type": "function_call", "call_id": "a", "name": "weather"}


def test_a_whole_response_its_prompt_and_its_parameters(program: GatewayClient) -> None:
    schema = {"name": "city", "schema": {"type": "object"}, "strict": True}
    answer = create_response(
        program,
        [
            system("Answer in Latin.", role="developer"),
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            user([{"type": "input_text", "text": "Hello"}]),
        ],
        TextDelta("Salve"), USAGE, Finished("stop"),
        instructions="Be brief.", temperature=0.2, max_output_tokens=50, tools=[FUNCTION_TOOL],
        tool_choice={"type": "function", "name": "weather"}, store=True, seed=7,
        text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"}, include=["reasoning.encrypted_content"],
        truncation="auto", metadata={"a": "b"}, max_tool_calls=3,
        context_management=[{"type": "compaction", "compact_threshold": 1000}], background=False,
        response_format=None,
    )  # fmt: skip
    made = parse_response(answer)
    assert (made.status, made.output_text, made.metadata) == ("completed", "Salve", {"a": "b"})
    assert (made.instructions, made.max_output_tokens, made.model) == ("Be brief.", 50, "demo")
    assert made.usage
    assert (made.usage.input_tokens, made.usage.total_tokens) == (20, 29)
    assert made.usage.input_tokens_details.cached_tokens == 5
    prompt = program.prompt
    assert [role for role, _ in prompt] == ["system"] * (len(prompt) - 1) + ["user"]
    assert "Be brief." in prompt[0][1]
    assert "Answer in Latin." in "".join(text for _, text in prompt[:-1])
    request = program.requests[-1]
    assert request.parameters == {
        "temperature": 0.2,
        "seed": 7,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": schema},
        "verbosity": "low",
        "reasoning_effort": "low",
    }
    assert request.max_output_tokens == 50
    assert [(tool.name, tool.strict) for tool in request.tools] == [("weather", True)]
    assert list_chat_messages(answer.chat) == [(1, "user", "Hello"), (2, "assistant", "Salve")]
    assert answer.headers["X-Context-Status"] == "full"
    cut = parse_response(create_response(program, "hi", TextDelta("One"), Finished("length")))
    assert cut.status == "incomplete"
    assert cut.usage
    assert cut.usage.total_tokens == 0
    assert cut.incomplete_details
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_a_stream_of_words_and_calls(program: GatewayClient) -> None:
    script = (USAGE, *calling("a", "b", text="Let me see."))
    answer = create_response(program, "The weather?", *script, tools=[FUNCTION_TOOL], stream=True)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = parse_events(answer.body)
    call = [
        "response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done",
    ]  # fmt: skip
    assert [event.type for event in found] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.delta", "response.output_text.done",
        "response.content_part.done", "response.output_item.done", *call, *call,
        "response.completed",
    ]  # fmt: skip
    done = found[-1].response
    assert done.output_text == "Let me see."
    assert [item.type for item in done.output] == ["message", "function_call", "function_call"]
    assert [event.item for event in found if event.type == "response.output_item.done"] == (
        done.output
    )
    assert done.usage.total_tokens == 29
    # Tool calls alone have no message. Their results arrive as items and continue the chat.
    asked: list[Any] = [user("And in Oslo?")]
    first = create_response(program, asked, *calling("c", "d"), tools=[FUNCTION_TOOL], stream=True)
    made = parse_events(first.body)[-1].response.output
    assert [item.type for item in made] == ["function_call", "function_call"]
    asked += [item.model_dump(exclude_none=True) for item in made]
    asked += [
        build_tool_output("c", "rain"),
        build_tool_output("d", [{"type": "input_text", "text": "sun"}]),
    ]
    second = create_response(program, asked, tools=[FUNCTION_TOOL])
    assert second.headers["X-Context-Decision"] == "continue"
    assert [text for _, text in program.prompt] == ["And in Oslo?", "", "rain", "sun"]
    assert Message.objects.filter(branch__chat=second.chat).count() == 3


def test_a_stream_that_breaks_off_ends_with_a_failed_response(program: GatewayClient) -> None:
    body = {"model": "demo", "input": "hi", "stream": True}
    response = program.open(body, path="responses")
    change = sync_to_async(Turn.objects.update)

    async def read() -> str:
        pieces = response.streaming_content
        await change(attempt=1, step=1, partial_text="One")
        text = str((await anext(pieces)).decode())
        await change(status="failed", error_code="worker_lost")
        return text + "".join([piece.decode() async for piece in pieces])

    found = parse_events(str(async_to_sync(read)()))
    kinds = [event.type for event in found]
    assert kinds[-3:] == ["response.output_text.delta", "error", "response.failed"]
    assert found[-2].code == "worker_lost"
    assert (found[-1].response.status, found[-1].response.output) == ("failed", [])
    assert not {"response.completed", "response.output_text.done"} & set(kinds)
    # Before the first text, the failure is an error response with its own status.
    refused = create_response(program, "ho", ProviderError("content_filtered"), stream=True)
    assert (refused.status, refused.json["error"]["code"]) == (400, "content_filter")


@pytest.mark.gateway_case(27)
def test_a_program_goes_on_from_a_response_by_its_id(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = parse_response(
        create_response(program, "First", *calling("a", text="Hm."), tools=[FUNCTION_TOOL])
    )
    told = create_response(program, [build_tool_output("a", "rain")], previous_response_id=first.id)
    assert (told.headers["X-Context-Decision"], told.headers["X-Context-Identity"]) == (
        "continue", "previous_response_id",
    )  # fmt: skip
    second = parse_response(told)
    assert second.previous_response_id == first.id
    answer = create_response(program, "Second", previous_response_id=second.id)
    # Each message appears once, in order. The response id is not part of the prompt.
    texts = ["First", "Hm.", "rain", "reply 2", "Second"]
    assert [text for _, text in program.prompt] == texts
    assert program.requests[-1].parameters == {}
    assert answer.chat == told.chat
    assert not answer.chat.archived
    # An older response starts a branch in the same chat.
    fork = create_response(program, "Other", previous_response_id=second.id)
    assert fork.headers["X-Context-Decision"] == "branch"
    assert [text for _, text in program.prompt] == [*texts[:-1], "Other"]
    assert Chat.objects.count() == 1
    # The branch of the response is checked regardless of the number of branches.
    with monkeypatch.context() as patched:
        patched.setattr(find_branch, "CANDIDATES", 0)
        patched.setattr(candidate_branches, "CANDIDATES", 0)
        back = create_response(program, "Back", previous_response_id=parse_response(answer).id)
    assert back.headers["X-Context-Decision"] == "continue"
    assert back.turn.branch == answer.turn.branch != fork.turn.branch
    # An id does not restore erased text.
    message = Message.objects.get(branch__chat=answer.chat, seq=1)
    erasure.erase_message(user=answer.chat.owner, message=message, now=timezone.now())
    after = create_response(program, "And?", previous_response_id=second.id)
    assert after.status == 200
    assert "First" not in str(program.requests[-1].messages)


def test_an_id_leads_nowhere_for_others_or_when_it_was_not_to_be_kept(
    program: GatewayClient, make: MakeClient, charlie: Any
) -> None:
    second = parse_response(create_response(program, "Hello"))
    before = Turn.objects.count()
    kept_out = parse_response(create_response(program, "Secret", store=False))
    with_user = parse_response(create_response(program, "Mine", safety_identifier="ann"))
    for asker, said, more in (
        (make(charlie), second.id, {}),
        (program, "resp_" + "0" * 32, {}),
        (program, "../x", {}),
        (program, 7, {}),
        (program, kept_out.id, {}),
        (program, with_user.id, {"safety_identifier": "ben"}),
        (program, with_user.id, {}),
    ):
        refused = create_response(asker, "More", previous_response_id=said, **more)
        error = refused.json["error"]
        assert (refused.status, error["code"]) == (404, "previous_response_not_found"), said
        assert error["param"] == "previous_response_id"
    assert Turn.objects.count() == before + 2
    again = create_response(
        program, "More", previous_response_id=with_user.id, safety_identifier="ann"
    )
    assert again.status == 200


@pytest.mark.gateway_case(28)
@pytest.mark.gateway_case(33)
@pytest.mark.parametrize("stream", [False, True])
def test_a_compaction_is_one_item_that_stands_for_everything(
    program: GatewayClient, stream: bool
) -> None:
    said: list[Any] = [user("First")]
    said += [item.model_dump() for item in parse_response(create_response(program, said)).output]
    count = Turn.objects.count()
    answer = create_response(program, [*said, {"type": "compaction_trigger"}], stream=stream)
    if stream:
        found = parse_events(answer.body)
        assert [event.type for event in found][-3:] == [
            "response.output_item.added", "response.output_item.done", "response.completed",
        ]  # fmt: skip
        made = found[-1].response
    else:
        made = parse_response(answer)
    explicit = program.close(
        program.open({"model": "demo", "input": said}, path="responses/compact")
    )
    compacted = CompactedResponse.model_validate(explicit.json)
    # The compaction calls no model, stores nothing and loses nothing.
    assert Turn.objects.count() == count
    for items in (made.output, compacted.output):
        assert [item.type for item in items] == ["compaction"]
        assert "First" not in str(items)
        sent = [*(item.model_dump() for item in items), user("Second")]
        assert create_response(program, sent).headers["X-Context-Decision"] in (
            "continue",
            "branch",
        )
        assert [text for _, text in program.prompt] == ["First", "reply 1", "Second"]
    assert Chat.objects.count() == 1
    # A compacted conversation can be compacted again.
    twice = create_response(
        program,
        [
            *(item.model_dump() for item in compacted.output),
            user("Second"),
            {"type": "compaction_trigger"},
        ],
    )
    create_response(
        program, [*(item.model_dump() for item in parse_response(twice).output), user("Third")]
    )
    assert [text for _, text in program.prompt] == ["First", "reply 1", "Second", "Third"]


@pytest.mark.gateway_case(29)
def test_a_foreign_compaction_is_refused_in_a_sentence_and_the_chat_goes_on(
    program: GatewayClient, make: MakeClient, charlie: Any
) -> None:
    of_charlie = previous_response.encrypt_conversation(Conversation(("x",), ()), user=charlie)
    stolen = secrets.encrypt("sk-provider")
    for sealed in ("gAAAA-foreign", "plm1:nonsense", of_charlie, stolen, f"plm1:{stolen}"):
        item = {"type": "compaction", "encrypted_content": sealed}
        answer = create_response(program, [item, user("Hello")])
        assert (answer.status, answer.json["error"]["code"]) == (400, "compaction_unreadable")
        assert "sk-provider" not in answer.body
    assert create_response(program, [user("Hello")]).status == 200


SPACE = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close"}]}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_calls_come_back_in_the_form_in_which_their_tools_were_offered(
    program: GatewayClient, stream: bool
) -> None:
    searched = {"type": "web_search", "external_web_access": False}
    offered = [FUNCTION_TOOL, SPACE, PATCH, searched, searched]
    asked = [user("Close it")]
    script = [
        ToolCallDelta(0, "a", "agents__close", '{"id": 1}'),
        ToolCallDelta(1, "b", "patch", '{"input": "*** a\\n"}'),
        USAGE,
        Finished("tool_calls"),
    ]
    answer = create_response(program, asked, *script, tools=offered, stream=stream)
    assert answer.headers["X-Context-Tools-Left-Out"] == "web_search"
    request = program.requests[-1]
    assert [tool.name for tool in request.tools] == ["weather", "agents__close", "patch"]
    assert "start: WORD" in request.tools[2].description
    made = parse_events(answer.body)[-1].response if stream else parse_response(answer)
    items = [item.model_dump(exclude_none=True) for item in made.output]
    assert [(item["type"], item["name"]) for item in items] == [
        ("function_call", "close"),
        ("custom_tool_call", "patch"),
    ]
    assert items[0]["namespace"] == "agents"
    assert items[1]["input"] == "*** a\n"
    results = [
        {"type": f"{kind}_output", "call_id": call_id, "output": "done"}
        for kind, call_id in (("function_call", "a"), ("custom_tool_call", "b"))
    ]
    more = create_response(program, [*asked, *items, *results], tools=offered, stream=stream)
    # The returned calls are recognised as earlier output.
    assert (more.headers["X-Context-Chat"], more.headers["X-Context-Decision"]) == (
        answer.headers["X-Context-Chat"],
        "continue",
    )


def test_a_custom_call_without_its_form_is_the_text_itself(program: GatewayClient) -> None:
    script = [ToolCallDelta(0, "c", "patch", "*** bare"), Finished("tool_calls")]
    [item] = parse_response(create_response(program, "hi", *script, tools=[PATCH])).output
    assert item.model_dump()["input"] == "*** bare"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tools": [{"type": "namespace", "name": "x"}]}, "tools[0]"),
        ({"tools": [{**SPACE, "tools": [{"type": "mcp"}]}]}, "tools[0].tools[0]"),
        ({"tools": [{"type": "custom"}]}, "tools[0]"),
        ({"tools": [SPACE, {"type": "function", "name": "agents__close"}]}, "tools"),
        ({"tools": [SPACE, {**SPACE, "name": "b", "tools": [FUNCTION_TOOL] * 512}]}, "tools"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "mcp", "server_url": "x"}]}, "tools[0]"),
        ({"tools": ["x"]}, "tools[0]"),
    ],
)
def test_tools_that_cannot_be_are_refused_by_their_place(
    program: GatewayClient, changes: dict[str, Any], param: str
) -> None:
    answer = create_response(program, "hi", **changes)
    assert (answer.status, answer.json["error"]["param"]) == (400, param)


AUDIO = user([{"type": "input_audio", "input_audio": {"data": ""}}])


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"said": []}, "input", "missing_field"),
        ({"said": ["x"]}, "input[0]", "invalid_value"),
        ({"said": [system("")]}, "input", "invalid_value"),
        ({"said": [user("x"), {"role": "assistant", "content": "y"}]}, "input",
         "unsupported_content"),
        ({"said": [{"role": "tool", "content": "x"}]}, "input[0].role", "invalid_value"),
        ({"said": [AUDIO]}, "input[0].content[0]", "unsupported_content"),
        ({"said": [user("x"), build_tool_output("a", "y")]}, "input[1].call_id", "invalid_value"),
        ({"said": [user("x"), {**OPEN_CALL, "arguments": "{}"}]}, "input[2]", "invalid_value"),
        ({"said": [user("x"), OPEN_CALL]}, "input[1]", "invalid_value"),
        ({"said": [user("x"), build_tool_output("a", 1)]}, "input[1].output", "invalid_value"),
        ({"said": [{"type": "compaction_trigger"}, user("x")]}, "input[0].type",
         "unsupported_content"),
        ({"said": [{"type": "compaction"}]}, "input[0].encrypted_content", "invalid_value"),
        ({"instructions": ["x"]}, "instructions", "invalid_value"),
        ({"tools": [{"type": "file_search"}]}, "tools[0]", "unsupported_content"),
        ({"tools": TOOLS}, "tools[0]", "invalid_value"),
        ({"tools": [{"type": "function", "name": "w"}], "tool_choice": {"type": "mcp"}},
         "tool_choice", "unsupported_parameter"),
        ({"background": True}, "background", "unsupported_parameter"),
        ({"prompt": {"id": "x"}}, "prompt", "unsupported_parameter"),
        ({"messages": []}, "messages", "unsupported_parameter"),
        ({"include": "message.output_text.logprobs"}, "include", "invalid_value"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
        ({"text": 1}, "text", "invalid_value"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"context_management": [{"type": "x"}]}, "context_management[0]", "invalid_value"),
        ({"store": "no"}, "store", "invalid_value"),
        ({"max_tokens": 5}, "max_tokens", "unsupported_parameter"),
        ({"base_url": "x"}, "base_url", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_what_is_not_done_here_is_refused_by_name(
    program: GatewayClient, changes: dict[str, Any], param: str, code: str
) -> None:
    answer = create_response(program, **{"said": "hi", **changes})
    error = answer.json["error"]
    assert (answer.status, error["param"], error["code"]) == (400, param, code)
    assert error["type"] == "invalid_request_error"
    assert not Chat.objects.exists()


def test_a_response_that_is_asked_for_twice_under_a_key_is_one(program: GatewayClient) -> None:
    body = {"model": "demo", "input": "hi"}
    header = {"Idempotency-Key": "k1"}
    first = program.open(body, path="responses", **header)
    program.work(first["X-Context-Report-Id"])
    again = program.open(body, path="responses", **header)
    assert parse_response(program.close(first)) == parse_response(program.close(again))
    assert Turn.objects.count() == 1
    too_long = create_response(program, "x" * 200_001)
    assert (too_long.status, too_long.json["error"]["param"]) == (422, "input")
    other = program.open({"model": "demo", "messages": [user("hi")]}, **header)
    assert program.close(other).json["error"]["code"] == "idempotency_key_reused"


@pytest.mark.parametrize("is_stopped", [False, True])
def test_tool_results_for_a_response_can_be_sent_again(
    program: GatewayClient, is_stopped: bool
) -> None:
    first = create_response(program, "The weather?", *calling("a"), tools=[FUNCTION_TOOL])
    body = {
        "model": "demo",
        "previous_response_id": first.json["id"],
        "input": [build_tool_output("a", "rain")],
        "tools": [FUNCTION_TOOL],
    }
    key = {"Idempotency-Key": "k1"}
    begun = program.open(body, path="responses", **key)
    if is_stopped:
        Turn.objects.filter(pk=begun["X-Context-Report-Id"]).update(
            stop_requested_at=timezone.now()
        )
        program.work(begun["X-Context-Report-Id"])
    again = program.open(body, path="responses", **key)
    program.work(again["X-Context-Report-Id"], TextDelta("It rains."), Finished("stop"))
    assert parse_response(program.close(again)).output_text == "It rains."
    # Other results, without a key, get a branch.
    changed = {**body, "input": [build_tool_output("a", "snow")]}
    other = program.open(changed, path="responses")
    program.work(other["X-Context-Report-Id"])
    assert program.close(other).headers["X-Context-Decision"] == "branch"
    assert [wire.content for wire in program.requests[-1].messages] == ["The weather?", "", "snow"]
