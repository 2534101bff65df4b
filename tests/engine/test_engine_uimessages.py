"""UI messages and chat messages: reading, writing, losses and refusals."""

import json
from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    ReasoningPart,
    Summary,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    convert_parts_to_wires,
    parse_parts,
    serialize_parts,
)
from contextpolicy.engine.messages.openai_chat import (
    MalformedChatMessage,
    ReadMessage,
    format_chat_messages,
    parse_chat_messages,
)
from contextpolicy.engine.messages.tokens import count_uncut_tokens
from contextpolicy.engine.messages.turn_groups import has_content, repair_tool_parts
from contextpolicy.engine.messages.ui_messages import (
    MalformedUIMessage,
    UIMessage,
    build_summary_ui_message,
    build_ui_message,
    convert_ui_message,
    parse_ui_message,
    parse_ui_messages,
    parse_ui_summary,
    select_stored_parts,
    serialize_ui_message,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.prompts import build_summary_request, build_summary_wire
from tests.engine.engine_builders import COUNTER, message, step

METADATA = {
    "ts": 1_790_000_000_000,
    "chatKey": "web:1",
    "channel": "web",
    "chatId": "1",
    "userId": "u1",
    "username": "Ann",
    "messageId": "m1",
    "messageThreadId": "t1",
    "chatType": "private",
    "requestId": "r1",
    "runId": "run1",
    "kind": "normal",
    "ours": {"any": [1]},
}


def ui(*parts: object, role: str = "assistant", **fields: object) -> dict[str, object]:
    return {"id": "m1", "role": role, "parts": list(parts), "metadata": METADATA, **fields}


def tool(**fields: object) -> dict[str, object]:
    return {
        "type": "tool-look_up",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {"a": 1},
        "output": "fine",
        **fields,
    }


@pytest.mark.requirement("S4.1")
@pytest.mark.requirement("S4.2")
def test_a_message_of_every_part_comes_back_as_it_was() -> None:
    written = ui(
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "let me see"},
        tool(),
        tool(toolCallId="c2", output="also fine"),
        {"type": "step-start"},
        {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "https://x/a.png"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"},
        {"type": "text", "text": "done"},
    )
    read, losses = parse_ui_message(written)
    assert losses == ()
    assert serialize_ui_message(read) == written
    assert read.parts == (
        ReasoningPart("hm"),
        TextPart("let me see"),
        ToolCallPart("c1", "look_up", '{"a":1}'),
        ToolCallPart("c2", "look_up", '{"a":1}'),
        ToolResultPart("c1", "look_up", "fine"),
        ToolResultPart("c2", "look_up", "also fine"),
        FilePart("image/png", "a.png", "https://x/a.png"),
        FilePart("image/png", "", "data:image/png;base64,AAAA"),
        TextPart("done"),
    )
    assert json.loads(json.dumps(serialize_ui_message(read))) == written


@pytest.mark.requirement("S4.2")
@pytest.mark.parametrize("arguments", ['{ "a":  1 }', "not json", '{"a": NaN', "", "[" * 9_000])
def test_arguments_stay_as_the_model_wrote_them(arguments: str) -> None:
    parts = (ToolCallPart("c1", "look_up", arguments),)
    read, losses = parse_ui_message(serialize_ui_message(UIMessage("m1", "assistant", parts)))
    assert (read.parts, losses) == (parts, ())
    assert serialize_ui_message(read)["parts"][0]["state"] == "input-available"  # type: ignore[index]  # a list of objects


def parts_lists() -> st.SearchStrategy[list[Part]]:
    ids = st.sampled_from(["a", "b", "c"])
    return st.lists(
        st.one_of(
            st.builds(TextPart, st.sampled_from(["x", "y", ""])),
            st.builds(ReasoningPart, st.just("hm")),
            st.builds(ToolCallPart, ids, st.just("t"), st.sampled_from(["{}", "{ }", "no"])),
            st.builds(ToolResultPart, ids, st.just("t"), st.sampled_from(["r", "s"])),
            st.builds(FilePart, st.just("image/png"), st.just("f"), st.just("u")),
        ),
        max_size=8,
    )


def is_sound(parts: list[Part]) -> bool:
    """Return True if call ids are unique and each call has at most one result, after it."""
    calls = [part.call_id for part in parts if isinstance(part, ToolCallPart)]
    open_calls: set[str] = set()
    for part in parts:
        if isinstance(part, ToolCallPart):
            open_calls.add(part.call_id)
        elif isinstance(part, ToolResultPart):
            if part.call_id not in open_calls:
                return False
            open_calls.remove(part.call_id)
    return len(set(calls)) == len(calls)


@pytest.mark.requirement("S4.2")
@forall(parts_lists())
def test_whatever_is_stored_means_the_same_on_the_wire_after_an_export(parts: list[Part]) -> None:
    once, _ = parse_ui_message(serialize_ui_message(UIMessage("m1", "assistant", tuple(parts))))
    again, losses = parse_ui_message(serialize_ui_message(once))
    assert again == once
    assert losses == ()
    if is_sound(parts):
        wires = convert_parts_to_wires("assistant", repair_tool_parts(tuple(parts))[0])
        assert convert_parts_to_wires("assistant", repair_tool_parts(once.parts)[0]) == wires


@pytest.mark.parametrize(
    ("part", "loss", "content"),
    [
        (tool(output={"n": 1}), "output_as_text:c1", '{"n":1}'),
        (
            {"type": "tool-t", "toolCallId": "c1", "state": "output-error", "errorText": "bang"},
            "error_as_output:c1",
            "bang",
        ),
    ],
    ids=["object", "error"],
)
def test_what_a_result_cannot_hold_is_named(part: Any, loss: str, content: str) -> None:
    read, losses = parse_ui_message(ui(part))
    assert losses == (loss,)
    assert isinstance(read.parts[-1], ToolResultPart)
    assert read.parts[-1].content == content


def test_parts_beside_the_chat_are_dropped_by_name() -> None:
    dynamic = tool(type="dynamic-tool", toolName="t")
    read, losses = parse_ui_message(ui({"type": "source-url"}, {"type": "data-x"}, dynamic))
    assert losses == ("part_dropped:source-url", "part_dropped:data-x")
    assert read.parts[0] == ToolCallPart("c1", "t", '{"a":1}')
    assert parse_ui_message(ui(tool(), role="user"))[1] == ("part_dropped:tool-look_up",)


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("kind", ["hologram", "reasoning-file", "custom", "sources"])
def test_parts_of_later_versions_are_dropped_by_name(role: str, kind: str) -> None:
    read, losses = parse_ui_message(ui({"type": kind}, {"type": "text", "text": "Hi"}, role=role))
    assert (read.parts, losses) == ((TextPart("Hi"),), (f"part_dropped:{kind}",))


@pytest.mark.requirement("S4.1")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, "malformed_ui_message"),
        (ui(id=5), "malformed_ui_message"),
        (ui(id=""), "malformed_ui_message"),
        (ui(role="system"), "system_in_history"),
        (ui(role="tool"), "malformed_ui_message"),
        (ui(parts=None), "malformed_ui_message"),
        (ui(metadata="x"), "malformed_ui_message"),
        (ui("text"), "malformed_ui_message"),
        (ui({"text": "x"}), "malformed_ui_message"),
        (ui({"type": "text"}), "malformed_ui_message"),
        (ui({"type": "tool-x"}), "malformed_ui_message"),
    ],
    ids=range(11),
)
def test_what_cannot_be_read_is_refused_by_name(data: object, code: str) -> None:
    with pytest.raises(MalformedUIMessage) as refusal:
        parse_ui_message(data)
    assert refusal.value.code == code


