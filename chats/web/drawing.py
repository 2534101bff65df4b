"""The render time of a page, from which an open page requests changes."""

import time

# Small margin: the page was read just before, and a larger one would cause needless requests.
MARGIN_MS = 100


def get_render_time_ms() -> int:
    """Return the current Unix time in milliseconds, less a small margin.

    A page rendered after this call includes all changes before the returned time.
    """
    return int(1000 * time.time()) - MARGIN_MS
