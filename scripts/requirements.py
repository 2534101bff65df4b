"""Print what to install, each package with its version and its files' hashes.

`python scripts/requirements.py` prints what the product runs with, `… test` what its tests need
beside it. Both are parts of constraints.txt, so that pip can demand a hash of every file.
"""

import sys
import tomllib
from pathlib import Path


def wanted(*extras: str) -> list[str]:
    """What pyproject.toml depends on, with the extras that are named."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return lines


def locked(*, testing: bool) -> str:
    """The lines of constraints.txt up to the tests' part, or all of them."""
    text = Path("constraints.txt").read_text(encoding="utf-8")
    return text if testing else text.partition("# testing\n")[0]


if __name__ == "__main__":
    sys.stdout.write(locked(testing="test" in sys.argv[1:]))
