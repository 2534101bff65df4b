"""Commands in the documents of the repository."""

import re
import shlex
from pathlib import Path

SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def text_of(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def commands_of(page: Path) -> list[list[str]]:
    """The commands in the shell blocks of a page, as words without comments."""
    lines = "\n".join(SHELL.findall(text_of(page))).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]
