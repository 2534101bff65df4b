"""Prepared statements for every gateway request."""

from django.db.models import Count

from chats.models import GatewayNode, Receipt, Turn
from chats.models.turns import UNFINISHED
from speed import prepared

UNFINISHED_OF_KEY = prepared.Select(
    lambda at: (
        Turn.objects.filter(status__in=UNFINISHED, api_key=at("key"))
        .order_by()
        .values("api_key")
        .annotate(number=Count("pk"))
        .values_list("number")
    )
)


NODES = prepared.Select(
    lambda at: GatewayNode.objects.filter(
        branch=at("branch"), seq__gt=at("above"), seq__lte=at("last")
    ).values_list("seq", "item")
)


ENDED_TURN = prepared.Select(lambda at: Turn.objects.select_related("reply").filter(pk=at("turn")))


# The call that produced the reply; parallel and later calls are left out.
LAST_RECEIPT = prepared.Select(
    lambda at: (
        Receipt.objects.only("segments", "compaction_need", "left_out")
        .filter(turn=at("turn"), step__gt=Receipt.AFTERWARDS, call__gt=Receipt.BESIDE)
        .order_by("-attempt", "-step", "-call")[:1]
    )
)
