"""One pass over a text finds the same facts as the definition, in linear time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.facts import TEXTS, growth
from contextpolicy.engine.text import facts
from contextpolicy.engine.text.claims import strip_source_marks
from tests.engine import facts_by_definition as defined

# Characters of runs, and characters that end them.
SIGNS = "aBcDe019 _-+./@:`,'’月年日\nÉéß#[]"
WORDS = st.sampled_from(
    [
        "2026-03-01", "14:30", "3. May", "may 3rd, 2024", "24.12.2026", "1,250.50", "1,250", "1250",
        "https://a.example/b?c=1.", "www.a.example", "ann@b.org", "a/b.c", "/b.c/d", "src/app.py",
        "get_user_id", "getUser", "JIRA-42", "AB12-34x", "AB1١", "v1.2.3", "3f2a9bc", "`git log`",
        "`.`", "Ann", "ann", "New York's", "The", "The Board", "Dr. Lind", "he said:", "12", "2012",
        "12.5", "é", "Éa", "3月5日", "2024年3月1日", "会议", "。", "__", "a@b.org-c@d.org/e.f",
    ]
)  # fmt: skip
RUNS = st.text(alphabet=SIGNS, max_size=60)
PROSE = st.lists(WORDS | RUNS, max_size=25).flatmap(
    lambda words: st.sampled_from(["", " ", ". "]).map(lambda between: between.join(words))
)


@settings(max_examples=600, deadline=None)
@given(PROSE)
def test_one_walk_finds_the_facts_and_names_of_the_definition(text: str) -> None:
    plain = strip_source_marks(text)
    assert facts.extract_facts(text) == defined.facts_in(plain)
    assert facts.extract_names(text) == defined.names_in(plain)


@settings(max_examples=600, deadline=None)
@given(PROSE, PROSE, st.booleans())
def test_one_walk_keeps_and_loses_the_facts_of_the_definition(
    sources: str, summary: str, joins: bool
) -> None:
    if joins:
        summary = f"{summary}{sources[len(sources) // 3 :]}"
    expected = defined.retention(strip_source_marks(sources), strip_source_marks(summary))
    assert facts.compare_summary_facts(sources, summary) == expected


@pytest.mark.parametrize("kind", sorted(TEXTS))
def test_ten_times_the_text_takes_about_ten_times_as_long(kind: str) -> None:
    # Ten times, with a margin for a busy machine; quadratic time would be a hundred.
    assert growth(TEXTS[kind], size=10_000, times=10) < 30
