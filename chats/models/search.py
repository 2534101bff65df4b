"""Search index rows of messages and summaries. Deleted together with their source."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from chats.models.chats import Branch, Message
from chats.models.compactions import Compaction
from contextpolicy.models.base import Stored

# Lower bits of a text's ID: the message's seq. Upper bits: the number of its branch.
SEQ_BITS = 32
# The active summary of a branch sorts after all its messages.
SUMMARY_SEQ = (1 << SEQ_BITS) - 1


class SearchWords(models.TextField[str, str]):
    """Space-separated words with a full-text index (migration `search_of_a_person`)."""


class SearchPlace(Stored):
    """Indexing position of a branch: the last message in the search index.

    The row's ID numbers the branch in the index. Lock this row before changing indexed texts.
    """

    id = models.BigAutoField(primary_key=True)
    branch = models.OneToOneField(Branch, on_delete=models.CASCADE, related_name="search_place")
    to_seq = models.PositiveBigIntegerField(default=0)
    # Version of the word analysis (`chats.memory.search.words`). Older branches are reindexed.
    version = models.PositiveSmallIntegerField(default=0)
    # The policy excludes the original messages from every search: nothing is indexed.
    closed = models.BooleanField(default=False)
    # Time since which indexing is due. Postponed while a worker runs. Empty: up to date.
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
        """Return the search text ID of this branch's message with the given seq."""
        return (self.pk << SEQ_BITS) | seq


class SearchText(Stored):
    """A message, or the active summary of a branch, as indexed for search.

    IDs follow the order of messages within a branch. Therefore the newest hits need no
    sorting, and neighbours are found without a lookup.
    """

    # Always set explicitly from branch and seq. AutoField makes it SQLite's rowid.
    id = models.BigAutoField(primary_key=True)
    message = models.OneToOneField(
        Message, null=True, blank=True, on_delete=models.CASCADE, related_name="search_text"
    )
    summary = models.ForeignKey(
        Compaction, null=True, blank=True, on_delete=models.CASCADE, related_name="search_texts"
    )
    # Owner, chat and role: `@o7 @c… @ruser`. No word contains the sign.
    keys = models.TextField()
    # Stems, and full words each prefixed with a sign.
    words = SearchWords()
    full = models.TextField()
    # Case-folded name of the role. Empty: the owner or the chat's model.
    speaker = models.CharField(max_length=200, blank=True, default="")
    # Seq of the first message of the session. One hour without messages starts a new session.
    session = models.PositiveBigIntegerField(default=0)
    written_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"words of {self.message_id or self.summary_id}"


class SearchCount(Stored):
    """Number of a user's searchable texts that contain a word.

    The row of the empty word counts all texts. Searches use these numbers to weigh words. They are
    stored because counting on demand would become slower as chats grow. They are per user, so other
    users' texts do not affect a search.
    """

    pk = models.CompositePrimaryKey("owner", "word")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    word = models.CharField(max_length=40)
    texts = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.word}: {self.texts}"
