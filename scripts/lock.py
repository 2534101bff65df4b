"""Rewrite constraints.txt with the hash of every file that a pin may be installed from.

`python scripts/lock.py INDEX`, with everything installed: INDEX is the address of a package
index's simple pages. Pins are kept; a changed version is written into the file by hand first.
What the product runs with stands above what only its tests need, because one is installed
without the other.
"""

import re
import sys
import urllib.request
from html import unescape
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from requirements import wanted

LOCK = Path("constraints.txt")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)", re.MULTILINE)
FILE = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"')
# Dependencies may differ between these; the lock serves them all.
ENVIRONMENTS = [
    {"python_full_version": full, "python_version": full.rpartition(".")[0], "sys_platform": name}
    for full in ("3.11.0", "3.11.9", "3.12.0", "3.13.0", "3.14.0")
    for name in ("linux", "darwin")
]


def closure(lines: list[str]) -> set[str]:
    """Every package that these requirements bring along, in any of the environments."""
    names: set[str] = set()
    waiting = [Requirement(line) for line in lines]
    done = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        name = canonicalize_name(requirement.name)
        names.add(name)
        extras = {"", *requirement.extras}
        for line in requires(name):
            inner = Requirement(line)
            if not inner.marker or any(
                inner.marker.evaluate({**environment, "extra": extra})
                for environment in ENVIRONMENTS
                for extra in extras
            ):
                waiting.append(inner)
    return names


def requires(name: str) -> list[str]:
    """What a package depends on; nothing for one that this environment does without."""
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def hashes(index: str, name: str, version: str) -> list[str]:
    """The SHA-256 of each file of a release, sorted; without the ones for Windows."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as page:  # noqa: S310  # the operator's own index
        files = FILE.findall(unescape(page.read().decode()))
    return sorted(digest for file, digest in files if version_of(file) == Version(version))


def version_of(file: str) -> Version | None:
    """The version a file's name states; None for what is not installed from."""
    try:
        if file.endswith(".whl"):
            tags = parse_wheel_filename(file)
            return None if all("win" in tag.platform[:3] for tag in tags[3]) else tags[1]
        return parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def main(index: str) -> None:
    """Write the file anew."""
    pins = {canonicalize_name(n): (n, v) for n, v in PIN.findall(LOCK.read_text(encoding="utf-8"))}
    running = closure(wanted())
    testing = closure(wanted("test")) - running
    missing = sorted((running | testing) - set(pins))
    if missing:
        sys.exit(f"No pin for: {', '.join(missing)}. Add them as name==version first.")
    text = ""
    for title, names in (("running", running), ("testing", testing)):
        text += f"# {title}\n"
        for key in sorted(names):
            name, version = pins[key]
            found = hashes(index, key, version)
            if not found:
                sys.exit(f"The index has no file of {name} {version}.")
            text += " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{h}" for h in found)])
            text += "\n"
    LOCK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
