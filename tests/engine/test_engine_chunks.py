"""Compacting more than one call can read: each source is in one chunk, chunks merge to one."""

from functools import partial

from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.messages.turn_groups import find_turn_starts
from contextpolicy.engine.policy.budget import compute_request_limit
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.chunks import map_reduce
from contextpolicy.engine.summaries.prompts import (
    build_merge_request,
    build_summary_request,
    count_request_tokens,
    count_transcript_tokens,
)
from tests.engine.engine_builders import COUNTER, chat, chats, message


@forall(chats(), st.integers(20, 2_000), st.integers(5, 400))
def test_inv_03_each_source_is_read_in_exactly_one_chunk_that_fits(
    sources: tuple[Message, ...], source_limit: int, summary: int
) -> None:
    made = map_reduce(sources, source_limit=source_limit, summary_max_tokens=summary)
    assert [m.seq for chunk in made.chunks for m in chunk.messages] == [m.seq for m in sources]
    for chunk in made.chunks:
        assert chunk.tokens <= source_limit
        assert (chunk.max_chars is None) or len(chunk.messages) == 1
    cuts = {sources[place].seq for place in find_turn_starts(sources)}
    for before, after in zip(made.chunks, made.chunks[1:], strict=False):
        turn = sum(m.tokens for m in before.messages) + after.messages[0].tokens
        assert after.messages[0].seq in cuts or turn > source_limit


@forall(st.integers(0, 60), st.integers(50, 300), st.integers(1, 300))
def test_summaries_are_merged_round_by_round_until_one_is_left(
    count: int, source_limit: int, summary: int
) -> None:
    sources = chat(count, lambda seq: f"message {seq} " * 8)
    made = map_reduce(sources, source_limit=source_limit, summary_max_tokens=summary)
    width = len(made.chunks)
    for merges in made.rounds:
        assert [place for start, end in merges for place in range(start, end)] == [*range(width)]
        width = len(merges)
    assert width == min(1, len(made.chunks))
    assert made.calls == len(made.chunks) + sum(map(len, made.rounds))


def test_a_message_larger_than_a_call_is_cut_in_its_transcript() -> None:
    sources = [message(1), message(2, "word " * 5_000), message(3)]
    made = map_reduce(sources, source_limit=1_000, summary_max_tokens=200)
    (chunk,) = [chunk for chunk in made.chunks if chunk.max_chars]
    request = build_summary_request(
        messages=chunk.messages,
        previous=None,
        values=PolicyValues(),
        max_chars_per_message=chunk.max_chars,
    )
    assert COUNTER.count(request[1].content) < 1_200


def test_merging_treats_every_part_as_data() -> None:
    previous = Summary("s1", "Ann lives in Oslo.", 1, 6, (), 10)
    system, user = build_merge_request(
        partial=["first </summary> part", "second part"], previous=previous, values=PolicyValues()
    )
    assert system.role == "system"
    assert user.content.count("</summary>") == 3
    order = ["Ann lives", "part 1 of 2", "first", "part 2 of 2", "second", "Write the new"]
    places = [user.content.index(words) for words in order]
    assert places == sorted(places)
    bare = build_merge_request(partial=["a", "b"], previous=None, values=PolicyValues())
    assert "so far (" not in bare[1].content


def test_a_second_attempt_is_told_what_the_first_one_lost() -> None:
    request = build_summary_request(
        messages=chat(2), previous=None, values=PolicyValues(), lost=("4711", "a\n</transcript>")
    )
    assert "lost these facts. Keep them this time:\n- 4711\n- a &lt;" in request[1].content
    assert request[1].content.endswith("Write the new summary now.")


def test_of_too_many_chunks_the_newest_are_read_and_merged_with_what_stands_for_the_rest() -> None:
    sources = chat(40)
    whole = map_reduce(sources, source_limit=60, summary_max_tokens=30)
    few = map_reduce(sources, source_limit=60, summary_max_tokens=30, most_chunks=3)
    assert few.chunks == whole.chunks[-3:]
    read = [m for chunk in few.chunks for m in chunk.messages]
    assert [m.seq for m in (*few.before, *read)] == list(range(1, 41))
    # In pairs: the first of four replaces the others.
    assert few.rounds == (((0, 2), (2, 4)), ((0, 2),))
    assert map_reduce(sources, source_limit=60, summary_max_tokens=30, most_chunks=99) == whole


def test_a_message_costs_what_its_place_in_a_transcript_takes() -> None:
    values, sources = PolicyValues(), chat(12)
    cost = partial(count_transcript_tokens, values=values, counter=COUNTER)
    assert all(cost(message) > message.tokens for message in sources)
    made = map_reduce(sources, source_limit=200, summary_max_tokens=30, cost=cost)
    frame = build_summary_request(messages=(), previous=None, values=values)
    for chunk in made.chunks:
        request = build_summary_request(messages=chunk.messages, previous=None, values=values)
        over = count_request_tokens(request, counter=COUNTER) - count_request_tokens(
            frame, counter=COUNTER
        )
        assert over <= 200


def test_a_request_leaves_room_for_its_summary() -> None:
    values = PolicyValues(token_budget=10_000, reserve_tokens=2_000, summary_max_tokens=1_000)
    assert compute_request_limit(values, model_window=None) == 8_000
    assert compute_request_limit(values, model_window=6_000) == 4_000
    longer = PolicyValues(token_budget=10_000, reserve_tokens=500, summary_max_tokens=1_000)
    assert compute_request_limit(longer, model_window=None) == 9_000
