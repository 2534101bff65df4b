"""The words of archived messages, for search. Made from the messages, and thrown away with them."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from chats.models.conversation import Message
from contextpolicy.models.base import Stored


class SearchWords(models.TextField[str, str]):
    """Words in ASCII between spaces, with an index over them (migration `search_texts`)."""


@SearchWords.register_lookup
class Has(models.Lookup[Any]):
    """`words__has=("chat", ["a", "b"])`: the rows that hold the first and one of the others."""

    lookup_name = "has"
    prepare_rhs = False

    def get_db_prep_lookup(
        self, value: Any, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[str | int, ...]]:
        """Words are ASCII letters and digits, so quoting them leaves nothing of a query syntax."""
        every, some = value
        if connection.vendor == "postgresql":
            found = " | ".join(f"'{word}'" for word in some)
            return "%s::tsquery", (f"'{every}' & ({found})",)
        found = " OR ".join(f'"{word}"' for word in some)
        return "%s", (f'"{every}" AND ({found})',)

    def as_postgresql(
        self, compiler: Any, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        """The expression of the index, so that it is used."""
        column, before = self.process_lhs(compiler, connection)
        query, given = self.process_rhs(compiler, connection)
        return f"array_to_tsvector(string_to_array({column}, ' ')) @@ {query}", (*before, *given)

    def as_sqlite(
        self, compiler: Any, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        """By the full-text table beside this one, which has the same row ids."""
        query, given = self.process_rhs(compiler, connection)
        table = compiler.quote_name_unless_alias(self.lhs.alias)
        found = "SELECT rowid FROM chats_searchtext_words WHERE chats_searchtext_words MATCH"
        return f"{table}.id IN ({found} {query})", tuple(given)


class SearchText(Stored):
    """One archived message as search compares it (`chats.memory.words`).

    Its first word names the chat: the index of all chats is one, and a search looks into one chat.
    """

    id = models.BigAutoField(primary_key=True)
    message = models.OneToOneField(Message, on_delete=models.CASCADE, related_name="search_text")
    words = SearchWords()

    def __str__(self) -> str:
        return f"words of {self.message_id}"
