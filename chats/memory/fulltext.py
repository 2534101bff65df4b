"""Reads the index over the words, in each database's own way; decides nothing.

SQLite walks the full-text table from its newest text back, so its cost follows what is wanted and
not the length of the chat. PostgreSQL's index gives all texts of a word at once, and each of them
has to be fetched: of a word that stands in many, the index is asked for stretch after stretch from
the newest back, and of one in a large share of them the texts themselves are read.

Words are ASCII letters and digits, so quoting them leaves nothing of a query syntax.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db import connection

# A stretch of ids, first and last; of one branch.
Stretch = tuple[int, int]
# A text of the index: its id and its words.
Text = tuple[int, str]
# A statement and its values.
Statement = tuple[str, list[Any]]
# No condition beside the words.
ANY: Statement = ("", [])
# The most rows of one statement, and the most parts that one is put together from.
MOST_VALUES = 500
MOST_PARTS = 100
# For a word that stands in one of so many texts, or in more, PostgreSQL reads the texts themselves.
COMMON = 10
# The index names the stretch of so many bits of ids in which a text stands, by what is no word.
STRETCH_BITS = 12
INDEXED = f"array_to_tsvector(string_to_array(words, ' ') || ('#' || (id >> {STRETCH_BITS})::text))"


def newest(
    words: Mapping[str, float],
    *,
    chat: str,
    stretches: Sequence[Stretch],
    most: int,
    only: Statement = ANY,
) -> list[Text]:
    """Return the texts that hold one of the words, newest first, and no more than are wanted.

    `words`: each with about the share of the texts that hold it. `stretches`: the newest first.
    `only`: one more condition of a text, with an `AND` before it.
    """
    share = min(sum(words.values()), 1.0)
    if connection.vendor == "sqlite":
        parts = [sqlite_part(words, part, most, only) for part in stretches]
    elif share * sum(last - first + 1 for first, last in stretches) <= 2 * most:
        parts = [postgres_part(words, part, chat, most, only) for part in stretches]
    else:
        return list(from_newest(words, share, stretches=stretches, most=most, only=only))
    found: list[Text] = []
    for start in range(0, len(parts), MOST_PARTS):
        some = parts[start : start + MOST_PARTS]
        statement = " UNION ALL ".join(f"SELECT * FROM ({part}) part" for part, _ in some)  # noqa: S608  # parts with places of parameters
        found += selected(statement, [value for _, given in some for value in given])
    return sorted(found, reverse=True)[:most]


def sqlite_part(
    words: Collection[str], part: Stretch, most: int, only: Statement = ANY
) -> Statement:
    """Write the query of the newest texts of some words in one stretch.

    With a condition, CROSS JOIN keeps the order: the words first, then the text of each.
    """
    condition, values = only
    text = " CROSS JOIN chats_searchtext ON chats_searchtext.id = chats_searchtext_words.rowid"
    beside = text if condition else ""
    return (
        "SELECT id, words FROM chats_searchtext WHERE id IN ("  # noqa: S608  # a condition with places of parameters
        f"SELECT chats_searchtext_words.rowid FROM chats_searchtext_words{beside}"
        " WHERE chats_searchtext_words MATCH %s"
        f" AND chats_searchtext_words.rowid BETWEEN %s AND %s{condition}"
        " ORDER BY chats_searchtext_words.rowid DESC LIMIT %s)",
        [" OR ".join(f'"{word}"' for word in words), *part, *values, most],
    )


def postgres_part(
    words: Collection[str], part: Stretch, chat: str, most: int, only: Statement = ANY
) -> Statement:
    """Write the same query for PostgreSQL.

    All the words in one, so that the chat's own long list is walked through once.
    """
    asked = f"'{chat}' & ({either(words)})"
    return postgres_query(asked, "id BETWEEN %s AND %s", part, most, only)


def postgres_query(
    asked: str, where: str, part: Stretch, most: int, only: Statement = ANY
) -> Statement:
    """Write a query of the index, the newest texts first.

    OFFSET 0 keeps the order out of the inner query: for its sake all texts would be read.
    """
    return (
        "SELECT id, words FROM (SELECT id, words FROM chats_searchtext"  # noqa: S608  # INDEXED is a constant
        f" WHERE {INDEXED} @@ %s::tsquery AND {where}{only[0]} OFFSET 0) found"
        " ORDER BY id DESC LIMIT %s",
        [asked, *part, *only[1], most],
    )


def from_newest(
    words: Collection[str],
    share: float,
    *,
    stretches: Sequence[Stretch],
    most: int,
    only: Statement = ANY,
) -> Iterator[Text]:
    """Yield the newest texts of some words, in growing parts of the stretches, until enough."""
    look = looked_through if share * COMMON >= 1 else looked_up
    for first, last in stretches:
        width = int(1.5 * most / share) + 1
        while last >= first and most > 0:
            begin = max(first, last - width)
            found = look(words, (begin, last), most, only)
            yield from found
            most -= len(found)
            last, width = begin - 1, 2 * width


def looked_through(
    words: Collection[str], part: Stretch, most: int, only: Statement = ANY
) -> list[Text]:
    """Read the texts of a part; each word has a space before it: the chat's own is the first."""
    stands = " OR ".join(["strpos(words || ' ', %s) > 0"] * len(words))
    statement = (
        "SELECT id, words FROM chats_searchtext WHERE id BETWEEN %s AND %s"  # noqa: S608  # places of parameters
        f" AND ({stands}){only[0]} ORDER BY id DESC LIMIT %s"
    )
    return selected(statement, [*part, *(f" {word} " for word in words), *only[1], most])


