"""Finds dates that a question gives relative to its own day: "three days ago", "last Monday"."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

Range = tuple[datetime, datetime]
# The words for 1 to 12; several words for a number are separated by "|".
_NUMBERS = """\
a|an|one two|couple+of three|few four five six seven eight nine ten eleven twelve
ein|eine|einem|einer|einen zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
un|une deux trois quatre cinq six sept huit neuf dix onze douze
un|una|uno dos tres cuatro cinco seis siete ocho nueve diez once doce
un|una due tre quattro cinque sei sette otto nove dieci undici dodici
um|uma dois|duas três quatro cinco seis sete oito nove dez onze doze
een|één twee drie vier vijf zes zeven acht negen tien elf twaalf
один|одну два|две три четыре пять шесть семь восемь девять десять одиннадцать двенадцать
一 二|两|兩 三 四 五 六 七 八 九 十 十一 十二
한|하루 두 세 네 다섯 여섯 일곱 여덟 아홉 열 열한 열두
"""
NUMBERS = {
    word.replace("+", " "): number
    for line in _NUMBERS.splitlines()
    for number, words in enumerate(line.split(), start=1)
    for word in words.split("|")
}
# By unit: the days between two of them, the words, and those of scripts without spaces.
_UNITS = {
    "day": "days?|tage?n?|jours?|d[ií]as?|giorn[oi]|dag(?:en)?|дн(?:я|ей)|день|天|日|일",
    "week": "weeks?|wochen?|semaines?|semanas?|settiman[ae]|wek?en|week|недел[юиь]|周|週間?|주일?|"
    "(?:个|個)?(?:星期|礼拜|禮拜)",
    "month": "months?|monate?n?|mois|mes(?:es)?|mes[ei]|mês|maand(?:en)?|месяц(?:а|ев)?|"
    "(?:个|個|か|ヶ|カ)月|달|개월",
    "year": "years?|jahre?n?|ans?|années?|años?|ann[oi]|anos?|jaar|год(?:а)?|лет|年|년",
}
_UNIT = "|".join(f"(?P<{name}>{words})" for name, words in _UNITS.items())
_NUMBER = "|".join(sorted(NUMBERS, key=len, reverse=True))
_COUNT = rf"(?P<count>\d{{1,3}}|{_NUMBER})"
_AGO = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_COUNT} (?:of )?(?:{_UNIT}) (?:ago|fa|geleden|назад|atrás)\b",
        rf"\b(?:vor|il y a|hace|há|faz|قبل) (?:etwa |environ )?{_COUNT} (?:{_UNIT})\b",
        rf"(?<![\d十]){_COUNT} ?(?:{_UNIT})(?:之?前| ?전)",
    )
]
# The days from the middle of a range to its ends: "two weeks ago" is not meant exactly.
_AROUND = {"day": (1, 0), "week": (7, 3), "month": (30, 15), "year": (365, 182)}
_WEEKDAYS = """\
monday tuesday wednesday thursday friday saturday sunday
montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag
lundi mardi mercredi jeudi vendredi samedi dimanche
lunes martes miércoles jueves viernes sábado domingo
lunedì martedì mercoledì giovedì venerdì sabato domenica
maandag dinsdag woensdag donderdag vrijdag zaterdag zondag
понедельник вторник среду четверг пятницу субботу воскресенье
一 二 三 四 五 六 日|天(?!气|氣)
月 火 水 木 金 土 日
"""
_NAMES = [[each.split("|") for each in line.split()] for line in _WEEKDAYS.splitlines()]
WEEKDAYS = {
    word.partition("(")[0]: number
    for line in _NAMES
    for number, words in enumerate(line)
    for word in words
}
_SPELLED = "|".join(word for line in _NAMES[:7] for words in line for word in words)
_CHINESE = "|".join(word for words in _NAMES[7] for word in words)
_OF_LAST_WEEK = re.compile(
    rf"\b(?P<a>{_SPELLED})(?: of)? last week\b"
    rf"|上(?:个|個)?(?:周|週|星期|礼拜|禮拜)(?P<b>{_CHINESE})|先週の?(?P<c>[月火水木金土日])曜",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(
    r"\b(?:last|on|past|since|letzten|am|vorigen|vergangenen|seit|el|le|afgelopen|vorige|op|в|во"
    rf"|прошл\w+) (?P<a>{_SPELLED})\b"
    rf"|\b(?P<d>{_SPELLED}) (?:dernier|passé|pasado|scors[oa]|passad[oa])\b"
    rf"|(?<![上下个個])(?:这|這|本)?(?:周|週|星期|礼拜|禮拜)(?P<b>{_CHINESE})|(?P<c>[月火水木金土日])曜",
    re.IGNORECASE,
)
_CURRENT = re.compile(
    r"(?P<day>\bthis (?:morning|afternoon|evening)\b|\btonight\b|\bce (?:matin|soir)\b"
    r"|\bcet après-midi\b|\besta (?:mañana|tarde|noche)\b|\bstamattina\b|\bstasera\b"
    "|今早|今晚|今朝|今夜)"
    r"|(?P<yesterday>\blast night\b|昨晚|昨夜)|(?P<three>大前天)"
    r"|(?P<week>\bthis week\b|\bdiese[rn]? Woche\b|\bcette semaine\b|\besta semana\b"
    r"|\bquesta settimana\b|\bdeze week\b|\bна этой неделе\b"
    "|(?:这|這|本)(?:个|個)?(?:周|週|星期|礼拜|禮拜)(?![一二三四五六日天])"
    "|今週|이번 ?주|هذا الأسبوع)"
    r"|(?P<month>\bthis month\b|\bdiese[nm]? Monat\b|\bce mois\b|\beste mes\b|\bquesto mese\b"
    r"|\beste mês\b|\bdeze maand\b|\bв этом месяце\b|(?:这|這|本)(?:个|個)?月|今月|이번 ?달)"
    r"|(?P<year>\bthis year\b|\bdieses Jahr\b|\bin diesem Jahr\b|\bcette année\b|\beste año\b"
    r"|\bquest[’']anno\b|\beste ano\b|\bdit jaar\b|\bв этом году\b|今年|올해)",
    re.IGNORECASE,
)


class RelativeDate(NamedTuple):
    """A date in a question: the positions of its words and the days that it means."""

    start: int
    end: int
    days: Range


def find_relative_dates(question: str, *, at: datetime) -> Iterator[RelativeDate]:
    """Yield the dates that a question gives relative to its own day."""
    today = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    for pattern in _AGO:
        for found in pattern.finditer(question):
            yield RelativeDate(*found.span(), _get_range_ago(found, today))
    last_week = list(_OF_LAST_WEEK.finditer(question))
    for found in last_week:
        back = today.weekday() + 7 - _get_weekday(found)
        yield RelativeDate(*found.span(), get_days(today, back=back, length=1))
    for found in _WEEKDAY.finditer(mask_matches(question, last_week)):
        # Questions are about the past: the same weekday as today was a week ago.
        back = (today.weekday() - _get_weekday(found)) % 7 or 7
        yield RelativeDate(*found.span(), get_days(today, back=back, length=1))
    lengths = {
        "day": (0, 1),
        "yesterday": (1, 1),
        "three": (3, 1),
        "week": (today.weekday(), today.weekday() + 1),
        "month": (today.day - 1, today.day),
        "year": ((today - today.replace(month=1, day=1)).days,) * 2,
    }
    for found in _CURRENT.finditer(question):
        back, length = lengths[found.lastgroup or ""]
        length += found.lastgroup == "year"
        yield RelativeDate(*found.span(), get_days(today, back=back, length=length))


def mask_matches(text: str, found: Iterable[re.Match[str] | RelativeDate]) -> str:
    """Return a text with some of its parts replaced by spaces."""
    for each in found:
        start, end = each.span() if isinstance(each, re.Match) else (each.start, each.end)
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return text


def get_days(today: datetime, *, back: int, length: int) -> Range:
    """Return the days from `back` days ago. Sums of days keep the clock time of a clock change."""
    return today - timedelta(days=back), today - timedelta(days=back - length)


def _get_range_ago(found: re.Match[str], today: datetime) -> Range:
    written = found["count"].casefold()
    count = int(written) if written.isdecimal() else NUMBERS[written]
    days, around = next(_AROUND[name] for name in _AROUND if found[name])
    return get_days(today, back=count * days + around, length=2 * around + 1)


def _get_weekday(found: re.Match[str]) -> int:
    return WEEKDAYS[next(text for text in found.groups() if text).casefold()]
