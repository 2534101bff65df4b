"""S19: bodies that break parsers, or that two parsers would interpret differently."""

import json
from contextlib import suppress
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.api.core.errors import RequestTooLarge
from chats.api.core.strict_json import InvalidJSON, StrictJSONParser, parse_json_object

BAD = {
    "nothing": b"",
    "no object": b'"text"',
    "a list": b"[]",
    "cut": b'{"text": "x',
    "no UTF-8": b'{"text": "\xff"}',
    "UTF-16": '{"text": "x"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"text": "x"}',
    "two values": b'{"a": 1} {"b": 2}',
    "a comment": b'{"a": 1 /* why */}',
    "a last comma": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "a raw line break": b'{"a": "x\ny"}',
    "a duplicate key": b'{"text": "x", "text": "y"}',
    "a duplicate key inside": b'{"a": [{"b": 1, "b": 2}]}',
    "an escaped duplicate key": b'{"text": "x", "te\\u0078t": "y"}',
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "a float that is infinity": b'{"a": 1e999}',
    "a number of 5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "half a surrogate pair": b'{"text": "\\ud800"}',
    "the other half": b'{"text": "\\udfff x"}',
    "half a pair in a key": b'{"\\ud800": 1}',
    "33 levels": b'{"a":' * 33 + b"1" + b"}" * 33,
    "33 levels of lists": b'{"a":' + b"[" * 32 + b"]" * 32 + b"}",
    "100,000 open brackets": b"[" * 100_000,
    "100,000 open objects": b'{"a":' * 100_000,
    "10,001 keys": json.dumps({str(n): n for n in range(10_001)}).encode(),
    "10,001 keys in many objects": json.dumps({"a": [{"b": n} for n in range(10_000)]}).encode(),
    "more than 500,000 values without keys": b'{"a": [' + b"{}," * 260_000 + b"{}]}",
}
GOOD = {
    "no keys": b"{}",
    "32 levels": b'{"a":' * 32 + b"1" + b"}" * 32,
    "10,000 keys": json.dumps({str(n): n for n in range(10_000)}).encode(),
    "500,000 values": b'{"a": [' + b"0," * 499_998 + b"0]}",
    "many commas in a text": b'{"a": "' + b"," * 600_000 + b'"}',
    "a whole surrogate pair": b'{"text": "\\ud83d\\ude00"}',
    "an escaped NUL": b'{"text": "\\u0000"}',
    "the same key in two objects": b'{"a": {"b": 1}, "c": {"b": 1}}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_S19_ambiguous_or_broken_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJSON) as refused:
        parse_json_object(body)
    assert (refused.value.code, refused.value.status) == ("invalid_json", 400)


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_S19_clear_json_is_read(body: bytes) -> None:
    assert parse_json_object(body) == json.loads(body)


def test_S19_body_over_the_limit_is_not_read_to_its_end() -> None:
    stream = BytesIO(b" " * 10_000_000)
    with pytest.raises(RequestTooLarge):
        StrictJSONParser().parse(stream)
    assert stream.tell() == 2_621_441


@given(st.binary(max_size=200))
def test_S19_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(InvalidJSON):
        assert isinstance(parse_json_object(body), dict)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_S19_what_was_written_is_what_is_read(value: dict[str, object]) -> None:
    written = json.dumps(value, ensure_ascii=False).encode()
    assert parse_json_object(written) == value
