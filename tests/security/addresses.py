"""Every URL of the product, read from its resolver, so that no list can miss one."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
GAP = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True, slots=True)
class Route:
    """One pattern of the resolver, from the root."""

    text: str

    @property
    def gaps(self) -> list[str]:
        """The names between angle brackets, in order."""
        return GAP.findall(self.text)

    def filled(self, values: Mapping[str, object]) -> str:
        """The URL with these values; a missing value is replaced by its name."""
        return "/" + GAP.sub(lambda gap: str(values.get(gap[1], gap[1])), self.text)

    @property
    def admin_model(self) -> str:
        """`app_model` of a page of the administration, or an empty string."""
        found = re.match(r"admin/(\w+)/(\w+)/", self.text)
        return f"{found[1]}_{found[2]}" if found else ""


def routes() -> list[Route]:
    """Every route. A regular expression is represented by a URL that it matches."""
    return [Route(plain(text)) for text in patterns(get_resolver().url_patterns)]


def patterns(entries: list[URLPattern | URLResolver], *, before: str = "") -> Iterator[str]:
    """The patterns of a resolver with their prefix."""
    for entry in entries:
        text = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from patterns(entry.url_patterns, before=text)
        else:
            yield text


def plain(pattern: str) -> str:
    """The pattern; for a regular expression a URL that it matches."""
    text = re.sub(r"\(\?P<\w+>([^|)]*)[^)]*\)", r"\1", pattern)
    return text.replace("^", "").replace("$", "").replace(".*", "nowhere")
