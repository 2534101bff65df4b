"""Reads and submits pages of the administration as a browser does."""

from html.parser import HTMLParser
from typing import Any

from django.test import Client

EVENT_HANDLERS = "on"


class Page(HTMLParser):
    """A page's form fields with values, and content that a strict content policy refuses."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.fields: dict[str, list[str]] = {}
        self.inline: list[str] = []
        self.urls: list[str] = []
        self.text = ""
        self._area: str | None = None
        self._select: str | None = None
        self._script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.inline += [f"{tag} {name}" for name in given if name == "style" or name[:2] == "on"]
        self.urls += [given[name] for name in ("src", "href") if name in given]
        self._script = tag == "script" and "src" not in given
        if tag == "style":
            self.inline.append("style element")
        self._field(tag, given)

    def _field(self, tag: str, given: dict[str, str]) -> None:
        name = given.get("name", "")
        if tag == "input" and name:
            kind = given.get("type", "text")
            if kind in {"checkbox", "radio"} and "checked" not in given:
                return
            if kind not in {"submit", "button"}:
                value = given.get("value", "on" if kind == "checkbox" else "")
                self.fields.setdefault(name, []).append(value)
        elif tag == "textarea" and name:
            self._area = name
            self.fields[name] = [""]
        elif tag == "select" and name:
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            self.fields.setdefault(self._select, []).append(given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        self._area = None if tag == "textarea" else self._area
        self._select = None if tag == "select" else self._select
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._area:
            # A browser drops the line break that Django puts after the opening tag.
            self.fields[self._area] = [data.removeprefix("\r\n").removeprefix("\n")]
        if self._script and data.strip():
            self.inline.append("script element")
        self.text += f" {data}"

    @property
    def words(self) -> str:
        """The visible text with single spaces."""
        return " ".join(self.text.split())


def opened(client: Client, url: str) -> Page:
    """Open a page that must answer 200."""
    answer = client.get(url)
    assert answer.status_code == 200, answer.status_code
    return Page(answer.content.decode())


def message_codes(answer: Any) -> list[str]:
    """Return the codes of the messages on a page of the administration, in order."""
    return [message.extra_tags for message in answer.context["messages"]]


def submitted(client: Client, url: str, **changes: Any) -> Any:
    """Open a form, change some fields and submit it; return the response. None removes a field."""
    fields: dict[str, Any] = opened(client, url).fields
    for name in ("q", "csrfmiddlewaretoken"):
        fields.pop(name, None)
    fields.update(changes)
    return client.post(url, {name: value for name, value in fields.items() if value is not None})
