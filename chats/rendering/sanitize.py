"""The one sanitizer: what may be in a message's HTML, and nothing else.

It runs after the Markdown renderer, which writes no raw HTML, so either of the two may fail
without a live element reaching a page. Attributes that htmx or a browser would act on (hx-*,
sse-*, on*, style, id, name, form, srcdoc) are simply not in the list.
"""

import nh3

HEADINGS = ("h3", "h4", "h5", "h6")
TEXT = ("p", "blockquote", "ul", "ol", "table", *HEADINGS)

TAGS = {
    *("a", "bdi", "br", "button", "code", "div", "em", "figcaption", "figure", "hr", "li", "pre"),
    *("s", "span", "strong", "tbody", "td", "th", "thead", "tr"),
    *TEXT,
}
CLASSES = {
    "button": {"btn", "btn--quiet", "btn--s", "end", "code__copy"},
    "div": {"table-wrap", "plain"},
    "figcaption": {"code__head"},
    "figure": {"code"},
    "p": {"plain__note"},
    "pre": {"code__body"},
    "span": {"k", "s", "m", "c", "f", "gi", "gd", "link__host"},
    "table": {"table"},
    "td": {"n"},
    "th": {"n"},
}
VALUES = {
    **{tag: {"dir": {"auto"}} for tag in TEXT},
    "button": {"type": {"button"}},
    "div": {"tabindex": {"0"}, "role": {"group"}, "aria-label": {"Table"}, "dir": {"auto"}},
    "pre": {"tabindex": {"0"}, "aria-label": {"Code"}},
    "th": {"scope": {"col"}},
}
CLEANER = nh3.Cleaner(
    tags=TAGS,
    attributes={"a": {"href"}, "ol": {"start"}},
    allowed_classes=CLASSES,
    tag_attribute_values=VALUES,
    set_tag_attribute_values={"a": {"target": "_blank"}},
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
    link_rel="noopener noreferrer nofollow ugc",
    clean_content_tags={"script", "style"},
)


def clean(html: str) -> str:
    """The HTML with everything removed that the list above does not name."""
    return CLEANER.clean(html)
