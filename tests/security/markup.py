"""Parses a page as a browser does: its elements and attributes, and any active content."""

from html.parser import HTMLParser

from chats.rendering.sanitize import TAGS
from tests.support.allowed_markup import ALLOWED_ATTRIBUTES

# Strings that become active if they are not escaped; each would set a mark named pwn.
HOSTILE = (
    "<script>pwn()</script>",
    '"><svg onload=pwn()><pwn-element pwn-attribute>',
    "'><img src=x onerror=pwn()>",
    "</title></textarea></template><script src=//pwn.example></script>",
    "<div hx-post=/chats/1/delete hx-trigger=load pwn-attribute>x</div>",
    "<style>*{background:url(//pwn.example)}</style>",
    "<a href=javascript:pwn()>x</a> [x](javascript:pwn()) ![x](https://pwn.example/x.png)",
    "{{ pwn }}{% pwn %} --></script><iframe srcdoc=pwn>",
    "\n\nevent: done\ndata: pwn\n\n",
)
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
ADDRESSES = {"href", "src", "action", "hx-get", "hx-post", "sse-connect", "formaction", "data-url"}
OWN = ("/", "#", "?", "../")


class Page(HTMLParser):
    """Parses HTML; active content that is not the product's is in `wrong`."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.wrong: list[str] = []
        # The elements outside of rendered texts, in order: two pages of one structure are equal.
        self.outline: list[tuple[str, tuple[str, ...]]] = []

    @property
    def is_in_a_text(self) -> bool:
        """Return True below an element in which htmx is disabled."""
        return any(disables for _, disables in self.open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check one element."""
        names = tuple(name for name, _ in attrs)
        self.judge(tag, dict(attrs))
        if self.is_in_a_text:
            self.judge_text(tag, names)
        else:
            # The running reply contains the product's containers; its blocks are disabled.
            kinds = set((dict(attrs).get("class") or "").split())
            if kinds & {"prose", "block"} and not {"hx-disable", "sse-swap"} & set(names):
                self.wrong.append(f"a text that htmx reads: {kinds}")
            self.outline.append((tag, names))
        if tag not in VOID:
            self.open.append((tag, "hx-disable" in names))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element that is closed at once."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """Close the element and the open elements inside it."""
        while self.open:
            if self.open.pop()[0] == tag:
                break

    def handle_data(self, data: str) -> None:
        """Check text outside of elements."""
        if self.open and self.open[-1][0] in {"script", "style"} and data.strip():
            self.wrong.append(f"inline {self.open[-1][0]}: {data[:80]}")

    def judge(self, tag: str, attrs: dict[str, str | None]) -> None:
        """Reject handlers, styles, foreign addresses and everything that came from a text."""
        for name, value in attrs.items():
            if "pwn" in tag + name or name.startswith(("on", "hx-on", "style", "srcdoc")):
                self.wrong.append(f"{tag} {name}")
            is_link = tag == "a" and (value or "").startswith(("https://", "http://", "mailto:"))
            if name in ADDRESSES and value and not value.startswith(OWN) and not is_link:
                self.wrong.append(f"{tag} {name}={value}")
            if name in ADDRESSES and (value or "").startswith("//"):
                self.wrong.append(f"{tag} {name}={value}")
        if tag in {"iframe", "object", "embed", "base", "frame"} or "pwn" in tag:
            self.wrong.append(tag)
        if tag == "script" and "src" not in attrs and attrs.get("type") != "application/json":
            self.wrong.append("script without src")

    def judge_text(self, tag: str, names: tuple[str, ...]) -> None:
        """Allow only the sanitizer's elements and the page's folding in a rendered text."""
        own = {"details", "summary", "svg", "use"}
        is_ours = tag in own or any(open_tag in own for open_tag, _ in self.open)
        if not is_ours and (tag not in TAGS or set(names) - ALLOWED_ATTRIBUTES):
            self.wrong.append(f"in a text: {tag} {names}")
        if any(name.startswith(("hx-", "sse-", "data-")) for name in names):
            self.wrong.append(f"in a text: {tag} {names}")


def read(html: str) -> Page:
    """Parse a page completely."""
    page = Page()
    page.feed(html)
    page.close()
    return page
