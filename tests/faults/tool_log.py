"""`python -m tests.faults.tool_log PATH`: a tool server that appends each call to a file.

It has its own process, because a forked child would get its locks, and its list of calls must
survive the callers. It prints its port, and ends with its standard input.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.fakes.tool_server import describe, serving_tools

# Long enough that a caller can be killed during a call.
CALL_SECONDS = 0.2
# A tool with effects, one that may be repeated, and one that needs consent.
TOOLS = [describe("write"), describe("look", idempotentHint=True), describe("send")]


class LoggingCalls(list[dict[str, Any]]):
    """A list of calls that are also written to a file, before their result is sent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, call: dict[str, Any]) -> None:
        """Write a call and flush it."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([call["name"], call["arguments"]["text"]]) + "\n")
        time.sleep(CALL_SECONDS)


def main() -> None:
    """Serve until the standard input ends."""
    with serving_tools() as fake:
        fake.tools = TOOLS
        fake.calls = LoggingCalls(Path(sys.argv[1]))
        sys.stdout.write(f"{fake.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