@pytest.mark.requirement("S4.1")
def test_a_list_is_read_in_order_with_its_losses() -> None:
    messages, losses = parse_ui_messages([ui({"type": "source-url"}), ui(id="m2", metadata=None)])
    assert [read.id for read in messages] == ["m1", "m2"]
    assert losses == ("part_dropped:source-url",)
    assert messages[0].metadata == METADATA
    assert messages[1].kind == "normal"


@pytest.mark.requirement("S4.1")
def test_an_id_that_stands_twice_and_a_list_that_is_none_are_refused() -> None:
    with pytest.raises(MalformedUIMessage, match="occurs twice") as refusal:
        parse_ui_messages([ui(), ui()])
    assert refusal.value.code == "duplicate_id"
    with pytest.raises(MalformedUIMessage) as refusal:
        parse_ui_messages({"messages": []})
    assert refusal.value.code == "malformed_ui_message"


@pytest.mark.parametrize(
    "metadata", [{"ts": "now"}, {"kind": "odd"}, {"userId": 42}, {"username": 5, "kind": None}]
)
def test_metadata_of_other_programs_is_kept(metadata: dict[str, object]) -> None:
    read, losses = parse_ui_message(ui(metadata=metadata))
    assert (read.metadata, read.kind, losses) == (metadata, "normal", ())
    assert convert_ui_message(read, seq=1, counter=COUNTER).speaker == ""


