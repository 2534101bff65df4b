"""A valid summary with its sources, for the validation of generated summaries."""

import re

from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.acceptance import Verdict, check_generated_summary
from tests.engine.engine_builders import COUNTER, message

VALID_SUMMARY = """## Facts
- Ann pays 40 euros a month [#2]
## Preferences
## Decisions
- We take the train [#4]
## Open items
## Done items
"""
SOURCES = [message(n, "Ann pays 40 euros a month and we take the train. " * 3) for n in range(1, 7)]


def validate_summary(text: str = VALID_SUMMARY, **facts: object) -> Verdict:
    """Validate a summary of `SOURCES`; `facts` replace the defaults."""
    defaults: dict[str, object] = {
        "sources": SOURCES,
        "previous": None,
        "finish": "stop",
        "has_tool_calls": False,
        "reasoning_only": False,
        "values": PolicyValues(),
        "counter": COUNTER,
    }
    return check_generated_summary(text, **{**defaults, **facts})  # type: ignore[arg-type]  # facts of a test


def cut_out_section(text: str, name: str) -> str:
    """Return the lines of a section of a summary."""
    return re.split(r"^## .*$", text.partition(f"## {name}\n")[2], maxsplit=1, flags=re.M)[0]
