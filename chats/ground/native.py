"""Checks whether a package can load its native libraries, and finds the missing one."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# The loader's message, as in Python's ImportError.
ABSENT = re.compile(r"(?P<library>[\w.+-]+\.so[\w.]*): cannot open shared object file")
# Debian packages of the libraries that our dependencies' wheels do not contain.
PACKAGES = {
    "libatomic.so.1": "libatomic1",
    "libgcc_s.so.1": "libgcc-s1",
    "libgfortran.so.5": "libgfortran5",
    "libgomp.so.1": "libgomp1",
    "libopenblas.so.0": "libopenblas0",
    "libssl.so.3": "libssl3",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
}
SECONDS = 60


@dataclass(frozen=True)
class MissingLibrary:
    """A shared library that a package needs and this machine does not have."""

    name: str

    @property
    def remedy(self) -> str:
        """Instructions for installing the library."""
        package = PACKAGES.get(self.name)
        if package is None:
            return f"Install the system package that contains {self.name}."
        return f"Install it (Debian, Ubuntu: apt install {package})."


def parse_missing_library(message: str) -> MissingLibrary | None:
    """Return the missing library named in an error message of Python or the loader, or None."""
    found = ABSENT.search(message)
    return MissingLibrary(found["library"]) if found else None


def try_import(module: str) -> MissingLibrary | None:
    """Import a module in a subprocess. Return the library whose absence made it fail, or None.

    A subprocess is used because native code may crash the process that loads it. Raises
    TimeoutExpired.
    """
    return try_command([sys.executable, "-c", f"import {module}"])


def try_command(command: Sequence[str]) -> MissingLibrary | None:
    """Run a command. Return the library whose absence made it fail, or None.

    Raises TimeoutExpired after 60 seconds.
    """
    done = subprocess.run(  # noqa: S603  # commands of our own
        command,
        env={**os.environ, "LC_ALL": "C"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return parse_missing_library(done.stderr) if done.returncode else None
