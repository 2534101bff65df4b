"""Requests to servers with Anthropic's Messages API."""

import hashlib
import json
from typing import Any

import pytest

from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.base import UsageReport
from chats.providers.kinds import ANTHROPIC_VERSION
from contextpolicy.engine.compose.layouts import OPENING
from contextpolicy.engine.messages.extras import CallExtras
from contextpolicy.engine.messages.messages import FilePart, ToolCallPart, ToolSpec, WireMessage
from tests.fakes.calls import adapter_to, asked, call
from tests.fakes.fake_server import FakeServer

SEARCH = ToolSpec("search", "Search the archive.", {"properties": {}}, strict=True)
CALL = ToolCallPart("call_1", "search", '{"q":"x"}')
MARK = {"type": "ephemeral"}


def said(text: str, **more: Any) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": text, **more}


def conversation(*messages: WireMessage, **changes: Any) -> list[dict[str, Any]]:
    """Return the messages of a request."""
    found: list[dict[str, Any]] = build_anthropic_body(asked("", messages=messages, **changes))[
        "messages"
    ]
    return found


@pytest.mark.requirement("S0.6")
def test_messages_and_tools_take_its_form(anthropic_server: FakeServer) -> None:
    messages = (
        WireMessage("system", "Be brief."),
        WireMessage("user", "A summary."),
        WireMessage("user", "Find both."),
        WireMessage("assistant", "I look.", (CALL, ToolCallPart("call_2", "search", ""))),
        WireMessage("tool", "Nothing.", (), "call_1"),
        WireMessage("tool", "", (), "call_2"),
        WireMessage("user", "And?"),
    )
    call(
        adapter_to(anthropic_server),
        asked("", messages=messages, tools=(SEARCH,), max_output_tokens=77),
    )
    body = anthropic_server.requests()[-1]["body"]
    assert body == {
        "model": "fake-chat",
        "max_tokens": 77,
        "stream": True,
        "system": [said("Be brief.")],
        "messages": [
            {"role": "user", "content": [said("A summary."), said("Find both.")]},
            {
                "role": "assistant",
                "content": [
                    said("I look."),
                    {"type": "tool_use", "id": "call_1", "name": "search", "input": {"q": "x"}},
                    {"type": "tool_use", "id": "call_2", "name": "search", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "Nothing."},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": ""},
                    said("And?"),
                ],
            },
        ],
        "tools": [
            {
                "name": "search",
                "description": "Search the archive.",
                "input_schema": {"type": "object", "properties": {}},
                "strict": True,
            }
        ],
    }


def test_headers_are_those_of_the_interface_and_nobody_elses(anthropic_server: FakeServer) -> None:
    call(adapter_to(anthropic_server), asked("Hello"))
    headers = anthropic_server.requests()[-1]["headers"]
    assert headers["anthropic-version"] == ANTHROPIC_VERSION
    assert headers["authorization"] == "…6789"
    assert not {name for name in headers if name.startswith("x-")}


def test_a_reply_that_comes_first_has_an_opening_before_it() -> None:
    assert conversation(WireMessage("assistant", "Hello."), WireMessage("user", "Hi.")) == [
        {"role": "user", "content": [said(OPENING)]},
        {"role": "assistant", "content": [said("Hello.")]},
        {"role": "user", "content": [said("Hi.")]},
    ]


def test_a_text_of_white_space_is_no_block() -> None:
    assert conversation(
        WireMessage("user", "Hi."), WireMessage("assistant", " \n"), WireMessage("user", "Well?")
    ) == [{"role": "user", "content": [said("Hi."), said("Well?")]}]
    assert conversation(WireMessage("user", "")) == [{"role": "user", "content": [said(OPENING)]}]


@pytest.mark.parametrize("arguments", ['["x"]', "{broken", "[" * 100_000])
def test_arguments_that_are_no_object_stand_in_one(arguments: str) -> None:
    spoiled = (ToolCallPart("functions.search:0", "a.search", arguments),)
    found = conversation(
        WireMessage("user", "Hi."),
        WireMessage("assistant", "", spoiled),
        WireMessage("tool", "Nothing.", (), "functions.search:0"),
    )
    (use,), (result,) = found[1]["content"], found[2]["content"]
    expected = ["x"] if arguments == '["x"]' else arguments
    assert use["input"] == {"arguments": expected}
    assert use["name"] == "a_search"
    assert use["id"] == result["tool_use_id"]
    assert use["id"].replace("_", "").isalnum()


