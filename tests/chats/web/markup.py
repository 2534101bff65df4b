"""Return the text of a page with normalised white space."""

import re


def tight(html: str) -> str:
    """Take away the white space around tags and at their ends; elsewhere one space is left."""
    return re.sub(r"\s*(<[^>]*?)\s*>\s*", r"\1>", " ".join(html.split()))


def described(html: str) -> dict[str, str]:
    """Say for each control that is described by other parts by which; each must be there."""
    found = {}
    for tag in re.findall(r"<(?:input|select|textarea)[^>]* aria-describedby=[^>]*>", html):
        name, parts = re.findall(r' name="([^"]+)"', tag)[0], re.findall(r'edby="([^"]+)"', tag)[0]
        for part in parts.split():
            if html.count(f' id="{part}"') != 1:
                raise AssertionError(f"{name} names {part}, which is there not once")
        found[name] = parts
    return found
