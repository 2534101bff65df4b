"""Prepared statements for following a turn."""

from chats.models import Turn
from speed import prepared

# Seven of sixty columns: each stream reads them at its start, in silence and at its end.
TURN_COLUMNS = (
    "status",
    "attempt",
    "step",
    "begun_anew",
    "partial_text",
    "error_code",
    "awaits_consent",
)
# The columns for viewers that receive the model's reasoning.
WITH_THOUGHTS = (*TURN_COLUMNS, "partial_reasoning")


TURN = prepared.Select(lambda at: Turn.objects.only(*TURN_COLUMNS).filter(pk=at("turn")))


TURN_AND_THOUGHTS = prepared.Select(
    lambda at: Turn.objects.only(*WITH_THOUGHTS).filter(pk=at("turn"))
)


TURN_AND_REPLY = prepared.Select(
    lambda at: (
        Turn.objects.select_related("reply")
        .only(*TURN_COLUMNS, "reply__parts")
        .filter(pk=at("turn"))
    )
)


TURN_REPLY_AND_THOUGHTS = prepared.Select(
    lambda at: (
        Turn.objects.select_related("reply")
        .only(*WITH_THOUGHTS, "reply__parts")
        .filter(pk=at("turn"))
    )
)
