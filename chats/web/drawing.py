"""The time from which a page asks for what changed."""

import time

# A view has read its chat before; a page that is told of a change that it shows asks in vain.
MARGIN_MS = 100


def drawing_time() -> int:
    """Return a time, in milliseconds since 1970, before which every change is in what is read."""
    return int(1000 * time.time()) - MARGIN_MS
