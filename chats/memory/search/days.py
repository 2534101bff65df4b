"""Finds the dates that a question mentions, using fixed rules."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from chats.memory.search.relative_days import find_relative_dates, mask_matches

Range = tuple[datetime, datetime]
_MONTHS = "january february march april may june july august september october november december"
MONTHS = {name[:3]: number for number, name in enumerate(_MONTHS.split(), start=1)}
_MONTH = (
    "(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
# The names of the months in other languages, in the form that follows a day.
_FOREIGN = """\
januar februar märz april mai juni juli august september oktober november dezember
janvier février mars avril mai juin juillet août septembre octobre novembre décembre
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro
januari februari maart april mei juni juli augustus september oktober november december
января февраля марта апреля мая июня июля августа сентября октября ноября декабря
январе феврале марте апреле мае июне июле августе сентябре октябре ноябре декабре
"""
FOREIGN_MONTHS = {
    name: number
    for line in _FOREIGN.splitlines()
    for number, name in enumerate(line.split(), start=1)
}
_OTHER = f"(?P<month>{'|'.join(sorted(FOREIGN_MONTHS, key=len, reverse=True))})"
_DAY = "(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
_YEAR = "(?P<year>(?:19|20)[0-9]{2})"
# The first match at a position counts. A month's name alone must follow a preposition, because
# "may" and "march" are also other words.
_DATES = re.compile(
    "|".join(
        pattern.replace("(?P<", f"(?P<{letter}_")
        for letter, pattern in {
            "a": rf"\b{_YEAR}-(?P<number>[01]?[0-9])-{_DAY}\b",
            "b": rf"{_YEAR}年(?:(?P<number>[01]?[0-9])月)?(?:{_DAY}日)?",
            "c": rf"\b{_DAY}(?: of)? {_MONTH},? {_YEAR}\b",
            "d": rf"\b{_MONTH} {_DAY},? {_YEAR}\b",
            "e": rf"\b{_MONTH},? {_YEAR}\b",
            "f": rf"\b{_DAY}(?: of)? {_MONTH}\b",
            "g": rf"\b{_MONTH} {_DAY}\b",
            "h": rf"\b(?:in|since|during|of|early|late|mid) {_MONTH}\b(?!,? [0-9])",
            "j": rf"(?<![\d年])(?P<number>[01]?[0-9])月{_DAY}(?:日|号|號)",
            "k": rf"\b{_DAY}\. ?(?P<number>[01]?[0-9])\. ?{_YEAR}\b",
            "l": rf"\b(?:am|vom|bis|seit|zum|ab|den|dem) {_DAY}\. ?(?P<number>[01]?[0-9])\.(?!\d)",
            "m": rf"\b{_DAY}\.?(?: de)? {_OTHER}(?:,? (?:de |del )?{_YEAR})?\b",
            "n": rf"\b{_OTHER}(?: de| del)? {_YEAR}\b",
            "o": rf"\b(?:im|seit|anfang|ende|en|depuis|desde|nel|em|в) {_OTHER}\b",
            "p": rf"\b(?P<first>[0-3]?[0-9])/(?P<second>[0-3]?[0-9])/{_YEAR}\b",
            "q": rf"\b{_YEAR}/(?P<number>[01]?[0-9])/{_DAY}\b",
            "i": rf"\b(?:in|since|during|of) {_YEAR}\b",
        }.items()
    ),
    re.IGNORECASE,
)
# Phrases for a past day or span. French "hier" alone is left out: in German it means "here".
_PHRASES = {
    "today": (
        r"\b(?:today|heute|aujourd[’']hui|hoy|oggi|hoje|vandaag|сегодня)\b"
        r"|今天|今日|오늘|اليوم(?!\w)"
    ),
    "before_yesterday": (
        r"\b(?:(?:the )?day before yesterday|vorgestern|avant-hier|anteayer|antes de ayer|antier"
        r"|(?:l|dell|all)[’']altro ieri|anteontem"
        r"|eergisteren|позавчера)\b|(?<!大)前天|一昨日|おととい|그저께|أول (?:من )?أمس(?!\w)"
    ),
    "yesterday": (
        r"(?<!before )\b(?:yesterday|gestern|[du][’']hier|hier (?:soir|matin|après-midi)"
        r"|(?<!ante)(?<!antes de )ayer|(?<!altro )ieri"
        r"|ontem|gisteren|вчера)\b|昨天|昨日|어제|(?<!أول )(?<!أول من )أمس(?!\w)"
    ),
    "week": (
        r"\blast week\b|\b(?:letzte[nr]?|vorige[nr]?|vergangene[nr]?) Woche\b|\bla semaine "
        r"(?:dernière|passée)\b|\bla semana pasada\b|\bla settimana scorsa\b|\bna semana passada\b"
        r"|\b(?:vorige|afgelopen) week\b|\bна прошлой неделе\b|上(?:个|個)?(?:周|週|星期|礼拜|禮拜)"
        "|先週|지난 ?주(?!제)|الأسبوع الماضي"
    ),
    "month": (
        r"\blast month\b|\b(?:letzten|vorigen|vergangenen) Monat\b|\ble mois (?:dernier|passé)\b"
        r"|\bel mes pasado\b|\bil mese scorso\b|\bno mês passado\b|\b(?:vorige|afgelopen) maand\b"
        r"|\bв прошлом месяце\b|上(?:个|個)?月|先月|지난 ?달|الشهر الماضي"
    ),
    "year": (
        r"\blast year\b|\b(?:letztes|voriges|vergangenes|im letzten|im vergangenen) Jahr\b"
        r"|\bl[’']an(?:née)? (?:dernier|dernière|passée?)\b|\bel año pasado\b|\bl[’']anno scorso\b"
        r"|\bno ano passado\b|\b(?:vorig|afgelopen) jaar\b|\bв прошлом году\b"
        r"|去年(?![轻輕])|작년|العام الماضي"
    ),
}
_AGO = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in _PHRASES.items()),
    re.IGNORECASE,
)
# Days from the beginning of the range to today, and days in the range.
_LENGTHS = {
    "today": (0, 1),
    "yesterday": (1, 1),
    "before_yesterday": (2, 1),
    "week": (7, 7),
    "month": (31, 31),
    "year": (366, 366),
}
# Without a year, a date matches in the year of the question and in this many years before it.
YEARS = 10


def parse_time_ranges(question: str, *, at: datetime) -> list[Range]:
    """Return the time ranges that a question mentions, relative to `at`. The ends are exclusive.

    `at` is aware; its time zone says when a day begins. A day of a clock change has 23 or 25 hours.
    """
    relative = list(find_relative_dates(question, at=at))
    found = [each.days for each in relative]
    question = mask_matches(question, relative)
    for match in _DATES.finditer(question):
        parts = {name[2:]: text for name, text in match.groupdict().items() if text}
        found += expand_date_ranges(parts, at=at)
    for match in _AGO.finditer(question):
        found.append(parse_relative_range(match.lastgroup or "", at=at))
    return found


def mask_dates(question: str) -> str:
    """Return a question with its dates and phrases for past days replaced by spaces."""
    at = datetime(2000, 1, 3, tzinfo=UTC)
    question = mask_matches(question, list(find_relative_dates(question, at=at)))
    for pattern in (_DATES, _AGO):
        question = mask_matches(question, list(pattern.finditer(question)))
    return question


def expand_date_ranges(parts: dict[str, str], *, at: datetime) -> Iterator[Range]:
    """Yield the ranges of a date. A date without a year yields one for each of several years.

    "03/05/2024" yields two: it is 3 May or 5 March.
    """
    if "first" in parts:
        one, other, of_year = parts["first"], parts["second"], parts["year"]
        yield from expand_date_ranges({"day": one, "number": other, "year": of_year}, at=at)
        if one != other:
            yield from expand_date_ranges({"day": other, "number": one, "year": of_year}, at=at)
        return
    name = parts.get("month", "").lower()
    month = int(parts.get("number", 0)) or FOREIGN_MONTHS.get(name, 0)
    month = month or MONTHS.get(name[:3], 0)
    day = int(parts.get("day", 0))
    years = [int(parts["year"])] if "year" in parts else range(at.year - YEARS, at.year + 1)
    for year in years:
        try:
            first = datetime(year, month or 1, day or 1, tzinfo=at.tzinfo)
        except ValueError:
            continue
        if day:
            yield first, first + timedelta(days=1)
        elif month:
            yield first, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=at.tzinfo)
        else:
            yield first, datetime(year + 1, 1, 1, tzinfo=at.tzinfo)


def parse_relative_range(phrase: str, *, at: datetime) -> Range:
    """Return the range of a phrase, such as `yesterday` or `month`, relative to the question."""
    # Sums of a time and days keep the clock time, also over a clock change.
    today = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    back, length = _LENGTHS[phrase]
    return today - timedelta(days=back), today - timedelta(days=back - length)
