"""The statements by which a stream follows its turn."""

from chats.models import Turn
from speed import prepared

# These of sixty columns: every stream reads them when it begins, in silence and at its end.
TURN_COLUMNS = ("status", "attempt", "step", "begun_anew", "partial_text", "error_code")


TURN = prepared.Select(lambda at: Turn.objects.only(*TURN_COLUMNS).filter(pk=at("turn")))


TURN_AND_REPLY = prepared.Select(
    lambda at: (
        Turn.objects.select_related("reply")
        .only(*TURN_COLUMNS, "reply__parts")
        .filter(pk=at("turn"))
    )
)