def test_tools_that_were_used_are_named_and_may_not_be_called() -> None:
    body = build_anthropic_body(
        asked(
            "",
            messages=(
                WireMessage("user", "Hi."),
                WireMessage("assistant", "", (CALL,)),
                WireMessage("tool", "Nothing.", (), "call_1"),
            ),
        )
    )
    assert body["tools"] == [{"name": "search", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0.2, "top_p": 0.9, "top_k": 5}, {}),
    ({"stop": "END"}, {"stop_sequences": ["END"]}),
    ({"stop": ["END", "\n", 3]}, {"stop_sequences": ["END"]}),
    ({"seed": 7, "logit_bias": {}, "user": "u", "model": "other", "messages": []}, {}),
    ({"reasoning_effort": "high"}, {}),
    ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
    ({"tool_choice": ["x"]}, {}),
    (
        {"tool_choice": {"type": "function", "function": {"name": "search"}}},
        {"tool_choice": {"type": "tool", "name": "search"}},
    ),
    (
        {"parallel_tool_calls": False},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    ({"tool_choice": "none", "parallel_tool_calls": False}, {"tool_choice": {"type": "none"}}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}},
    ),
    ({"response_format": {"type": "json_object"}}, {}),
]


@pytest.mark.parametrize(("given", "sent"), OPTIONS)
def test_options_take_its_names_and_others_stay(
    given: dict[str, Any], sent: dict[str, Any]
) -> None:
    plain = build_anthropic_body(asked("Hi.", tools=(SEARCH,)))
    assert build_anthropic_body(asked("Hi.", tools=(SEARCH,), parameters=given)) == plain | sent


def thinking(value: str, *, most: int = 8000, **changes: Any) -> dict[str, Any]:
    """Return the thinking and effort fields of a request."""
    body = build_anthropic_body(asked("Hi.", thinking=value, max_output_tokens=most, **changes))
    return {k: v for k, v in body.items() if k in {"thinking", "output_config"}}


def test_thoughts_are_asked_for_within_the_limit_of_the_reply() -> None:
    def budget(tokens: int) -> dict[str, Any]:
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}}

    free = {"thinking": {"type": "adaptive", "display": "summarized"}}
    assert thinking("") == {}
    assert thinking("1024") == budget(1024)
    assert thinking("16384") == budget(4000)
    assert thinking("1024", most=2000) == {}
    assert thinking("adaptive", most=10) == free
    options = {"temperature": 0.2, "reasoning_effort": "low"}
    assert thinking("1024", parameters=options) == budget(1024) | {
        "output_config": {"effort": "low"}
    }
    assert thinking("1024", parameters={"tool_choice": "required"}, tools=(SEARCH,)) == {}


def test_a_step_after_tools_has_no_budget_for_thoughts_that_it_cannot_show() -> None:
    """The server requires the signed thinking before a call, unless thinking is disabled."""
    steps = (
        WireMessage("user", "Find it."),
        WireMessage("assistant", "", (CALL,)),
        WireMessage("tool", "Nothing.", (), "call_1"),
    )
    assert thinking("4096", messages=steps) == {}
    assert thinking("4096", messages=(*steps, WireMessage("user", "Hurry."))) == {}
    after = (*steps, WireMessage("assistant", "No."), WireMessage("user", "Again."))
    assert "thinking" in thinking("4096", messages=after)
    assert "thinking" in thinking("adaptive", messages=steps)


CHAT = (
    WireMessage("system", "Be brief."),
    WireMessage("user", "One."),
    WireMessage("assistant", "Two."),
    WireMessage("user", "Three."),
)


def test_marks_stand_where_the_request_wants_them() -> None:
    body = build_anthropic_body(asked("", messages=CHAT, cache_marks=(1, 3, 4)))
    assert body["system"] == [said("Be brief.", cache_control=MARK)]
    assert body["messages"] == [
        {"role": "user", "content": [said("One.")]},
        {"role": "assistant", "content": [said("Two.", cache_control=MARK)]},
        {"role": "user", "content": [said("Three.", cache_control=MARK)]},
    ]
    assert "cache_control" not in json.dumps(build_anthropic_body(asked("", messages=CHAT)))


def test_no_more_than_four_marks_are_sent_and_the_last_ones_count() -> None:
    many = tuple(WireMessage("user", str(n)) for n in range(9))
    blocks = build_anthropic_body(asked("", messages=many, cache_marks=tuple(range(1, 10))))[
        "messages"
    ][0]
    marked = [block["text"] for block in blocks["content"] if "cache_control" in block]
    assert marked == ["5", "6", "7", "8"]


def test_a_mark_moves_to_the_block_before_where_a_message_has_none() -> None:
    messages = (WireMessage("user", "One."), WireMessage("assistant", " "))
    (only,) = conversation(*messages, cache_marks=(2,))
    assert only["content"] == [said("One.", cache_control=MARK)]


def test_what_was_marked_is_read_from_the_cache_the_next_time(anthropic_server: FakeServer) -> None:
    """Input includes uncached, read and written tokens. The last two are reported separately."""
    long = (WireMessage("system", "Be brief. " * 200), *CHAT[1:])

    def used(messages: tuple[WireMessage, ...], marks: tuple[int, ...]) -> UsageReport:
        request = asked("", messages=messages, cache_marks=marks)
        events = call(adapter_to(anthropic_server), request)
        return next(event for event in events if isinstance(event, UsageReport))

    first = used(long[:2], (1, 2))
    assert (first.cached_tokens, first.written_tokens) == (0, first.input_tokens)
    second = used(long, (1, 4))
    assert second.cached_tokens + second.written_tokens == second.input_tokens
    assert second.cached_tokens > 0.8 * second.input_tokens
    third = used(long, ())
    assert (third.cached_tokens, third.written_tokens) == (0, 0)
    assert third.input_tokens == second.input_tokens