def looked_up(
    words: Collection[str], part: Stretch, most: int, only: Statement = ANY
) -> list[Text]:
    """Ask the index for the texts of a part, which it cuts out by the names of the stretches.

    `id + 0`: by the ids alone PostgreSQL would read the texts and make the words of each anew.
    """
    first, last = (key >> STRETCH_BITS for key in part)
    names = either(f"#{number}" for number in range(first, last + 1))
    asked = f"({either(words)}) & ({names})"
    return selected(*postgres_query(asked, "id + 0 BETWEEN %s AND %s", part, most, only))


def either(words: Iterable[str]) -> str:
    """Write a question for texts with one of the words."""
    return " | ".join(f"'{word}'" for word in words)


def selected(statement: str, values: Sequence[Any]) -> list[Text]:
    """Return the texts that a statement selects."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [(key, words) for key, words in cursor.fetchall()]


def texts(ids: Sequence[int]) -> list[Text]:
    """Return the texts with these ids."""
    if connection.vendor == "sqlite":
        inside, given = "IN (SELECT value FROM json_each(%s))", json.dumps(ids)
    else:
        # As a text: psycopg looks at each number of a list for what has to be quoted.
        inside, given = "= ANY(%s::bigint[])", f"{{{','.join(map(str, ids))}}}"
    return selected(f"SELECT id, words FROM chats_searchtext WHERE id {inside}", [given])  # noqa: S608  # one of two texts above


def count(place_id: int, words: Mapping[str, int]) -> None:
    """Add to the numbers of a branch's texts in which its words stand."""
    rows = sorted(words.items())
    with connection.cursor() as cursor:
        for start in range(0, len(rows), MOST_VALUES):
            some = rows[start : start + MOST_VALUES]
            places = ", ".join(["(%s, %s, %s)"] * len(some))
            cursor.execute(
                f"INSERT INTO chats_searchcount (place_id, word, messages) VALUES {places}"  # noqa: S608  # places of parameters
                " ON CONFLICT (place_id, word) DO UPDATE"
                " SET messages = chats_searchcount.messages + excluded.messages",
                [value for word, number in some for value in (place_id, word, number)],
            )
