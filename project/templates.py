"""Loads the project's templates without whitespace that is only for readability.

Templates are indented, and a condition has its own line. This whitespace would be a fifth of a chat
page.
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
    """Removes indentation, and the line breaks of lines with only one template tag.

    Whitespace between words is kept. A `<pre>` in a template would lose its indentation; the
    content of variables keeps it.
    """

    def get_contents(self, origin: Origin) -> str:
        return LONE_TAG.sub(r"\1", INDENTATION.sub("", super().get_contents(origin)))
