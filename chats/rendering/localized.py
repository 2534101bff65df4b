"""Fills the words of the product into stored HTML, in the language of the reader.

Stored HTML serves readers of all languages, so the renderer writes placeholders: elements with
classes that only it writes, and the labels of boxes.
"""

import re

from django.utils.html import escape
from django.utils.translation import gettext

# The form in which the sanitizer writes them. It escapes "<" in text, so text cannot match.
IMAGE_HOST = re.compile(r'<span class="image__host">(<bdi>[^<>]*</bdi>)</span>')
IMAGE_TEXT = re.compile(r'<span class="image__text">([^<>]*)</span>')
PLAIN_NOTE = re.compile(r'<p class="plain__note">([0-9]*)</p>')
LABEL = re.compile(r'(<(?:div|span|pre)\b[^<>]* aria-label=")(Table|Formula|Code)"')


def localise_html(html: str) -> str:
    """Return sanitised HTML with its placeholders filled in the active language."""
    labels = {"Table": gettext("Table"), "Formula": gettext("Formula"), "Code": gettext("Code")}

    def label(found: re.Match[str]) -> str:
        return f'{found[1]}{escape(labels[found[2]])}"'

    def image_host(found: re.Match[str]) -> str:
        return escape(gettext("image on {host}")).replace("{host}", found[1])

    def image_text(found: re.Match[str]) -> str:
        return escape(gettext("[image: {words}]")).replace("{words}", found[1])

    html = IMAGE_TEXT.sub(image_text, IMAGE_HOST.sub(image_host, html))
    return PLAIN_NOTE.sub(describe_plain_text, LABEL.sub(label, html))


def describe_plain_text(found: re.Match[str]) -> str:
    """Return the notice above unformatted text. It has a number if the text is too long."""
    if found[1]:
        words = gettext("This text has {n:,} characters; it is shown unformatted.")
        words = words.format(n=int(found[1]))
    else:
        words = gettext("This text is nested too deeply to format; it is shown unformatted.")
    return f'<p class="plain__note">{escape(words)}</p>'
