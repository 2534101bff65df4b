"""The render time of a page, from which an open page requests changes."""

from chats.ground import bus_clock

# Small margin: the page was read just before, and a larger one would cause needless requests.
MARGIN_MS = 100


def get_render_time_ms() -> int:
    """Return the current Unix time of the live bus in milliseconds, less a small margin.

    A page rendered after this call includes all changes whose notices were sent before the returned
    time.
    """
    return bus_clock.CLOCK.read_time_ms() - MARGIN_MS