def test_a_stored_message_and_its_ui_message_are_one() -> None:
    stored = step(4, text="let me see")
    made = build_ui_message(stored, username="Max")
    assert (made.kind, made.metadata["username"]) == ("normal", "Max")
    back = convert_ui_message(made, seq=4, counter=COUNTER)
    assert (back.parts, back.tokens, back.speaker) == (stored.parts, stored.tokens, "Max")


SUMMARY = Summary("s1", "## Facts\n- Ann lives in Oslo [#2]", 1, 6, (), COUNTER.count("x"))


@pytest.mark.requirement("S4.4")
def test_the_summary_stands_in_lists_as_an_assistants_message_with_its_range() -> None:
    made = build_summary_ui_message(SUMMARY, from_id="m1", to_id="m6", count=6)
    assert (made.role, made.kind) == ("assistant", "summary")
    assert made.metadata["sourceRange"] == {"fromId": "m1", "toId": "m6", "count": 6}
    read, _ = parse_ui_message(serialize_ui_message(made))
    ids = [f"m{n}" for n in range(1, 9)]
    back = parse_ui_summary(read, ids=ids, counter=COUNTER)
    assert (back.from_seq, back.to_seq, back.text) == (1, 6, SUMMARY.text)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"sourceRange": {}},
        {"sourceRange": {"fromId": "m1", "toId": "gone", "count": 6}},
        {"sourceRange": {"fromId": "m6", "toId": "m1", "count": 6}},
        {"sourceRange": {"fromId": "m1", "toId": "m6", "count": 4}},
    ],
    ids=["none", "empty", "unknown", "backwards", "miscounted"],
)
def test_inv_70_a_summary_covers_only_what_its_range_proves_and_stays_readable(
    metadata: dict[str, object],
) -> None:
    old = UIMessage("s1", "assistant", (TextPart("Ann lives in Oslo."),), metadata)
    ids = [f"m{n}" for n in range(1, 9)]
    made = parse_ui_summary(old, ids=ids, counter=COUNTER)
    assert made.to_seq == 0
    assert "Ann lives in Oslo." in build_summary_wire(made).content


@pytest.mark.requirement("S4.2")
def test_if_the_final_parts_are_missing_the_visible_text_is_stored() -> None:
    final = (TextPart("done"),)
    assert select_stored_parts(final, visible_text="do") == final
    assert select_stored_parts((), visible_text="do") == (TextPart("do"),)
    assert select_stored_parts((), visible_text="") == ()


