"""Queries the word index, in SQLite or PostgreSQL.

SQLite reads the full-text table from the newest text backwards, so the cost depends on the limit
and not on the chat's length. PostgreSQL's index returns all texts with a word at once, and each
must be fetched. Within an id range of one branch, it is therefore queried in parts, newest first.
For a frequent word, the texts themselves are scanned.

Words consist of letters, digits and combining marks, so quoting removes all query syntax. Keys and
full words begin with different characters that no word contains.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models.expressions import RawSQL

# A range of ids of one branch: first and last.
Stretch = tuple[int, int]
# A statement and its values.
Statement = tuple[str, list[Any]]
# The empty condition: texts are selected by their words alone.
ANY: Statement = ("", [])
KEY, FULL = "@", "="
# Maximum rows of one statement, and maximum parts of a statement.
MOST_VALUES = 500
MOST_PARTS = 100
# PostgreSQL reads the texts themselves for a word in at least one of this many texts.
COMMON = 10
# The index contains, as a token that is not a word, the number of the block of 2 ** this many ids
# that a text belongs to.
STRETCH_BITS = 12
INDEXED = (
    "array_to_tsvector(string_to_array(keys || ' ' || words || ' ' || \"full\", ' ')"
    f" || ('#' || (id >> {STRETCH_BITS})::text))"
)


class Text(NamedTuple):
    """An indexed text.

    `words` has its stems and `full` its full words, each separated by spaces. `session` is the seq
    of its session's first message.
    """

    id: int
    words: str
    full: str
    keys: str
    speaker: str
    session: int
    written_at: Any


@dataclass(frozen=True, slots=True)
class Within:
    """The texts to search.

    `keys`: texts have all of these. `either`: texts have one of these, if given.
    `stretches`: the id ranges to search, newest first, all of one chat. `only`: an SQL
    condition that begins with `AND`.
    """

    keys: Sequence[str]
    either: Sequence[str] = ()
    stretches: Sequence[Stretch] | None = None
    only: Statement = ANY


def find_texts_with_word(
    word: str, *, within: Within, most: int, share: float = 0.0, is_beginning: bool = False
) -> list[int]:
    """Return the ids of the newest texts that contain a word, at most `most`.

    `share`: approximate share of texts that contain the word. `is_beginning`: the word is a
    prefix of the words to match.
    """
    stretches = within.stretches
    if stretches is None:
        return query_word_index(word, None, within=within, most=most, is_beginning=is_beginning)
    length = sum(last - first + 1 for first, last in stretches)
    if connection.vendor == "postgresql" and share * length > 2 * most and not is_beginning:
        return list(find_newest_texts(word, share, within=within, most=most))
    found: list[int] = []
    for stretch in stretches:
        if len(found) < most:
            room = most - len(found)
            found += query_word_index(
                word, stretch, within=within, most=room, is_beginning=is_beginning
            )
    return found


def find_texts_in_times(
    times: Sequence[tuple[datetime, datetime]], *, within: Within, most: int
) -> list[int]:
    """Return the ids of the newest texts of some time ranges, at most `most`."""
    adapted = connection.ops.adapt_datetimefield_value
    ranges = " OR ".join(
        ["(chats_searchtext.written_at >= %s AND chats_searchtext.written_at < %s)"] * len(times)
    )
    condition, values = within.only
    ends = [adapted(moment) for each in times for moment in each]
    dated = replace(within, only=(f"{condition} AND ({ranges})", [*values, *ends]))
    found: list[int] = []
    stretches: Sequence[Stretch | None] = [None] if within.stretches is None else within.stretches
    for stretch in stretches:
        if len(found) < most:
            room = most - len(found)
            found += query_word_index("", stretch, within=dated, most=room, is_beginning=False)
    return found


def query_word_index(
    word: str, stretch: Stretch | None, *, within: Within, most: int, is_beginning: bool
) -> list[int]:
    """Return ids of texts with the word from one index query, newest first, at most `most`.

    An empty word matches all texts.
    """
    write = build_sqlite_query if connection.vendor == "sqlite" else build_postgres_query
    return fetch_text_ids(*write(word, stretch, within, most, is_beginning=is_beginning))


def build_sqlite_query(
    word: str,
    stretch: Stretch | None,
    within: Within,
    most: int,
    *,
    is_beginning: bool,
) -> Statement:
    """Return the SQLite query for the newest texts with a word.

    With a condition, CROSS JOIN fixes the order: the word index first, then each text.
    """
    match = [f'full:"{word}" *' if is_beginning else f'words:"{word}"']
    match = [*match * bool(word), *(f'keys:"{key}"' for key in within.keys)]
    if within.either:
        match.append("(" + " OR ".join(f'keys:"{key}"' for key in within.either) + ")")
    condition, values = within.only
    text = " CROSS JOIN chats_searchtext ON chats_searchtext.id = chats_searchtext_words.rowid"
    between = " AND chats_searchtext_words.rowid BETWEEN %s AND %s" if stretch else ""
    return (
        f"SELECT chats_searchtext_words.rowid FROM chats_searchtext_words{text * bool(condition)}"  # noqa: S608  # a condition with places of parameters
        f" WHERE chats_searchtext_words MATCH %s{between}{condition}"
        " ORDER BY chats_searchtext_words.rowid DESC LIMIT %s",
        [" AND ".join(match), *(stretch or ()), *values, most],
    )


def build_postgres_query(
    word: str,
    stretch: Stretch | None,
    within: Within,
    most: int,
    *,
    is_beginning: bool,
) -> Statement:
    """Return the PostgreSQL query for the newest texts with a word."""
    match = [f"'{FULL}{word}':*" if is_beginning else f"'{word}'"]
    match = [*match * bool(word), *(f"'{KEY}{key}'" for key in within.keys)]
    if within.either:
        match.append(f"({build_or_query(KEY + key for key in within.either)})")
    between = " AND id BETWEEN %s AND %s" if stretch else ""
    return build_postgres_select(" & ".join(match), between, list(stretch or ()), most, within.only)


def build_postgres_select(
    match: str, where: str, given: list[Any], most: int, only: Statement
) -> Statement:
    """Return a query of PostgreSQL's index, newest texts first.

    OFFSET 0 keeps the sort out of the inner query, which would otherwise read all texts.
    """
    return (
        f"SELECT id FROM (SELECT id FROM chats_searchtext WHERE {INDEXED} @@ %s::tsquery"  # noqa: S608  # INDEXED is a constant
        f"{where}{only[0]} OFFSET 0) found ORDER BY id DESC LIMIT %s",
        [match, *given, *only[1], most],
    )


def find_newest_texts(word: str, share: float, *, within: Within, most: int) -> Iterator[int]:
    """Yield ids of the newest texts with a word, at most `most`, in growing parts of the ranges."""
    look = scan_text_range if share * COMMON >= 1 else query_text_range
    for first, last in within.stretches or ():
        width = int(1.5 * most / share) + 1
        while last >= first and most > 0:
            begin = max(first, last - width)
            found = look(word, (begin, last), most, within.only)
            yield from found
            most -= len(found)
            last, width = begin - 1, 2 * width


def scan_text_range(word: str, part: Stretch, most: int, only: Statement = ANY) -> list[int]:
    """Return the ids of the newest texts in a range with a word, without using the index."""
    return fetch_text_ids(
        "SELECT id FROM chats_searchtext WHERE id BETWEEN %s AND %s"  # noqa: S608  # places of parameters
        f" AND strpos(' ' || words || ' ', %s) > 0{only[0]} ORDER BY id DESC LIMIT %s",
        [*part, f" {word} ", *only[1], most],
    )


def query_text_range(word: str, part: Stretch, most: int, only: Statement = ANY) -> list[int]:
    """Return the ids of the newest texts in a range with a word, using the index.

    Block tokens restrict the index query to the range. `id + 0` prevents PostgreSQL from
    using the primary key, which would parse the words of every text.
    """
    first, last = (key >> STRETCH_BITS for key in part)
    names = build_or_query(f"#{number}" for number in range(first, last + 1))
    match = f"'{word}' & ({names})"
    return fetch_text_ids(
        *build_postgres_select(match, " AND id + 0 BETWEEN %s AND %s", list(part), most, only)
    )


def build_or_query(words: Iterable[str]) -> str:
    """Return a query for texts with any of the words."""
    return " | ".join(f"'{word}'" for word in words)


def fetch_text_ids(statement: str, values: Sequence[Any]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [key for (key,) in cursor.fetchall()]


def build_id_condition(numbers: Collection[int]) -> Statement:
    if connection.vendor == "sqlite":
        return "IN (SELECT value FROM json_each(%s))", [json.dumps(list(numbers))]
    # Returned as text, because psycopg checks each number of a list for quoting.
    return "= ANY(%s::bigint[])", [f"{{{','.join(map(str, numbers))}}}"]


def pack_values(values: Collection[Any]) -> str:
    """Return numbers or strings as one SQL parameter for `unpack_numbers` or `unpack_texts`."""
    if connection.vendor == "sqlite":
        return json.dumps(list(values))
    # Returned as text, because psycopg checks each number of a list for quoting. Words need
    # quoting.
    inside = (json.dumps(each, ensure_ascii=False) for each in values)
    return f"{{{','.join(inside)}}}"


def unpack_numbers(packed: Any) -> RawSQL:
    """Return a subquery of packed numbers for an `…__in` filter.

    Django would compile each value separately.
    """
    if connection.vendor == "sqlite":
        return _unpack_json(packed)
    return RawSQL("SELECT unnest(%s::bigint[])", [packed])


def unpack_texts(packed: Any) -> RawSQL:
    if connection.vendor == "sqlite":
        return _unpack_json(packed)
    return RawSQL("SELECT unnest(%s::text[])", [packed])


def unpack_keys(packed: Any) -> RawSQL:
    """Return a subquery of UUIDs, packed as hexadecimal strings, for an `…__in` filter."""
    if connection.vendor == "sqlite":
        return _unpack_json(packed)
    return RawSQL("SELECT unnest(%s::uuid[])", [packed])


def _unpack_json(packed: Any) -> RawSQL:
    return RawSQL("SELECT value FROM json_each(%s)", [packed])


def load_texts(keys: Collection[int], *, with_times: bool) -> list[Text]:
    """Return texts by id. `with_times` converts their times; otherwise they are raw.

    Bypasses Django model instances, because creating them takes as long as the whole search.
    """
    if not keys:
        return []
    inside, values = build_id_condition(keys)
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT id, words, "full", keys, speaker, session, written_at'  # noqa: S608  # a place of a parameter
            f" FROM chats_searchtext WHERE id {inside}",
            values,
        )
        found = [Text(*row) for row in cursor.fetchall()]
    if with_times and connection.vendor == "sqlite":
        # Stored without a zone, in UTC.
        return [text._replace(written_at=text.written_at.replace(tzinfo=UTC)) for text in found]
    return found


def add_word_counts(owner_id: int, words: Mapping[str, int]) -> None:
    """Add to a user's text counts per word. Counts that reach zero are not deleted."""
    rows = sorted(words.items())
    with connection.cursor() as cursor:
        for start in range(0, len(rows), MOST_VALUES):
            some = rows[start : start + MOST_VALUES]
            places = ", ".join(["(%s, %s, %s)"] * len(some))
            cursor.execute(
                f"INSERT INTO chats_searchcount (owner_id, word, texts) VALUES {places}"  # noqa: S608  # places of parameters
                " ON CONFLICT (owner_id, word) DO UPDATE"
                " SET texts = chats_searchcount.texts + excluded.texts",
                [value for word, number in some for value in (owner_id, word, number)],
            )
