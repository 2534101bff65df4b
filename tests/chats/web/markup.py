"""Return the text of a page with normalised white space."""

import re


def tight(html: str) -> str:
    """Take away the white space around tags and at their ends; elsewhere one space is left."""
    return re.sub(r"\s*(<[^>]*?)\s*>\s*", r"\1>", " ".join(html.split()))


def find_action(html: str, button: str) -> str | None:
    """Return the action of the form that contains the button with this id; None if none does."""
    for form in html.split("<form")[1:]:
        if re.search(rf'\sid="{button}"', form.partition("</form>")[0]):
            return str(re.findall(r'\saction="([^"]+)"', form)[0])
    return None


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
