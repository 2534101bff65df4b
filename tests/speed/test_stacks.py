"""Running a function on a separate stack gives the same result as a direct call."""

import inspect
from contextvars import ContextVar
from typing import Any

import pytest

from speed.stacks import run_on_empty_stack

SAID: ContextVar[str] = ContextVar("SAID")


def deep(levels: int) -> int:
    """The depth of a call nested this many levels deeper."""
    return deep(levels - 1) if levels else run_on_empty_stack(lambda: len(inspect.stack()))


def test_the_stack_is_as_deep_from_everywhere(settings: Any) -> None:
    settings.SPEED = True
    assert deep(0) == deep(90) < 20


def test_switched_off_it_is_a_plain_call(settings: Any) -> None:
    settings.SPEED = False
    assert deep(90) == deep(0) + 90


def test_context_and_errors_pass_through(settings: Any) -> None:
    settings.SPEED = True
    SAID.set("here")
    assert run_on_empty_stack(SAID.get) == "here"

    def fail() -> None:
        raise ValueError("said")

    with pytest.raises(ValueError, match="said"):
        run_on_empty_stack(fail)
