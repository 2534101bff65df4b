"""What a page says, however its template is laid out."""

import re


def tight(html: str) -> str:
    """Take away the white space around tags and at their ends; elsewhere one space is left."""
    return re.sub(r"\s*(<[^>]*?)\s*>\s*", r"\1>", " ".join(html.split()))
