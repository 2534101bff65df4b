"""The index over the words, asked in each database's own way. Reads and counts; decides nothing.

SQLite walks the full-text table from its newest text back, so what it takes follows what is wanted
and not the length of the chat. PostgreSQL's index gives all texts of a word at once: of a word that
stands in a large share of them the newest are found sooner in the texts themselves.

Words are ASCII letters and digits, so quoting them leaves nothing of a query syntax.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from django.db import connection

# A stretch of ids, first and last; of one branch.
Stretch = tuple[int, int]
# Rows of one statement.
MOST_VALUES = 500
# PostgreSQL looks through the texts themselves for a word of every so many texts, or more of them.
COMMON = 10


def newest(
    words: Mapping[str, float], *, chat: str, stretches: Sequence[Stretch], most: int
) -> dict[str, list[int]]:
    """The ids of at most so many texts that hold each word, newest first.

    `words`: each with about the share of the texts that hold it. `stretches`: the newest first.
    """
    if connection.vendor == "sqlite":
        return listed(
            words, [sqlite_part(word, part, most) for word in words for part in stretches]
        )
    rare = [word for word, share in words.items() if share * COMMON < 1]
    parts = [postgres_part(word, part, chat, most) for word in rare for part in stretches]
    found = listed(words, parts)
    for word in words.keys() - set(rare):
        found[word] = list(looked_through(word, words[word], stretches=stretches, most=most))
    return found


def sqlite_part(word: str, part: Stretch, most: int) -> tuple[str, list[Any]]:
    """The newest texts of a word in one stretch."""
    return (
        "SELECT * FROM (SELECT %s AS word, rowid AS id FROM chats_searchtext_words"
        " WHERE chats_searchtext_words MATCH %s AND rowid BETWEEN %s AND %s"
        " ORDER BY rowid DESC LIMIT %s)",
        [word, f'"{word}"', *part, most],
    )


def postgres_part(word: str, part: Stretch, chat: str, most: int) -> tuple[str, list[Any]]:
    """The same. OFFSET 0 keeps the order out of it: for its sake all texts would be read."""
    return (
        "(SELECT %s AS word, id FROM (SELECT id FROM chats_searchtext"
        " WHERE array_to_tsvector(string_to_array(words, ' ')) @@ %s::tsquery"
        " AND id BETWEEN %s AND %s OFFSET 0) found ORDER BY id DESC LIMIT %s)",
        [word, f"'{chat}' & '{word}'", *part, most],
    )


def listed(words: Collection[str], parts: Sequence[tuple[str, list[Any]]]) -> dict[str, list[int]]:
    """The ids of each word, of all the parts."""
    found: dict[str, list[int]] = {word: [] for word in words}
    with connection.cursor() as cursor:
        for start in range(0, len(parts), MOST_VALUES // 2):
            some = parts[start : start + MOST_VALUES // 2]
            values = [value for _, given in some for value in given]
            cursor.execute(" UNION ALL ".join(statement for statement, _ in some), values)
            for word, key in cursor.fetchall():
                found[word].append(key)
    return found


def looked_through(
    word: str, share: float, *, stretches: Sequence[Stretch], most: int
) -> Iterator[int]:
    """The newest texts of a common word, in growing parts of the stretches until there are enough.

    Each word has a space before it: the chat's own word is the first.
    """
    statement = (
        "SELECT id FROM chats_searchtext WHERE id BETWEEN %s AND %s"
        " AND strpos(words || ' ', %s) > 0 ORDER BY id DESC LIMIT %s"
    )
    for first, last in stretches:
        width = int(1.5 * most / share) + 1
        while last >= first and most > 0:
            begin = max(first, last - width)
            with connection.cursor() as cursor:
                cursor.execute(statement, [begin, last, f" {word} ", most])
                found = [key for (key,) in cursor.fetchall()]
            yield from found
            most -= len(found)
            last, width = begin - 1, 2 * width


def texts(ids: Sequence[int]) -> list[tuple[int, str]]:
    """The ids and words of texts."""
    if connection.vendor == "sqlite":
        inside, given = "IN (SELECT value FROM json_each(%s))", json.dumps(ids)
    else:
        inside, given = "= ANY(%s)", list(ids)  # type: ignore[assignment]  # psycopg's array
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, words FROM chats_searchtext WHERE id {inside}", [given])  # noqa: S608  # one of two texts above
        return [(key, words) for key, words in cursor.fetchall()]


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