def test_images_go_as_blocks_and_one_that_is_gone_as_a_line() -> None:
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("kept", "gone")}
    kept, gone = (
        FilePart("image/png", "", f"image:tokens=1000&detail=&sha256={sha}&size=9")
        for sha in hashes.values()
    )
    elsewhere = FilePart(
        "image/*", "", "image:tokens=1000&detail=&url=https://pictures.example/a.png"
    )
    text = "What are these?"
    places = tuple((len(text), part) for part in (kept, elsewhere, gone))
    (message,) = conversation(
        WireMessage("user", text, images=places),
        images={hashes["kept"]: "data:image/png;base64,aGVsbG8="},
    )
    first, *images, last = message["content"]
    assert first == said(text)
    assert images == [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="},
        },
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}},
    ]
    assert "image/png" in last["text"]


SIGNED = [
    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "c2VjcmV0"},
]


def thoughtful(*behind: WireMessage, by: str = "a/claude", **changes: Any) -> list[dict[str, Any]]:
    """Return the messages of a request whose last call follows signed thinking of a model."""
    extra = CallExtras(by=by, message={"thinking_blocks": SIGNED, "mood": "calm"}).written()
    messages = (
        WireMessage("user", "Find it."),
        WireMessage("assistant", "I look.", (ToolCallPart("call_1", "search", "{}", extra),)),
        WireMessage("tool", "Nothing.", (), "call_1"),
        *behind,
    )
    changes = {"thinking": "2048", "origin": "a/claude", "max_output_tokens": 9_000, **changes}
    return conversation(*messages, **changes)


def test_signed_thoughts_go_back_first_while_calls_are_answered() -> None:
    (_, assistant, _) = thoughtful()

    assert assistant["content"][:2] == SIGNED
    assert [block["type"] for block in assistant["content"][2:]] == ["text", "tool_use"]
    assert "calm" not in json.dumps(assistant)


@pytest.mark.parametrize(
    ("behind", "changes"),
    [
        ((), {"by": "a/another-model"}),
        ((), {"thinking": ""}),
        ((WireMessage("user", "And now?"),), {}),
    ],
    ids=["another model's", "nobody thinks", "after the next question"],
)
def test_signed_thoughts_go_nowhere_else(
    behind: tuple[WireMessage, ...], changes: dict[str, Any]
) -> None:
    assert "c2ln" not in json.dumps(thoughtful(*behind, **changes))


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_forced_call_switches_adaptive_thinking_off(choice: Any) -> None:
    parameters = {"tool_choice": choice, "reasoning_effort": "low"}
    request = asked("x", thinking="adaptive", tools=(SEARCH,), parameters=parameters)
    body = build_anthropic_body(request)
    assert body["thinking"] == {"type": "disabled"}
    assert body["output_config"] == {"effort": "low"}
    auto = asked("x", thinking="adaptive", tools=(SEARCH,), parameters={"tool_choice": "auto"})
    assert build_anthropic_body(auto)["thinking"]["type"] == "adaptive"


def test_a_call_id_that_returns_in_a_later_reply_is_replaced_with_its_result() -> None:
    used = ToolCallPart("functions.f:0", "f", "{}")
    other = ToolCallPart("toolu_1", "f", "{}")
    steps = (
        WireMessage("user", "Go."),
        *(
            message
            for n in range(3)
            for message in (
                WireMessage("assistant", "", (used, other) if n else (used,)),
                *([WireMessage("tool", f"other {n}", (), "toolu_1")] if n else []),
                WireMessage("tool", f"used {n}", (), "functions.f:0"),
            )
        ),
    )
    blocks = [block for message in conversation(*steps) for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = {
        block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"
    }
    assert len(set(ids)) == 5
    assert [results[each] for each in ids] == ["used 0", "used 1", "other 1", "used 2", "other 2"]
    assert conversation(*steps[:3]) == conversation(*steps)[:3]
    assert ids[2] == "toolu_1"


def test_calls_of_one_reply_with_the_same_id_get_their_results_in_order() -> None:
    twice = ToolCallPart("toolu_1", "f", "{}")
    steps = (
        WireMessage("user", "Go."),
        WireMessage("assistant", "", (twice, twice)),
        WireMessage("tool", "one", (), "toolu_1"),
        WireMessage("tool", "two", (), "toolu_1"),
    )
    _, reply, answer = conversation(*steps)
    assert [block["id"] for block in reply["content"]] == [
        block["tool_use_id"] for block in answer["content"]
    ]
    assert len({block["id"] for block in reply["content"]}) == 2
