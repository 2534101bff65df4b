"""The text of messages as a prompt contained it, with labels for cuts."""

from collections.abc import Sequence

from django.utils.translation import gettext

from chats.models import Message
from chats.prompt.sent_texts import SegmentSources, recreate_message_text
from chats.web.words import cut_words
from contextpolicy.engine.policy.policy import PolicyValues


def get_segment_text(
    message: Message,
    segment: Sequence[object],
    *,
    values: PolicyValues,
    sources: SegmentSources,
) -> tuple[str, Sequence[str]]:
    """Return the text of a message as a segment sent it, and labels for its cuts."""
    cut_to, results_to = segment[4], segment[6]
    sent = recreate_message_text(message, segment, values=values, sources=sources)
    if cut_to is None and results_to is None:
        return sent.text, ()
    limits = [limit if isinstance(limit, int) else None for limit in (cut_to, results_to)]
    words = cut_words(limits[0], limits[1])
    if len(sent.text) < sent.whole:
        rest = gettext("{sent:,} of {whole:,} characters sent")
        words.append(rest.format(sent=len(sent.text), whole=sent.whole))
    return sent.text, words
