"""The words of archived messages, for search. Made from the messages, and thrown away with them."""

from typing import ClassVar

from django.db import models

from chats.models.chats import Branch, Message
from contextpolicy.models.base import Stored

# The lower bits of a text's id are the seq of its message, the upper ones number its branch.
SEQ_BITS = 32


class SearchWords(models.TextField[str, str]):
    """Words in ASCII between spaces, with an index over them (migration `search_places`)."""


class SearchPlace(Stored):
    """The end of what can be searched of a branch's own messages.

    Its id numbers the branch in the index. Whoever changes what can be searched of a branch locks
    its place.
    """

    id = models.BigAutoField(primary_key=True)
    branch = models.OneToOneField(Branch, on_delete=models.CASCADE, related_name="search_place")
    to_seq = models.PositiveBigIntegerField(default=0)
    # The time since which a task is due; moves on while one works. Empty when nothing is to do.
    due_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=models.Q(due_at__isnull=False), name="search_due"
            )
        ]

    def __str__(self) -> str:
        return f"search in {self.branch_id} up to {self.to_seq}"

    def id_at(self, seq: int) -> int:
        """Return the id of the text of this branch's message with a seq."""
        return (self.pk << SEQ_BITS) | seq


class SearchText(Stored):
    """One archived message as search compares it (`chats.memory.words`), plain ASCII words.

    Its first word names the chat: PostgreSQL's index of all chats is one, and a search looks into
    one chat. The ids of a branch are in the order of its messages, so that the newest are found
    without sorting.
    """

    # Always given: by branch and seq. Automatic, so that it is the row's own number in SQLite.
    id = models.BigAutoField(primary_key=True)
    message = models.OneToOneField(Message, on_delete=models.CASCADE, related_name="search_text")
    words = SearchWords()

    def __str__(self) -> str:
        return f"words of {self.message_id}"


class SearchCount(Stored):
    """The number of a branch's searchable messages that hold a word.

    Counting them takes a time that grows with the chat, and each search weighs words by it.
    """

    pk = models.CompositePrimaryKey("place", "word")
    place = models.ForeignKey(SearchPlace, on_delete=models.CASCADE, db_index=False)
    word = models.CharField(max_length=40)
    messages = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.word}: {self.messages}"
