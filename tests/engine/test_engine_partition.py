"""Range arithmetic, compared with counting one by one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.compose.partition import (
    LeftOut,
    PartitionError,
    account_for_messages,
    check_partition,
    explain_unsendable_message,
    group_seq_ranges,
    split_range_around,
)
from contextpolicy.engine.messages.messages import Message, Summary, TextPart

seqs = st.sets(st.integers(1, 40)).map(sorted)


@given(seqs)
def test_ranges_hold_exactly_their_seqs(numbers: list[int]) -> None:
    ranges = list(group_seq_ranges(numbers))
    assert [n for first, last in ranges for n in range(first, last + 1)] == numbers
    assert all(a[1] + 1 < b[0] for a, b in pairwise(ranges))


@given(st.integers(1, 40), st.integers(0, 40), seqs)
def test_taking_holes_out_of_a_range_leaves_the_others(
    start: int, end: int, holes: list[int]
) -> None:
    rest = [
        n for first, last in split_range_around((start, end), holes) for n in range(first, last + 1)
    ]
    assert rest == [n for n in range(start, end + 1) if n not in holes]


@given(seqs, st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=4))
def test_inv_01_the_check_by_ranges_agrees_with_the_check_one_by_one(
    sent: list[int], spans: list[tuple[int, int]]
) -> None:
    left = [LeftOut(first, last, "window") for first, last in spans if first <= last]
    every = sent + [n for item in left for n in range(item.from_seq, item.to_seq + 1)]
    last_seq = max(every, default=0)
    if sorted(every) == list(range(1, last_seq + 1)):
        check_partition(last_seq=last_seq, sent=sent, left_out=left)
    else:
        with pytest.raises(PartitionError):
            check_partition(last_seq=last_seq, sent=sent, left_out=left)


def test_a_range_that_ends_before_it_begins_is_an_error() -> None:
    with pytest.raises(PartitionError):
        check_partition(last_seq=0, sent=[], left_out=[LeftOut(1, 0, "window")])


def test_a_reason_of_the_caller_leaves_a_message_out_before_every_other() -> None:
    spoken = Message("a", 1, "user", (TextPart("Hello"),), 3)
    assert explain_unsendable_message(spoken) == ""
    assert explain_unsendable_message(Message("b", 2, "user", (), 0)) == "empty"
    assert (
        explain_unsendable_message(Message("c", 3, "user", (), 0, left="not_seen", excluded=True))
        == "not_seen"
    )


def test_ranges_that_a_provider_skipped_stand_behind_summary_and_window() -> None:
    summary = Summary("s", "Old.", 1, 2, (), 1)
    found = account_for_messages(
        sent=[6, 9],
        left=[(7, "empty")],
        summary=summary,
        summary_is_sent=True,
        window_to=3,
        unloaded=None,
        skipped=((1, 5), (7, 8)),
    )
    assert [(out.from_seq, out.to_seq, out.reason) for out in found.left_out] == [
        (1, 2, "covered"),
        (3, 3, "window"),
        (4, 5, "history_provider"),
        (7, 7, "empty"),
        (8, 8, "history_provider"),
    ]
    assert found.limited == 4
