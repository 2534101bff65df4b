"""Print what to install, each package with its version and its files' hashes.

`python scripts/requirements.py` prints what the product runs with, `… test` what its tests need
beside it. Both are parts of constraints.txt, so that pip can demand a hash of every file. The name
of another group prints its tools, with their versions alone: nothing of the product needs them.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any


def wanted(*extras: str) -> list[str]:
    """What pyproject.toml depends on, with the extras that are named."""
    return [*project()["dependencies"], *(line for extra in extras for line in tools(extra))]


def tools(extra: str) -> list[str]:
    """What an optional group adds."""
    return list(project()["optional-dependencies"][extra])


def project() -> dict[str, Any]:
    """The project's own table."""
    table: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    return dict(table["project"])


def locked(*, testing: bool) -> str:
    """The lines of constraints.txt up to the tests' part, or all of them."""
    text = Path("constraints.txt").read_text(encoding="utf-8")
    return text if testing else text.partition("# testing\n")[0]


if __name__ == "__main__":
    group = sys.argv[1] if len(sys.argv) > 1 else ""
    if group in {"", "test"}:
        sys.stdout.write(locked(testing=group == "test"))
    else:
        sys.stdout.write("\n".join(tools(group)) + "\n")
