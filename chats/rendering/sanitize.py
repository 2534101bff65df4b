"""The sanitizer of messages' HTML: an allow-list.

It runs after the Markdown renderer, which writes no raw HTML. If either fails, no active element
reaches a page. Attributes that htmx or a browser would act on (hx-*, sse-*, on*, style, id, name,
form, srcdoc) are not on the list. Only MathML operators have a `form`, which is harmless there.
"""

import re

import nh3

HEADINGS = ("h3", "h4", "h5", "h6")
TEXT = ("p", "blockquote", "ul", "ol", "table", *HEADINGS)
MATHML = """
    math menclose mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow mspace
    msqrt msub msubsup msup mtable mtd mtext mtr munder munderover
""".split()  # noqa: SIM905 - one word per line is hard to read

TAGS = {
    *("a", "bdi", "br", "button", "code", "div", "em", "figcaption", "figure", "hr", "input"),
    *("label", "li", "pre", "s", "span", "strong", "sup", "tbody", "td", "th", "thead", "tr"),
    *TEXT,
    *MATHML,
}
CLASSES = {
    "button": {"btn", "btn--quiet", "btn--s", "end", "code__copy"},
    "code": {"math__source"},
    "div": {"table-wrap", "plain", "math"},
    "figcaption": {"code__head"},
    "figure": {"code"},
    "li": {"task", "note"},
    "mtable": {"math-line-start", "math-line-top"},
    "mtd": {
        *("math-start", "math-end", "math-joined-start", "math-joined-end", "math-margin"),
        *("math-line-start", "math-line-end", "math-line-top", "math-line-bottom"),
    },
    "ol": {"notes"},
    "p": {"plain__note"},
    "pre": {"code__body"},
    "span": {
        *("k", "s", "m", "c", "f", "gi", "gd", "link__host"),
        *("math", "math--inline", "note__back", "image__host", "image__text"),
    },
    "sup": {"note", "first"},
    "table": {"table"},
    "td": {"n"},
    "th": {"n"},
}
TRUTH = {"true", "false"}
BOX = {"tabindex": {"0"}, "role": {"group"}}
VALUES = {
    **{tag: {"dir": {"auto"}} for tag in (*TEXT, "li")},
    "button": {"type": {"button"}},
    "div": {**BOX, "aria-label": {"Table", "Formula"}, "dir": {"auto"}},
    "input": {"type": {"checkbox"}, "disabled": {""}, "checked": {""}},
    "math": {"display": {"block"}},
    "menclose": {
        "notation": {
            *("box", "updiagonalstrike", "downdiagonalstrike"),
            "updiagonalstrike downdiagonalstrike",
        }
    },
    "mfrac": {"displaystyle": TRUTH},
    "mi": {"mathvariant": {"normal"}},
    "mo": {
        "form": {"prefix", "infix", "postfix"},
        **dict.fromkeys(("stretchy", "movablelimits", "symmetric"), TRUTH),
    },
    "mover": {"accent": TRUTH},
    "mrow": {"displaystyle": TRUTH, "scriptlevel": {"0", "1", "2"}},
    "mtable": {"displaystyle": TRUTH, "scriptlevel": {"0", "1"}},
    "munder": {"accentunder": TRUTH},
    "munderover": {"accent": TRUTH, "accentunder": TRUTH},
    "pre": {"tabindex": {"0"}, "aria-label": {"Code"}},
    "span": {**BOX, "aria-label": {"Formula"}},
    "th": {"scope": {"col"}},
}
# Numeric values: numbers of notes, and lengths within safe limits.
NUMBERS = {"li": {"value"}}
LENGTHS = {
    "mfrac": {"linethickness"},
    "mo": {"lspace", "rspace", "minsize", "maxsize"},
    "mpadded": {"width", "height", "depth", "lspace", "voffset"},
    "mspace": {"width"},
}
NUMBER = re.compile(r"[0-9]{1,5}")
LENGTH = re.compile(r"-?[0-9]?(?:\.[0-9]{1,10})?(?:em)?")


def filter_attribute(tag: str, attribute: str, value: str) -> str | None:
    """Return the value of an allowed attribute, or None to remove it.

    Attributes in `LENGTHS` and `NUMBERS` are removed unless their value matches `LENGTH` or
    `NUMBER`.
    """
    if attribute in LENGTHS.get(tag, ()):
        return value if LENGTH.fullmatch(value) else None
    if attribute in NUMBERS.get(tag, ()):
        return value if NUMBER.fullmatch(value) else None
    return value


CLEANER = nh3.Cleaner(
    tags=TAGS,
    attributes={"a": {"href"}, "ol": {"start"}, **NUMBERS, **LENGTHS},
    attribute_filter=filter_attribute,
    allowed_classes=CLASSES,
    tag_attribute_values=VALUES,
    # Task boxes are always disabled.
    set_tag_attribute_values={
        "a": {"target": "_blank"},
        "input": {"type": "checkbox", "disabled": ""},
    },
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
    link_rel="noopener noreferrer nofollow ugc",
    clean_content_tags={"script", "style"},
)


def sanitize_html(html: str) -> str:
    """Return HTML with only the allowed elements and attributes."""
    return CLEANER.clean(html)
