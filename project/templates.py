"""Loads the project's templates without white space that only makes them readable.

Templates are indented, and a condition has its own line. This white space would be a
fifth of a chat page.
"""

import re

from django.template import Origin
from django.template.loaders import filesystem

INDENTATION = re.compile(r"^[ \t]+", re.MULTILINE)
# Except translation tags: they stand for words, which the line end separates from the next ones.
LONE_TAG = re.compile(
    r"^(\{%(?! *(?:translate|endblocktranslate)\b)(?:(?!%\}).)*%\})\n", re.MULTILINE
)


class Loader(filesystem.Loader):
    """Removes indentation, and line ends of lines with only one template tag.

    White space between words is kept. A `<pre>` in a template would lose its indentation; the
    content of variables keeps it.
    """

    def get_contents(self, origin: Origin) -> str:
        return LONE_TAG.sub(r"\1", INDENTATION.sub("", super().get_contents(origin)))
