"""The event parser yields the same events for every split of the bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.providers.sse import EventParser, LineTooLong, TextJoiner

STREAMS = {
    b"data: a\n\ndata: b\n\n": [b"a", b"b"],
    b"data: a\r\n\r\ndata: b\r\n\r\n": [b"a", b"b"],
    b"data: a\r\rdata: b\r\r": [b"a", b"b"],
    b"\xef\xbb\xbfdata: a\n\n": [b"a"],
    b": comment\n\n:\n\ndata: a\n\n": [b"a"],
    b"data: a\ndata: b\n\n": [b"a\nb"],
    b"data: a\r\ndata: b\r\n\r\n": [b"a\nb"],
    b"data:a\n\ndata:  b\n\n": [b"a", b" b"],
    b"event: x\nid: 1\nretry: 5\ndata: a\nother\n\n": [b"a"],
    b"data\n\n": [b""],
    b"\n\n\n\r\n\r": [],
    b"data: a": [b"a"],
    b"data: a\ndata: b": [b"a\nb"],
    "data: Grüße 🦊 世界\n\n".encode(): ["Grüße 🦊 世界".encode()],
    b"data: x: y\n\n": [b"x: y"],
}


def _read(pieces: list[bytes]) -> list[bytes]:
    parser = EventParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


@pytest.mark.parametrize("raw", list(STREAMS), ids=range(len(STREAMS)))
def test_f18_events_are_read(raw: bytes) -> None:
    assert _read([raw]) == STREAMS[raw]


@pytest.mark.parametrize("raw", list(STREAMS), ids=range(len(STREAMS)))
def test_f18_byte_by_byte_is_the_same(raw: bytes) -> None:
    assert _read([bytes([byte]) for byte in raw]) == STREAMS[raw]


@given(raw=st.sampled_from([b"".join(STREAMS), *STREAMS]), cuts=st.sets(st.integers(0, 400)))
def test_f18_any_split_gives_identical_events(raw: bytes, cuts: set[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    pieces = [raw[start:end] for start, end in pairwise(places)]
    assert _read(pieces) == _read([raw])


@given(raw=st.binary(max_size=200), cut=st.integers(0, 200))
def test_f18_any_bytes_are_read_without_an_error(raw: bytes, cut: int) -> None:
    assert _read([raw[:cut], raw[cut:]]) == _read([raw])


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_f21_line_over_the_limit_is_refused_before_its_end(size: int) -> None:
    parser = EventParser(max_line=1000)
    for _ in range(1000 // size):
        parser.feed(b"x" * size)
    with pytest.raises(LineTooLong):
        parser.feed(b"x")


def test_f21_many_short_data_lines_cannot_pass_the_limit_together() -> None:
    parser = EventParser(max_line=1000)
    with pytest.raises(LineTooLong):
        parser.feed(b"data: xxxxxxxx\n" * 200)


@given(text=st.text(), cuts=st.sets(st.integers(0, 100)))
def test_f18_text_in_halves_of_characters_is_joined(text: str, cuts: set[int]) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    halves = [
        units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)
    ]
    places = [0, *sorted(cut for cut in cuts if cut < len(halves)), len(halves)]
    pieces = ["".join(halves[a:b]) for a, b in pairwise(places)]
    joiner = TextJoiner()
    joined = "".join(joiner.push(piece) for piece in pieces) + joiner.flush()
    assert joined == text.replace("\x00", "�")


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a\ud83d", "b"], "a�b"),
        (["\ud83d"], "�"),
        (["b\udd8a"], "b�"),
        (["\ud83e", "\ud83e", "\udd8a"], "�🦊"),
        (["a\x00b"], "a�b"),
    ],
)
def test_f18_half_that_stays_alone_is_replaced(pieces: list[str], text: str) -> None:
    joiner = TextJoiner()
    joined = "".join(joiner.push(piece) for piece in pieces) + joiner.flush()
    assert joined == text
    assert joined.encode()
