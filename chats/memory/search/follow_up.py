"""Adds what was said before to a short question, which is often a follow-up."""

from chats.memory.search.greetings import is_greeting
from chats.memory.search.question import MOST_CHARACTERS, count_question_words
from chats.models import Branch, Message
from chats.record.history import select_path_messages

# A question of fewer words is searched together with the user's previous message.
SHORT_QUESTION = 5


def build_search_question(text: str, *, seq: int | None, branch: Branch) -> str:
    """Return the search text of a question.

    A short question is followed by the previous user message, unless it is a greeting.
    """
    # Longer texts have enough words in their beginning.
    head = text.strip()[:MOST_CHARACTERS]
    if seq is None or is_greeting(head) or count_question_words(head) >= SHORT_QUESTION:
        return text
    earlier = select_path_messages(branch, after=0, before=seq).filter(
        role=Message.Role.USER, excluded=False, erased_at=None
    )
    before = earlier.order_by("-seq").first()
    return f"{text}\n{before.text}" if before else text
