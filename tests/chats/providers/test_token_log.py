"""Log probabilities are matched to the text of a reply by their bytes."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from chats.providers.base import ProviderRequest
from chats.providers.chunks import ReplyReader
from chats.providers.collector import ReplyCollector
from chats.providers.logprobs import TokenLog, encode_entry

Found = list[tuple[int, str]]


def entry(token: str | bytes) -> dict[str, Any]:
    """Return an entry as OpenAI sends it. A part of a character is escaped in its token."""
    data = token if isinstance(token, bytes) else token.encode()
    text = token if isinstance(token, str) else repr(token)[2:-1]
    return {"token": text, "logprob": -0.25, "bytes": list(data), "top_logprobs": []}


def read_reply(*choices: dict[str, Any], folds: bool = True) -> ReplyCollector:
    """Return the reply in these choices of a provider, as a turn collects it."""
    reader, reply = ReplyReader(), ReplyCollector(splits_thoughts=folds)
    reply.prepare_log(ProviderRequest("m", (), parameters={"logprobs": True}))
    for choice in (*choices, {"delta": {}, "finish_reason": "stop"}):
        for event in reader.read(json.dumps({"choices": [choice]}).encode()):
            reply.hear(event)
    for event in reader.finish():
        reply.hear(event)
    return reply


def said(text: str, *tokens: str | bytes, **more: Any) -> dict[str, Any]:
    """Return a choice with a piece of text and the entries of its tokens."""
    logprobs = {"content": [entry(token) for token in tokens], "refusal": None}
    return {"delta": {"content": text, **more}, "logprobs": logprobs}


def kept_in(reply: ReplyCollector) -> Found:
    """Return position and token of each entry that the reply has."""
    assert reply.log is not None
    return [(start, e["token"]) for start, e in json.loads(reply.log.dump_entries() or "[]")]


@given(
    text=st.text(alphabet="ab é€😀\n", min_size=1, max_size=40),
    cuts=st.sets(st.integers(0, 160)),
    breaks=st.sets(st.integers(0, 40)),
)
def test_each_token_is_placed_where_its_bytes_are(
    text: str, cuts: set[int], breaks: set[int]
) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    tokens = [data[a:b] for a, b in pairwise(edges)]
    places = sorted({0, len(text), *(at for at in breaks if at < len(text))})
    log = TokenLog(limit=10**6)
    lines, sent = "", 0
    for begin, end in pairwise(places):
        piece, ready = text[begin:end], len(text[:end].encode())
        due = [at for at, edge in enumerate(edges[:-1]) if sent <= edge < ready]
        log.add_entries([entry(tokens[at]) for at in due])
        sent = ready
        log.add_text(piece)
        log.place_text(at=begin, size=len(piece))
        lines = ",".join(filter(None, (lines, log.take_entries(upto=end))))
    assert not log.is_partial
    numbered = json.loads(f"[{lines}]")
    assert [number for number, _, _ in numbered] == list(range(len(tokens)))
    assert b"".join(bytes(e["bytes"]) for _, _, e in numbered) == data
    for (_, start, _), edge in zip(numbered, edges, strict=False):
        assert len(text[:start].encode()) <= edge < len(text[: start + 1].encode())
    assert json.loads(log.dump_entries()) == [[start, e] for _, start, e in numbered]


@pytest.mark.parametrize(
    ("choices", "text", "found"),
    [
        ([said("<think>", "<think>"), said("Hm", "Hm"), said("</think>", "</think>"),
          said("\n\n", "\n\n"), said("Yes", "Yes"), said(".", ".")],
         "Yes.", [(0, "Yes"), (3, ".")]),
        ([said("Hm", "Hm"), said("</think>", "</think>"), said("\n", "\n"), said("Yes", "Yes")],
         "Yes", [(0, "Yes")]),
        ([said("Hm</think>\n\nYes", "Hm", "</think>\n", "\nYes")], "Yes", []),
        ([said("<th", "<th"), said("e", "e")], "<the", [(0, "<th"), (3, "e")]),
        ([said(" \n", " \n"), said("Yes", "Yes")], " \nYes", [(0, " \n"), (2, "Yes")]),
        ([said("", "Yes", reasoning_content="Yes"), said("Yes", "Yes")], "Yes", [(0, "Yes")]),
        ([said("Yes", "Hm", "</think>", "Yes", reasoning_content="Hm")], "Yes", [(0, "Yes")]),
        ([said("", "<|start|>"), said("Yes", "Yes"), said("", "<|end|>")], "Yes", [(0, "Yes")]),
        ([said("Yes", " Yes"), said(" no", " no")], "Yes no", [(0, " Yes"), (3, " no")]),
        ([said("", " "), said("Yes", "Yes")], "Yes", [(0, "Yes")]),
        ([said("", b"\xf0\x9f"), said("😀", b"\x98\x80")],
         "😀", [(0, "\\xf0\\x9f"), (0, "\\x98\\x80")]),
        ([said("Yes"), said(" no")], "Yes no", []),
        ([{"delta": {"content": "Yes"}, "logprobs": 5}], "Yes", []),
        ([{"delta": {"refusal": "No"}, "logprobs": {"refusal": [entry("No")]}}],
         "No", [(0, "No")]),
    ],
)  # fmt: skip
def test_entries_of_other_output_than_the_text_are_left_out(
    choices: list[dict[str, Any]], text: str, found: Found
) -> None:
    reply = read_reply(*choices)
    assert (str(reply.text), kept_in(reply)) == (text, found)
    assert reply.log is not None
    assert not reply.log.is_partial


def test_a_whole_reply_with_reasoning_has_the_entries_of_its_text() -> None:
    tokens = ("The", " end", "</think>", "The", " end", "<eos>")
    told = said("", *tokens)["logprobs"]
    message = {"content": "The end", "reasoning_content": "The end"}
    reply = read_reply({"message": message, "logprobs": told})
    assert kept_in(reply) == [(0, "The"), (3, " end")]


@pytest.mark.parametrize("bad", [{"token": 1}, {}, 5, None, entry("No")])
def test_unusable_entries_are_announced(bad: Any) -> None:
    told = {"delta": {"content": "Yes"}, "logprobs": {"content": [bad]}}
    reply = read_reply(told, said(" no", " no"))
    assert (str(reply.text), kept_in(reply)) == ("Yes no", [])
    assert reply.log is not None
    assert reply.log.is_partial


def test_nothing_follows_entries_that_differ_from_the_text() -> None:
    reply = read_reply(said("Yes", "Yes"), said(" no", " nope"), said(" Yes", " Yes"))
    assert kept_in(reply) == [(0, "Yes")]
    assert reply.log is not None
    assert reply.log.is_partial


def test_entries_have_a_limit_in_bytes(settings: Settings) -> None:
    settings.GATEWAY_LOGPROB_BYTES = 2 * len(encode_entry(entry("a"))[1])  # type: ignore[index]  # it has a token
    reply = read_reply(*(said("a", "a") for _ in range(3)))
    assert (str(reply.text), kept_in(reply)) == ("aaa", [(0, "a"), (1, "a")])
    assert reply.log is not None
    assert reply.log.is_partial


def test_a_text_at_its_limit_has_the_entries_of_whole_tokens(settings: Settings) -> None:
    settings.REPLY_CHARS = 4
    reply = read_reply(said("Yes", "Yes"), said(" no", " no"))
    assert (str(reply.text), kept_in(reply)) == ("Yes ", [(0, "Yes")])


@pytest.mark.parametrize("listed", [None, [], [300], ["a"], 10**12, "Yes"])
def test_a_token_without_usable_bytes_has_those_of_its_text(listed: Any) -> None:
    given = {**entry("Yes"), "bytes": listed}
    assert encode_entry(given) == (b"Yes", json.dumps(given, separators=(",", ":")))


def test_a_request_without_log_probabilities_collects_none() -> None:
    reply = ReplyCollector()
    reply.prepare_log(ProviderRequest("m", (), parameters={"logprobs": False}))
    reader = ReplyReader()
    for event in reader.read(json.dumps({"choices": [said("Yes", "Yes")]}).encode()):
        reply.hear(event)
    assert (str(reply.text), reply.log) == ("Yes", None)
