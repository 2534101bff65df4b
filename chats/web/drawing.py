"""Timestamps from which an open page requests changes."""

import time

# Small margin: the page was read just before, and a larger one would cause needless requests.
MARGIN_MS = 100


def get_render_time_ms() -> int:
    """Return the current time in ms since 1970.

    A page that is rendered after this time includes all earlier changes.
    """
    return int(1000 * time.time()) - MARGIN_MS
