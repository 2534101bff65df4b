"""Loads the project's templates as they are sent, without what serves only their readers.

Templates are indented, and a condition stands on a line of its own. Sent as written, that would be
a fifth of the page of a chat.
"""

import re

from django.template import Origin
from django.template.loaders import filesystem

INDENTATION = re.compile(r"^[ \t]+", re.MULTILINE)
LONE_TAG = re.compile(r"^(\{%(?:(?!%\}).)*%\})\n", re.MULTILINE)


class Loader(filesystem.Loader):
    """Leaves out indentation, and the ends of lines that hold one template tag and nothing else.

    The words of a template keep the white space between them. What a template puts into a `<pre>`
    itself would lose its indentation; what variables bring there keeps it.
    """

    def get_contents(self, origin: Origin) -> str:
        """Read a template."""
        return LONE_TAG.sub(r"\1", INDENTATION.sub("", super().get_contents(origin)))
