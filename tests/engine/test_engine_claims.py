"""The bullets of a summary: labels, claims and source marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.text.claims import (
    Claim,
    parse_source_seqs,
    read_label,
    split_bullet_claims,
    strip_bullet_label,
    strip_summary_labels,
    write_label,
    write_mark,
    write_next_day,
)


@pytest.mark.parametrize(
    ("bullet", "claims"),
    [
        (
            "User, 2023-05-08: I have two cats. [#3] One is Tom. [#7, #9] 05-12: He is ill. [#15]",
            [
                Claim("User, 2023-05-08: ", "I have two cats.", (3,)),
                Claim("User, 2023-05-08: ", "One is Tom.", (7, 9)),
                Claim("User, 2023-05-12: ", "He is ill.", (15,)),
            ],
        ),
        (
            "Ann Berg, 2023-12-30: Go. [#1] 2024-01-02: Stop! [#2]",
            [
                Claim("Ann Berg, 2023-12-30: ", "Go.", (1,)),
                Claim("Ann Berg, 2024-01-02: ", "Stop!", (2,)),
            ],
        ),
        ("Ann [#1] and Bob [#2] agreed.", [Claim("", "Ann [#1] and Bob [#2] agreed.", (1, 2))]),
        ("Ann says so [#1].", [Claim("", "Ann says so.", (1,))]),
        ("It is so. [#1] [#2]", [Claim("", "It is so.", (1, 2))]),
        ("我喜欢茶。[#1]你呢？[#3]", [Claim("", "我喜欢茶。", (1,)), Claim("", "你呢？", (3,))]),
        ("User: the code is 4711 [#3]", [Claim("User: ", "the code is 4711", (3,))]),
        ("2023-05-08: Ann left. [#3]", [Claim("2023-05-08: ", "Ann left.", (3,))]),
        # Without a day in the label these digits are part of the text.
        ("User: Go. [#1] 05-12: rent due. [#2]",
         [Claim("User: ", "Go.", (1,)), Claim("User: ", "05-12: rent due.", (2,))]),
        ("Budget: 400 euros", [Claim("", "Budget: 400 euros", ())]),
        ("It ends. [#1] no end", [Claim("", "It ends.", (1,)), Claim("", "no end", ())]),
        ("[#3]", [Claim("", "", (3,))]),
        ("", []),
    ],
)  # fmt: skip
def test_a_bullet_is_split_where_a_mark_follows_a_whole_sentence(
    bullet: str, claims: list[Claim]
) -> None:
    assert split_bullet_claims(bullet) == claims


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=80)
days = st.sampled_from(["", "2023-05-08", "1999-12-31"])


@given(names, days)
def test_a_label_is_read_as_it_was_written_and_stays_on_its_line(name: str, day: str) -> None:
    label = write_label(name, day)
    assert "\n" not in label
    assert "[" not in label
    if day and label != f"{day}: ":
        found = read_label(label)
        assert found.day == day
        assert write_label(found.author, day) == label


def test_labels_of_other_forms_name_nothing() -> None:
    assert read_label("Ann: ") == ("", "")
    assert read_label("User: ") == ("User", "")
    assert read_label("2023-05-08: ") == ("", "2023-05-08")


def test_the_next_day_has_its_year_only_where_that_changes() -> None:
    assert write_next_day("2023-05-12", before="2023-05-08") == "05-12: "
    assert write_next_day("2024-01-02", before="2023-12-30") == "2024-01-02: "


def test_days_and_authors_are_no_words_of_a_summary() -> None:
    text = "## Facts\n- User, 2023-05-08: I paid 40. [#3] 05-12: Twice. [#5]\n- Rent: 2023-06-01\n"
    assert strip_summary_labels(text) == (
        "## Facts\n- I paid 40. [#3] Twice. [#5]\n- Rent: 2023-06-01\n"
    )
    assert strip_bullet_label("User, 2023-05-08: I paid.") == "I paid."
    assert strip_bullet_label("Rent: 40") == "Rent: 40"


def test_marks_name_their_messages() -> None:
    assert parse_source_seqs("a [#12] b [#3, #12] c [4] #5") == [3, 12]
    assert write_mark([3, 12]) == "[#3, #12]"
    assert write_mark([]) == ""
