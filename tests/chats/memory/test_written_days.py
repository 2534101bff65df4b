"""Dates of a question are understood as people write them, in several languages."""

from datetime import UTC, datetime

import pytest

from chats.memory.search.days import mask_dates, parse_time_ranges

# A Friday.
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAYS = [
    ("What did we do three days ago?", "11-17"),
    ("What did I say 3 days ago", "11-17"),
    ("two weeks ago", "11-03 11-10"),
    ("2 months ago", "09-06 10-07"),
    ("last Monday", "11-16"),
    ("on Tuesday", "11-17"),
    ("last Friday", "11-13"),
    ("Wednesday last week", "11-11"),
    ("this week", "11-16 11-21"),
    ("this month", "11-01 11-21"),
    ("this morning", "11-20"),
    ("last night", "11-19"),
    ("3天前", "11-17"),
    ("三天前我们聊了什么", "11-17"),
    ("大前天", "11-17"),
    ("前天", "11-18"),
    ("上周三", "11-11"),
    ("上周天气", "11-13 11-20"),
    ("周二", "11-17"),
    ("这周", "11-16 11-21"),
    ("3日前", "11-17"),
    ("先週の水曜日", "11-11"),
    ("3일 전", "11-17"),
    ("vor drei Tagen", "11-17"),
    ("letzten Montag", "11-16"),
    ("am Dienstag", "11-17"),
    ("diese Woche", "11-16 11-21"),
    ("il y a 3 jours", "11-17"),
    ("lundi dernier", "11-16"),
    ("hace tres días", "11-17"),
    ("tre giorni fa", "11-17"),
    ("há três dias", "11-17"),
    ("drie dagen geleden", "11-17"),
    ("три дня назад", "11-17"),
]
DATES = [
    "03.05.2024",
    "3. 5. 2024",
    "3 mai 2024",
    "3. Mai 2024",
    "3 de mayo de 2024",
    "3 maggio 2024",
    "3 мая 2024",
    "2024/05/03",
    "2024年5月3日",
]


@pytest.mark.parametrize(("question", "expected"), DAYS)
def test_a_relative_date_is_one_range(question: str, expected: str) -> None:
    ((begin, end),) = parse_time_ranges(question, at=AT)
    first, _, last = expected.partition(" ")
    assert f"{begin:%m-%d}" == first
    assert f"{end:%m-%d}" == last if last else (end - begin).days == 1


@pytest.mark.parametrize("question", DATES)
def test_a_date_with_a_year_is_one_day(question: str) -> None:
    ranges = parse_time_ranges(f"Termin {question}, was war da?", at=AT)
    assert [f"{begin:%Y-%m-%d} {(end - begin).days}" for begin, end in ranges] == ["2024-05-03 1"]


@pytest.mark.parametrize("question", ["5月3日", "am 3. Mai", "le 3 mai", "el 3 de mayo", "am 3.5."])
def test_a_date_without_a_year_is_a_day_of_each_year(question: str) -> None:
    ranges = parse_time_ranges(question, at=AT)
    assert {f"{begin:%m-%d}" for begin, _ in ranges} == {"05-03"}
    assert AT.year in {begin.year for begin, _ in ranges}


def test_a_date_with_slashes_may_begin_with_either() -> None:
    ranges = parse_time_ranges("05/03/2024", at=AT)
    assert {f"{begin:%Y-%m-%d}" for begin, _ in ranges} == {"2024-05-03", "2024-03-05"}
    assert len(parse_time_ranges("25/03/2024", at=AT)) == 1
    assert len(parse_time_ranges("05/05/2024", at=AT)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Version 1.2.3 of the file",
        "It costs 3.50 or 4.20 euros",
        "The ratio is 1/2",
        "She is 3 years old and has 2 days off",
        "周期表",
        "I ran 5 days in a row",
    ],
)
def test_numbers_are_no_dates(text: str) -> None:
    assert parse_time_ranges(text, at=AT) == []


def test_dates_are_masked() -> None:
    assert mask_dates("What did I buy three days ago?").split() == ["What", "did", "I", "buy", "?"]
