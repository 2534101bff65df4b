"""Cuts: within the limit, at character boundaries, with an accurate marker."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextpolicy.engine.history.tool_rules import apply_tool_rules
from contextpolicy.engine.history.truncation import (
    LONGEST_CLUSTER,
    cut_text,
    cut_texts,
    cut_tool_result,
    find_border_after,
    find_open_fence,
    is_border,
)
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.policy.fields.history import CutStyle
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import texts

STYLES: tuple[CutStyle, ...] = ("head", "head_tail")
MARKER = re.compile(r"\n\[… ([\d,]+) characters cut …\]\n")
FAMILY = "👩‍👩‍👧‍👦"
CLUSTERS = {
    "combining accent": "e\u0301",
    "joined emoji": FAMILY,
    "skin tone": "👍🏽",
    "flag": "🇩🇪",
    "keycap": "1\ufe0f\u20e3",
    "subdivision flag": "🏴\U000e0067\U000e0062\U000e007f",
    "hangul jamo": "\u1112\u1161\u11ab",
    "hangul syllable with a final": "\ud558\u11ab",
    "devanagari conjunct": "क्ष",
    "thai am": "ก\u0e33",
    "surrogate pair": "\ud83d\ude00",
    "line end": "\r\n",
    "prepended sign": "\u0600\u0661",
}


@given(texts(), st.integers(1, 400), st.sampled_from(STYLES))
@example("x" * 500, 30, "head_tail")
def test_inv_13_a_cut_is_within_its_limit_and_cutting_again_changes_nothing(
    text: str, limit: int, style: CutStyle
) -> None:
    made = cut_text(text, limit=limit, style=style)
    assert len(made.text) <= limit
    again = cut_text(made.text, limit=limit, style=style)
    assert (again.text, again.removed) == (made.text, 0)


@given(texts(), st.integers(60, 300), st.sampled_from(STYLES))
def test_inv_13_the_marker_states_how_many_characters_are_missing(
    text: str, limit: int, style: CutStyle
) -> None:
    made = cut_text(text, limit=limit, style=style)
    if made.removed:
        stated = MARKER.search(made.text)
        assert stated is not None
        assert int(stated.group(1).replace(",", "")) == made.removed
        kept = len(text) - made.removed
        fences = len(made.text) - len(stated.group()) - kept
        assert 0 <= fences <= 8
    else:
        assert made.text == text


@given(st.text(min_size=1), st.integers(1, 60), st.sampled_from(STYLES))
def test_inv_14_any_text_at_all_is_cut_within_its_limit(
    text: str, limit: int, style: CutStyle
) -> None:
    assert len(cut_text(text * 4, limit=limit, style=style).text) <= limit


@pytest.mark.requirement("S0.3")
def test_exactly_the_limit_stays() -> None:
    assert cut_text("x" * 4_000, limit=4_000, style="head").removed == 0
    made = cut_text("x" * 4_001, limit=4_000, style="head")
    assert made.removed > 0
    assert len(made.text) <= 4_000


def test_head_keeps_the_beginning_and_head_tail_both_ends() -> None:
    text = "".join(f"{n:04}" for n in range(500))
    head = cut_text(text, limit=200, style="head").text
    both = cut_text(text, limit=200, style="head_tail").text
    assert head.startswith("00000001")
    assert head.endswith("…]\n")
    assert both.startswith("00000001")
    assert both.endswith("04980499")
    assert MARKER.search(both)


def test_large_numbers_are_written_with_commas() -> None:
    assert "[… 1,9" in cut_text("x" * 2_000, limit=60, style="head").text


def test_a_limit_too_small_for_a_marker_keeps_a_bare_beginning() -> None:
    assert cut_text("x" * 100, limit=5, style="head_tail").text == "xxxxx"
    assert cut_text(FAMILY * 30, limit=3, style="head").text == ""


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        cut_text("a", limit=0, style="head")


@pytest.mark.parametrize("name", sorted(CLUSTERS))
@pytest.mark.parametrize("style", STYLES)
def test_inv_14_no_cut_falls_inside_a_character(name: str, style: CutStyle) -> None:
    cluster = CLUSTERS[name]
    assert not any(is_border(cluster * 3, place) for place in range(1, len(cluster)))
    for limit in range(60, 60 + 2 * len(cluster)):
        made = cut_text(cluster * 100, limit=limit, style=style)
        kept = MARKER.sub("", made.text)
        assert kept == cluster * (len(kept) // len(cluster))


@pytest.mark.parametrize(
    "text",
    ["ab", "a\n", "\r\r", "日本", "각각", "👩👩", "\n\u0301", "ㄱㅏ", "a👩"],
)
def test_borders_between_characters_are_found(text: str) -> None:
    assert is_border(text, 1)


def test_two_flags_are_two_characters() -> None:
    assert [place for place in range(5) if is_border("🇩🇪🇫🇷", place)] == [0, 2, 4]


def test_the_ends_of_a_text_are_borders() -> None:
    assert is_border(FAMILY, 0)
    assert is_border(FAMILY, len(FAMILY))
    assert find_border_after("abc", 99) == 3


def test_a_letter_under_endless_accents_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 5_000
    assert cut_text(text, limit=1_000, style="head").removed < len(text)
    made = cut_text(text, limit=1_000, style="head_tail")
    assert len(made.text) <= 1_000
    assert find_border_after(text, 1) == 1 + LONGEST_CLUSTER


def test_an_endless_cluster_of_surrogates_is_not_cut_inside_a_pair() -> None:
    text = "\u200d\ud83d\ude00" * 200
    assert text[find_border_after(text, 1) - 1] != "\ud83d"


FENCED = "intro\n```python\n" + "x = 1\n" * 100 + "```\nend of text"


@pytest.mark.parametrize("style", STYLES)
def test_inv_14_an_open_code_fence_is_closed_before_the_marker(style: CutStyle) -> None:
    for limit in range(60, 300):
        made = cut_text(FENCED, limit=limit, style=style).text
        head, _, tail = made.partition("\n[… ")
        assert find_open_fence(head) == ""
        assert find_open_fence(made) == ""
        if style == "head_tail" and "x = 1" in tail:
            assert "```" in tail


@pytest.mark.parametrize("mark", ["```", "~~~", " ```", "````"])
def test_inv_14_marks_within_a_line_of_code_open_no_fence_after_a_cut(mark: str) -> None:
    fence = mark.strip()
    text = f"{fence}\n{'x' * 160}{mark}\ncode\n{fence}\n{fence}\ncode\n{fence}\nword "
    assert find_open_fence(text) == ""
    for limit in range(60, len(text)):
        assert find_open_fence(cut_text(text, limit=limit, style="head_tail").text) == "", limit


@given(texts(), st.integers(50, 300), st.sampled_from(STYLES))
def test_inv_14_a_cut_leaves_no_more_fences_open_than_the_text_did(
    text: str, limit: int, style: CutStyle
) -> None:
    made = cut_text(text, limit=limit, style=style).text
    if not find_open_fence(text):
        assert not find_open_fence(made)


@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("```\ncode", "```"),
        ("```\ncode\n```", ""),
        ("````\n```\ncode", "````"),
        ("~~~\n```\n", "~~~"),
        ("```a`b\ntext", ""),
        ("    ```\nindented", ""),
        ("``` \n```  \n", ""),
        ("```\n``` info\n", "```"),
    ],
)
def test_open_fences_are_read_as_in_commonmark(text: str, fence: str) -> None:
    assert find_open_fence(text) == fence


def test_fences_longer_than_the_limit_are_no_trouble() -> None:
    text = "`" * 500 + "\ncode\n" + "x" * 500
    for limit in (40, 60, 300, 600):
        assert len(cut_text(text, limit=limit, style="head_tail").text) <= limit


def test_a_tool_result_keeps_both_ends() -> None:
    made = cut_tool_result("start" + "." * 10_000 + "error at the end", limit=200)
    assert made.text.startswith("start")
    assert made.text.endswith("error at the end")


@pytest.mark.requirement("S0.6")
def test_texts_and_tool_results_are_cut_each_by_their_own_limit() -> None:
    wires = (WireMessage("assistant", "t" * 300), WireMessage("tool", "r" * 300, (), "c"))
    texts_cut = cut_texts(wires, max_chars=100, style="head")
    assert (len(texts_cut[0].content) <= 100, texts_cut[1]) == (True, wires[1])
    values = PolicyValues(tool_output_limit=100)
    results_cut = apply_tool_rules(wires, values=values, most=None, stubbed=frozenset())
    assert results_cut[0] is wires[0]
    assert len(results_cut[1].content) <= 100
    assert results_cut[1].tool_call_id == "c"


@given(texts(), st.integers(1, 200), st.sampled_from(STYLES))
def test_inv_16_a_cut_depends_on_its_arguments_alone(
    text: str, limit: int, style: CutStyle
) -> None:
    first = cut_text(text, limit=limit, style=style)
    assert first == cut_text("".join(list(text)), limit=limit, style=style)
