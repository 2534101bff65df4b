"""Reads the index over the words, in each database's own way; decides nothing.

SQLite walks the full-text table from its newest text back, so its cost follows what is wanted and
not the length of a chat. PostgreSQL's index gives all texts of a word at once, and each of them has
to be fetched: within a stretch of one branch the index is asked part after part from the newest
back, and for a word in a large share of the texts these themselves are read.

Words are letters, digits and marks of letters, so quoting them leaves nothing of a query syntax. A
key has a sign before it that stands in no word, a full word another.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, NamedTuple

from django.db import connection

# A stretch of ids, first and last; of one branch.
Stretch = tuple[int, int]
# A statement and its values.
Statement = tuple[str, list[Any]]
# No condition beside the words.
ANY: Statement = ("", [])
KEY, FULL = "@", "="
# The most rows of one statement, and the most parts that one is put together from.
MOST_VALUES = 500
MOST_PARTS = 100
# For a word that stands in one of so many texts, or in more, PostgreSQL reads the texts themselves.
COMMON = 10
# The index names the stretch of so many bits of ids in which a text stands, by what is no word.
STRETCH_BITS = 12
INDEXED = (
    "array_to_tsvector(string_to_array(keys || ' ' || words || ' ' || \"full\", ' ')"
    f" || ('#' || (id >> {STRETCH_BITS})::text))"
)


class Text(NamedTuple):
    """A text of the index."""

    id: int
    words: str
    full: str
    keys: str
    speaker: str
    session: int
    written_at: Any


@dataclass(frozen=True, slots=True)
class Within:
    """The texts that are looked through.

    `keys`: they have all of these; `either`: one of these, if any is given. `stretches`, the newest
    first: only these ids, all of one chat. `only`: a condition of a text, with an `AND` before it.
    """

    keys: Sequence[str]
    either: Sequence[str] = ()
    stretches: Sequence[Stretch] | None = None
    only: Statement = ANY


def holders(
    word: str, *, within: Within, most: int, share: float = 0.0, is_beginning: bool = False
) -> list[int]:
    """Return the newest texts that hold a word, by their ids, and no more than are wanted.

    `share`: about the share of the texts that hold it. `is_beginning`: words that begin with it.
    """
    stretches = within.stretches
    if stretches is None:
        return query(word, None, within=within, most=most, is_beginning=is_beginning)
    length = sum(last - first + 1 for first, last in stretches)
    if connection.vendor == "postgresql" and share * length > 2 * most and not is_beginning:
        return list(from_newest(word, share, within=within, most=most))
    found: list[int] = []
    for stretch in stretches:
        if len(found) < most:
            room = most - len(found)
            found += query(word, stretch, within=within, most=room, is_beginning=is_beginning)
    return found


def query(
    word: str, stretch: Stretch | None, *, within: Within, most: int, is_beginning: bool
) -> list[int]:
    """Ask the index once."""
    write = sqlite_query if connection.vendor == "sqlite" else postgres_query
    return ids(*write(word, stretch, within, most, is_beginning=is_beginning))


def sqlite_query(
    word: str,
    stretch: Stretch | None,
    within: Within,
    most: int,
    *,
    is_beginning: bool,
) -> Statement:
    """Write the query of the newest texts of a word.

    With a condition, CROSS JOIN keeps the order: the word first, then the text of each.
    """
    match = [f'full:"{word}" *' if is_beginning else f'words:"{word}"']
    match += [f'keys:"{key}"' for key in within.keys]
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


def postgres_query(
    word: str,
    stretch: Stretch | None,
    within: Within,
    most: int,
    *,
    is_beginning: bool,
) -> Statement:
    """Write the same query for PostgreSQL."""
    match = [f"'{FULL}{word}':*" if is_beginning else f"'{word}'"]
    match += [f"'{KEY}{key}'" for key in within.keys]
    if within.either:
        match.append(f"({either(KEY + key for key in within.either)})")
    between = " AND id BETWEEN %s AND %s" if stretch else ""
    return postgres_asks(" & ".join(match), between, list(stretch or ()), most, within.only)


def postgres_asks(
    match: str, where: str, given: list[Any], most: int, only: Statement
) -> Statement:
    """Write a query of PostgreSQL's index, the newest texts first.

    OFFSET 0 keeps the order out of the inner query: for its sake all texts would be read.
    """
    return (
        f"SELECT id FROM (SELECT id FROM chats_searchtext WHERE {INDEXED} @@ %s::tsquery"  # noqa: S608  # INDEXED is a constant
        f"{where}{only[0]} OFFSET 0) found ORDER BY id DESC LIMIT %s",
        [match, *given, *only[1], most],
    )


def from_newest(word: str, share: float, *, within: Within, most: int) -> Iterator[int]:
    """Yield the newest texts of a word, in growing parts of the stretches, until enough."""
    look = looked_through if share * COMMON >= 1 else looked_up
    for first, last in within.stretches or ():
        width = int(1.5 * most / share) + 1
        while last >= first and most > 0:
            begin = max(first, last - width)
            found = look(word, (begin, last), most, within.only)
            yield from found
            most -= len(found)
            last, width = begin - 1, 2 * width


def looked_through(word: str, part: Stretch, most: int, only: Statement = ANY) -> list[int]:
    """Read the texts of a part."""
    return ids(
        "SELECT id FROM chats_searchtext WHERE id BETWEEN %s AND %s"  # noqa: S608  # places of parameters
        f" AND strpos(' ' || words || ' ', %s) > 0{only[0]} ORDER BY id DESC LIMIT %s",
        [*part, f" {word} ", *only[1], most],
    )


def looked_up(word: str, part: Stretch, most: int, only: Statement = ANY) -> list[int]:
    """Ask the index for the texts of a part, which it cuts out by the names of the stretches.

    `id + 0`: by the ids alone PostgreSQL would read the texts and make the words of each anew.
    """
    first, last = (key >> STRETCH_BITS for key in part)
    names = either(f"#{number}" for number in range(first, last + 1))
    match = f"'{word}' & ({names})"
    return ids(*postgres_asks(match, " AND id + 0 BETWEEN %s AND %s", list(part), most, only))


def either(words: Iterable[str]) -> str:
    """Write a question for texts with one of the words."""
    return " | ".join(f"'{word}'" for word in words)


def ids(statement: str, values: Sequence[Any]) -> list[int]:
    """Return the ids that a statement selects."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [key for (key,) in cursor.fetchall()]


def listed(numbers: Collection[int]) -> Statement:
    """Write the condition that an id is one of these numbers."""
    if connection.vendor == "sqlite":
        return "IN (SELECT value FROM json_each(%s))", [json.dumps(list(numbers))]
    # As a text: psycopg looks at each number of a list for what has to be quoted.
    return "= ANY(%s::bigint[])", [f"{{{','.join(map(str, numbers))}}}"]


def texts(keys: Collection[int], *, with_times: bool) -> list[Text]:
    """Return texts by their ids; `with_times`: their times as such, else as the database has them.

    Django's own rows take as long again as the whole search, and most of it for the times.
    """
    if not keys:
        return []
    inside, values = listed(keys)
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


def count(owner_id: int, words: Mapping[str, int]) -> None:
    """Add to the numbers of a person's texts in which words stand; drop what stands in none."""
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
