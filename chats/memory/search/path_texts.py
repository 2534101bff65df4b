"""Reads the texts of a branch's messages for excerpts, as plain values in a few queries."""

import uuid
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from django.db.models import QuerySet

from chats.memory.search import searchable_text
from chats.memory.search.fulltext import pack_values, unpack_numbers
from chats.memory.search.marking import Mark
from chats.memory.search.references import format_iso_day, get_speaker_name
from chats.memory.search.sentences import extend_to_sentences
from chats.models import Branch, Message
from chats.record import history, statements
from chats.record.sendable import build_sendable_filter
from contextpolicy.engine.history.truncation import cut_text
from contextpolicy.engine.messages.tokens import MESSAGE_OVERHEAD
from contextpolicy.engine.policy.policy import PolicyValues
from speed import placeholders, prepared


class PathText(NamedTuple):
    """A message on a path: its id, text, speaker and day, and its token count if known.

    The day of an undated message is empty. `hidden`: the part of the text that the prompt lacks, if
    the prompt shortens the message.
    """

    message_id: uuid.UUID
    text: str
    speaker: str = ""
    day: str = ""
    tokens: int | None = None
    hidden: Mark | None = None


# A path has as many pieces as the branches that it crosses, so their number has no limit.
@lru_cache(maxsize=64)
def build_text_query(pieces: int) -> prepared.Select[Message]:
    """Return the prepared query for messages with the given `seqs` on a path.

    `pieces`: the number of branches on the path.
    """

    def build(at: placeholders.At) -> QuerySet[Message]:
        places = [
            (at(branch), at(above), at(last))
            for branch, above, last in statements.list_piece_parameters(pieces)
        ]
        rows = statements.filter_by_pieces(places).filter(
            build_sendable_filter(), seq__in=unpack_numbers(at("seqs"))
        )
        columns = ("seq", "pk", "parts", "token_count", "speaker", "created_at", "undated")
        return rows.order_by().values_list(*columns)

    return prepared.Select(build)


class PathTexts:
    """The texts of a branch's messages before a seq, read in groups.

    Messages whose seq is in `sent` are left out. Those in `cut` are shortened in the prompt as the
    policy `values` specify.
    """

    def __init__(
        self,
        branch: Branch,
        *,
        before: int,
        sent: Collection[int],
        cut: Collection[int],
        values: PolicyValues,
        zone: str = "",
    ) -> None:
        self.pieces = history.list_path_pieces(branch, after=0, before=before)
        self.sent = frozenset(sent)
        self.cut = frozenset(cut)
        self.values = values
        self.zone = zone
        # The messages by seq. None: missing, or not sendable.
        self.known: dict[int, PathText | None] = {}

    def read(self, seqs: Iterable[int]) -> None:
        """Read the messages that have not been read yet, in one query."""
        missing = set(seqs) - self.known.keys() - self.sent
        if not missing or not self.pieces:
            return
        self.known |= dict.fromkeys(missing)
        rows = build_text_query(len(self.pieces)).tuples(
            **statements.name_values(self.pieces), seqs=pack_values(missing)
        )
        for seq, message_id, parts, tokens, speaker, at, undated in rows:
            text = "\n".join(searchable_text.collect_searchable_texts(parts))
            is_text = [part["type"] for part in parts] == ["text"]
            # The stored count is that of the text alone only if the message has no other parts.
            if tokens is not None and is_text:
                tokens -= MESSAGE_OVERHEAD
            else:
                tokens = None
            day = format_iso_day(None if undated else at, zone=self.zone)
            # Several parts are cut separately, so positions in the joined text would differ.
            hidden = self.find_hidden_part(text) if is_text and seq in self.cut else None
            self.known[seq or 0] = PathText(
                message_id, text, get_speaker_name(speaker), day, tokens, hidden
            )

    def find_hidden_part(self, text: str) -> Mark | None:
        """Return the sentences of a text that the prompt does not contain in full, or None."""
        limit = self.values.max_chars_per_message
        made = cut_text(text, limit=limit, style=self.values.cut_style) if limit else None
        if made is None or not made.removed:
            return None
        return extend_to_sentences(text, made.at, made.at + made.removed)

    def get(self, seq: int) -> PathText | None:
        """Return a message that has been read, or None."""
        return self.known.get(seq)
