"""Search in a long tool result."""

from chats.prompt.tools.output_read import AROUND, MOST_MATCHES, find_matches


def test_letters_that_grow_in_lower_case_do_not_move_the_match() -> None:
    # In lower case, this letter has two characters.
    before = "İ" * 1000
    text = f"{before} The Needle {'x' * 1000}"
    found = find_matches(text, search="the needle")
    assert "The Needle" in found
    assert found.startswith(f"[From character {len(before) + 1 - AROUND:,}]\n")


def test_a_search_text_is_not_a_pattern_and_matches_do_not_overlap() -> None:
    assert find_matches("a.b and axb", search="A.B").count("a.b") == 1
    assert find_matches("axb", search="a.b") == ""
    gap = "-" * (AROUND + 1)
    text = gap.join(f"word{number}" for number in range(20))
    assert find_matches(text, search="WORD").count("[From character") == MOST_MATCHES
