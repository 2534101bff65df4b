"""The text of a message as a prompt had it, with words for its cuts."""

from collections.abc import Sequence

from chats.models import Message
from chats.prompt.agents import AgentView
from chats.prompt.sent_texts import of_message
from chats.web.words import cut_words, grouped
from contextpolicy.engine.policy import PolicyValues


def text_sent(
    message: Message,
    segment: Sequence[object],
    *,
    values: PolicyValues,
    view: AgentView | None = None,
) -> tuple[str, Sequence[str]]:
    """Return what a segment sent of a message, and by how much it was cut, in words.

    `view`: of the agent to whom it was sent.
    """
    cut_to, results_to = segment[4], segment[6]
    sent = of_message(message, segment, values=values, view=view)
    if cut_to is None and results_to is None:
        return sent.text, ()
    limits = [limit if isinstance(limit, int) else None for limit in (cut_to, results_to)]
    words = cut_words(limits[0], limits[1])
    if len(sent.text) < sent.whole:
        words.append(f"{grouped(len(sent.text))} of {grouped(sent.whole)} characters sent")
    return sent.text, words
