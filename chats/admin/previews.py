"""One side of a preview of a policy as the pages show it."""

from typing import Any

from chats.admin.words import DUE, LEFT_OUT
from chats.simulation.preview import Side


def side_told(side: Side) -> dict[str, Any]:
    """Return one side with its reasons in words."""
    return {
        "side": side,
        "left_out": [
            (LEFT_OUT.get(reason, reason), count) for reason, count in side.left_out.items()
        ],
        "parts": [(name, tokens) for name, tokens in side.parts.items() if tokens],
        "due": DUE.get(side.due, side.due[1]),
    }
