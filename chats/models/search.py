"""The words of messages and summaries, for search. Made from them, and thrown away with them."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from chats.models.chats import Branch, Message
from chats.models.compactions import Compaction
from contextpolicy.models.base import Stored

# The lower bits of a text's id are the seq of its message, the upper ones number its branch.
SEQ_BITS = 32
# The text of the summary in force on a branch stands after all its messages.
SUMMARY_SEQ = (1 << SEQ_BITS) - 1


class SearchWords(models.TextField[str, str]):
    """Words between spaces, with an index over them (migration `search_of_a_person`)."""


class SearchPlace(Stored):
    """The end of what can be searched of a branch's own messages.

    Its id numbers the branch in the index. Whoever changes what can be searched of a branch locks
    its place.
    """

    id = models.BigAutoField(primary_key=True)
    branch = models.OneToOneField(Branch, on_delete=models.CASCADE, related_name="search_place")
    to_seq = models.PositiveBigIntegerField(default=0)
    # The version of the words of its texts (`chats.memory.words`); of an older one all are due.
    version = models.PositiveSmallIntegerField(default=0)
    # The policy keeps the originals out of every search: nothing of the branch is indexed.
    closed = models.BooleanField(default=False)
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
    """A message, or the summary in force on a branch, as search compares it.

    The ids of a branch are in the order of its messages, so that the newest are found without
    sorting, and neighbours without reading.
    """

    # Always given: by branch and seq. Automatic, so that it is the row's own number in SQLite.
    id = models.BigAutoField(primary_key=True)
    message = models.OneToOneField(
        Message, null=True, blank=True, on_delete=models.CASCADE, related_name="search_text"
    )
    summary = models.ForeignKey(
        Compaction, null=True, blank=True, on_delete=models.CASCADE, related_name="search_texts"
    )
    # Whose it is, and in which chat: `@o7 @c…`. The sign stands in no word.
    keys = models.TextField()
    # Stems, and full words each with a sign before it.
    words = SearchWords()
    full = models.TextField()
    # The name of the role that spoke, folded; empty for the owner and the chat's model.
    speaker = models.CharField(max_length=200, blank=True, default="")
    # The seq at which the talk began that it belongs to, an hour of silence before it.
    session = models.PositiveBigIntegerField(default=0)
    written_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"words of {self.message_id or self.summary_id}"


class SearchCount(Stored):
    """The number of a person's searchable texts that hold a word; of all under the empty word.

    Counting them takes a time that grows with the chats, and each search weighs words by it. By
    person: nobody's texts move what another finds.
    """

    pk = models.CompositePrimaryKey("owner", "word")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    word = models.CharField(max_length=40)
    texts = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.word}: {self.texts}"