def test_inv_18_a_file_costs_about_the_same_whatever_it_holds() -> None:
    small = FilePart("image/png", "a.png", "https://x/a.png")
    huge = FilePart("image/png", "a.png", "data:image/png;base64," + "A" * 5_000_000)
    long_name = FilePart("application/pdf", "x" * 9_000, "")
    costs = [count_uncut_tokens((part,), "user", COUNTER) for part in (small, huge, long_name)]
    assert costs[0] == costs[1] < 30
    assert costs[2] < 100
    assert all("base64" not in wire.content for wire in convert_parts_to_wires("user", (huge,)))


def test_a_file_is_named_to_the_model_and_stored_as_it_is() -> None:
    part = FilePart("image/png", "a\nb.png", "u")
    assert convert_parts_to_wires("user", (TextPart("see"), part))[0].content == (
        "see\n\n[Attached file: a b.png (image/png)]"
    )
    assert parse_parts(serialize_parts((part,))) == (part,)
    only_file = message(1, parts=(part,))
    assert has_content(only_file)
    asked = build_summary_request(messages=[only_file], previous=None, values=PolicyValues())
    assert "[Attached file: a b.png (image/png)]" in asked[1].content


CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "what is it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{ }"}},
            {"id": "c2", "type": "function", "function": {"name": "u", "arguments": "no"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "assistant", "content": "it is three"},
]


@pytest.mark.requirement("S0.1")
@pytest.mark.requirement("S4.2")
def test_chat_messages_come_back_as_they_were() -> None:
    read = parse_chat_messages([{"role": "system", "content": "Be brief."}, *CHAT])
    assert (read.system, read.losses) == ("Be brief.", ())
    assert [said.role for said in read.messages] == ["user", "assistant", "assistant"]
    wires = [
        wire for said in read.messages for wire in convert_parts_to_wires(said.role, said.parts)
    ]
    assert format_chat_messages(wires) == CHAT


def test_what_a_chat_message_cannot_keep_is_named() -> None:
    read = parse_chat_messages(
        [
            {"role": "tool", "tool_call_id": "c0", "content": "stray"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
                    {"type": "image_url", "image_url": "https://x/b.png"},
                    {"type": "input_audio", "input_audio": {}},
                ],
            },
            {"role": "developer", "content": "Be kind."},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ]
    )
    assert read.system == "Be kind."
    assert read.losses == ("stray_result:c0", "content_dropped:input_audio", "system_moved:3")
    assert read.messages == (
        ReadMessage(
            "user",
            (
                TextPart("see"),
                FilePart("image/*", "", "https://x/a.png"),
                FilePart("image/*", "", "https://x/b.png"),
            ),
        ),
        ReadMessage("assistant", (TextPart("no"),)),
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        ["hi"],
        [{"role": "function", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": [{"text": "x"}]}],
        [{"role": "tool", "content": "x"}],
        [{"role": "assistant", "tool_calls": {}}],
        [{"role": "assistant", "tool_calls": ["x"]}],
        [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "t"}}]}],
    ],
    ids=range(11),
)
def test_a_chat_message_of_no_known_form_is_refused(data: object) -> None:
    with pytest.raises(MalformedChatMessage) as refusal:
        parse_chat_messages(data)
    assert refusal.value.code == "malformed_chat_message"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "-1e400"])
def test_arguments_with_an_impossible_number_are_exported_as_text(number: str) -> None:
    call = ToolCallPart("c", "f", f'{{"n": {number}}}')
    written = serialize_ui_message(UIMessage("a", "assistant", (call,), {}))
    (part,) = (each for each in written["parts"] if each["type"] == "tool-f")  # type: ignore[attr-defined]  # a list of parts
    assert (part["input"], part["rawInput"]) == (None, call.arguments)
    json.dumps(written, allow_nan=False)
    assert parse_ui_message(written)[0].parts == (call,)
