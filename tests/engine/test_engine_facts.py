"""Facts that a summary must keep, and the report of the kept ones."""

import pytest

from contextpolicy.engine.text.facts import compare_summary_facts, extract_facts, extract_names


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("see https://example.org/a?b=1.", "url", ("https://example.org/a?b=1",)),
        ("www.example.org)", "url", ("www.example.org",)),
        ("on 2026-03-01 at 14:30", "date", ("2026-03-01", "14:30")),
        ("bis 24.12.2026", "date", ("24.12.2026",)),
        ("March 15, 2024 and 3 May", "date", ("March 15, 2024", "3 May")),
        ("2024年3月1日", "date", ("2024年3月1日",)),
        ("call get_user_id in src/app.py", "identifier", ("get_user_id", "src/app.py")),
        ("`git log` v1.2.3 JIRA-42", "identifier", ("git log", "v1.2.3", "JIRA-42")),
        ("ann@example.org at 3f2a9bc", "identifier", ("ann@example.org", "3f2a9bc")),
        ("pay 1,250.50 for 3", "number", ("1,250.50", "3")),
        ("Then Ann met New York's mayor.", "name", ("Then Ann", "New York's")),
        ("The Hello Yes", "name", ("The Hello Yes",)),
        ("The end", "name", ()),
    ],
)
def test_facts_are_found_by_kind(text: str, kind: str, found: tuple[str, ...]) -> None:
    assert extract_facts(text)[kind] == found  # type: ignore[index]  # a kind


def test_a_fact_of_one_kind_is_none_of_another() -> None:
    found = extract_facts("https://example.org/2026-03-01/x_y")
    assert [kind for kind, facts in found.items() if facts] == ["url"]


def test_inv_37_a_report_says_which_facts_were_kept_and_which_were_lost() -> None:
    found = compare_summary_facts(
        "Now Ann pays 1,250 on 2026-03-01, see https://example.org. Then Bob pays 12.",
        "ann pays 1250 on 2026-03-01.",
    )
    assert found.kept["number"] == ("1,250",)
    assert found.lost["number"] == ("12",)
    assert found.kept["date"] == ("2026-03-01",)
    assert found.lost["url"] == ("https://example.org",)
    assert (found.kept["name"], found.lost["name"]) == (("Ann",), ("Bob",))
    assert found.share == pytest.approx(0.5)


def test_a_fact_stands_in_a_summary_as_a_whole_or_not_at_all() -> None:
    found = compare_summary_facts("12 and Ann", "2012, 12.5 and Hannah")
    assert (found.lost["number"], found.lost["name"]) == (("12",), ("Ann",))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Nothing was left out. Connect a server.", ()),
        ("- **Messages:** all\n- **Summary:** none", ()),
        ('He said "Come" and (Wait) there', ("Come", "Wait")),
        ("He said: “Come”", ()),
        ("Call Eva Lind. Remember Bob!", ("Eva Lind", "Bob")),
        ("Anna lives in Oslo. Now ask Anna.", ("Anna", "Oslo")),
        ("Anna lives in Oslo", ("Oslo",)),
        ("Berg called. We told Anna Berg so.", ("Berg", "Anna Berg")),
        ("The Board met, as the board does; ask the Board.", ()),
        ("we met the Support Team, a team for support", ()),
        ("we went to New York, a new town", ("New York",)),
        ("we saw Anna's car and Bert’s", ("Anna", "Bert")),
        ("hello, I'm Anna", ("Anna",)),
        ("well, I'd go, You’ve said to the Activists'", ("Activists",)),
        ("we saw Dr. Lind and J. Moe", ("Dr", "Lind", "Moe")),
        ("# Oslo\n1. Bergen\n> Voss", ()),
        ("see https://oslo.example in Oslo", ("Oslo",)),
        ("", ()),
    ],
)
def test_a_capital_that_begins_a_sentence_makes_no_name(text: str, names: tuple[str, ...]) -> None:
    assert extract_names(text) == names


def test_words_that_begin_sentences_are_not_lost() -> None:
    found = compare_summary_facts(
        "Nothing helps. Restart the pump, said Eva.", "They restarted it."
    )
    assert found.lost["name"] == ("Eva",)
    assert found.kept["name"] == ()


def test_chinese_facts_stand_between_other_characters() -> None:
    found = compare_summary_facts("会议在3月5日，https://example.org/会", "定于3月5日开会")
    assert found.kept["date"] == ("3月5日",)
    assert found.lost["url"]


def test_the_number_of_a_source_mark_keeps_no_amount() -> None:
    found = compare_summary_facts(
        "Ann pays 131 euros.", "## Facts\n- Ann pays. [#131]\n- [#7, #131; #5-131]"
    )
    assert (found.kept["number"], found.lost["number"]) == ((), ("131",))


def test_an_old_source_mark_may_go() -> None:
    found = compare_summary_facts(
        "- Ann pays 40 euros. [#117, #118][#2–9]", "- Ann pays 40 euros. [#201]"
    )
    assert (found.kept["number"], found.lost["number"]) == (("40",), ())
    assert found.share == 1.0


def test_sources_without_facts_lose_nothing() -> None:
    assert compare_summary_facts("so be it", "").share == 1.0
