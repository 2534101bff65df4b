"""Adds earlier messages to a short question, which is often a follow-up."""

import re
from collections.abc import Iterator

from django.db.models import QuerySet

from chats.memory.search.greetings import is_greeting
from chats.memory.search.question import MOST_CHARACTERS, count_question_words
from chats.models import Branch, Message
from chats.record.history import select_path_messages

# A question of fewer words is searched together with the user's previous messages.
SHORT_QUESTION = 5
# Maximum number of previous messages that are added, and that are read to find them.
MOST_ADDED, MOST_READ = 4, 12
# Maximum number of names that are added from the last reply.
MOST_NAMES = 8
# A capitalised word that does not begin a sentence, or a word with a digit.
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)(?<!\n)\b(?:[^\W\d_a-zß-öø-ÿ]\w{2,}|\w*\d\w*)")


def build_search_question(text: str, *, seq: int | None, branch: Branch) -> str:
    """Return the search text of a question.

    A short question is followed by the previous user messages, the newest first, until one of them
    is longer. Greetings and agreements are left out. If the messages name nothing, the names of the
    last reply follow. A greeting is returned unchanged.
    """
    # Longer texts have enough words in their beginning.
    head = text.strip()[:MOST_CHARACTERS]
    if seq is None or is_greeting(head) or count_question_words(head) >= SHORT_QUESTION:
        return text
    rows = select_path_messages(branch, after=0, before=seq).filter(excluded=False, erased_at=None)
    added = list(_list_previous_texts(rows))
    together = "\n".join([text, *added])
    has_case = together.upper() != together.lower()
    if added and has_case and not any(_NAME.search(each) for each in (text, *added)):
        reply = rows.filter(role=Message.Role.ASSISTANT).order_by("-seq").first()
        names = dict.fromkeys(_NAME.findall(reply.text[:MOST_CHARACTERS])) if reply else {}
        together = "\n".join([together, " ".join(list(names)[:MOST_NAMES])]).rstrip()
    return together


def _list_previous_texts(rows: QuerySet[Message]) -> Iterator[str]:
    """Yield the texts of the user's previous messages up to one that is not a short question."""
    number = 0
    for row in rows.filter(role=Message.Role.USER).order_by("-seq")[:MOST_READ]:
        if is_greeting(row.text):
            continue
        yield row.text
        number += 1
        if number == MOST_ADDED or count_question_words(row.text[:MOST_CHARACTERS]) >= (
            SHORT_QUESTION
        ):
            return
