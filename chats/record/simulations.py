"""Says which counts of chats wait for a worker, and sends their tasks.

The counts themselves are in `chats.simulation.radius`; the sweep asks here.
"""

from django.db.models import Q

from chats.ground import leases, queue
from contextpolicy.models import BlastRadius


def enqueue_due() -> int:
    """Send the task of each count that is open and that nobody works on; return how many."""
    rows = BlastRadius.objects.filter(free(), state=BlastRadius.State.COUNTING)
    found = list(rows.values_list("pk", flat=True))
    for radius_id in found:
        queue.enqueue(queue.COUNT_RADIUS, radius_id=radius_id)
    return len(found)


def free() -> Q:
    """Return the condition of rows that nobody works on."""
    return Q(lease_until=None) | leases.ended()
