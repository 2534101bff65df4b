"""Bare URLs are one link each, whatever characters they contain."""

import re

import pytest

from chats.rendering.localized import localise_html
from chats.rendering.markdown import render_markdown

WHOLE = [
    "https://github.com/python/cpython/blob/main/Lib/asyncio/__init__.py",
    "https://graph.microsoft.com/v1.0/me?$select=id,name&$top=5",
    "https://user:1pass@host.example/a",
    "https://user:p%40ss@host.example:8080/a",
    "HTTPS://a.example/$a$b",
    "https://a.example/a/*/b/*/c",
    "https://a.example/src/**/*.js",
    "https://a.example/?q=*log*&n=1",
]


@pytest.mark.parametrize("address", WHOLE)
@pytest.mark.parametrize("frame", ["{}", "See {}.", "**{}** and *more*", "*{}*", "- ({})", "> {}"])
def test_a_url_is_one_link(address: str, frame: str) -> None:
    html = render_markdown(frame.format(address))
    assert f">{address.replace('&', '&amp;')}</a>" in html
    assert html.count("<a ") == 1
    assert "<math" not in html


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("**https://a.example/x**(note)", 'href="https://a.example/x"'),
        ("[https://a.example/x](https://b.example/y)", 'href="https://b.example/y"'),
        (r"https://a.example/a\_b", 'href="https://a.example/a_b"'),
        ("https://a.example/?a=1&amp;b=2", 'href="https://a.example/?a=1&amp;b=2"'),
        ("<https://a.example/x_y_z>", 'href="https://a.example/x_y_z"'),
        ("$x$ https://a.example/$b and $y$", 'href="https://a.example/$b"'),
    ],
)
def test_marks_around_a_url_keep_their_meaning(text: str, part: str) -> None:
    html = render_markdown(text)
    assert part in html
    assert html.count("<a ") == 1


def test_a_url_with_a_password_links_to_its_host() -> None:
    html = render_markdown("https://user:1pass@host.example/a")
    assert 'href="https://user:1pass@host.example/a"' in html
    assert "(<bdi>host.example</bdi>)" in html
    # Text after a URL is not a user name.
    assert 'href="https://a.example"' in render_markdown("https://a.example联系me@b.example")


def test_an_image_in_a_link_keeps_the_target_of_the_link() -> None:
    html = localise_html(
        render_markdown("[![Build](https://img.example/x.svg)](https://ci.example/a)")
    )
    assert html.count("<a ") == 1
    assert 'href="https://ci.example/a"' in html
    assert ">[image: Build]</a>" in html
    assert "(<bdi>ci.example</bdi>)" in html


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "See https://a.example/x[^1].\n\n[^1]: note",
            ["https://a.example/x</a><sup", ">1</sup>.", "note"],
        ),
        ("https://a.example/?q=1[^1]\n\n[^1]: note", ["/?q=1</a><sup", ">1</sup>", "note"]),
        ("https://a.example[^1]\n\n[^1]: note", ["https://a.example</a><sup"]),
        ("https://a.example/x[1](https://b.example)", ["/x</a><a", ">1</a>"]),
        ("https://a.example/?q=1[see b](https://b.example)", ["/?q=1</a><a", ">see b</a>"]),
        ("https://a.example/x[[1]](https://b.example)", ["/x</a><a", ">[1]</a>"]),
        ("https://a.example/?q=1[[1]](https://b.example)", ["/?q=1</a><a", ">[1]</a>"]),
        ("https://a.example/x![i](https://b.example/i.png)", ["/x</a><a", "<bdi>b.example"]),
        ("https://a.example/x[1][ref]\n\n[ref]: https://b.example", ["/x</a><a", ">1</a>"]),
        ("https://a.example/?q=1[1][ref]\n\n[ref]: https://b.example", ["1</a><a", ">1</a>"]),
        ("https://a.example/?q=1[1]\n\n[1]: https://b.example", ["/?q=1</a><a", ">1</a>"]),
        ("https://a.example/x[1]", ["/x</a>[1]"]),
        ("https://a.example/x［1］", ["/x</a>［1］"]),
        ("https://a.example/x，见a&amp;b", ["/x</a>，见a&amp;b"]),
    ],
)
def test_a_url_ends_before_a_footnote_or_a_link(text: str, parts: list[str]) -> None:
    html = render_markdown(text)
    at = 0
    for part in parts:
        assert part in html[at:]
        at = html.index(part, at)


@pytest.mark.parametrize("mark", "，。、；：！？「」『』《》〈〉【】（）［］｛｝“”‘’～")
def test_a_url_ends_before_chinese_punctuation(mark: str) -> None:
    html = render_markdown(f"见https://a.example/x{mark}中文")
    assert 'href="https://a.example/x"' in html
    assert f"{mark}中文" in html


@pytest.mark.parametrize(
    "address",
    [
        "https://a.example/?filter[name]=x&amp;filter[a][b]=y",
        "https://a.example/?ids[]=1",
        "http://[::1]:8080/a",
    ],
)
def test_a_url_may_have_brackets_in_its_host_and_query(address: str) -> None:
    html = render_markdown(address.replace("&amp;", "&"))
    assert f">{address}</a>" in html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*{}*text", "<em>{}</em>text"),
        ("*{}*然后", "<em>{}</em>然后"),
        ("*{}/*然后", "<em>{}</em>然后"),
        ("见*{}*。", "见<em>{}</em>。"),
        ("*见{}*然后", "<em>见{}</em>然后"),
        ("_{}_(note)", "<em>{}</em>(note)"),
        ("**{}**text", "<strong>{}</strong>text"),
        ("***{}***text", "<em><strong>{}</strong></em>text"),
        ("~~{}~~text", "<s>{}</s>text"),
        ("{}*emph*", "{}<em>emph</em>"),
        ("{}*some words*", "{}<em>some words</em>"),
        ("{}*强调*文字", "{}<em>强调</em>文字"),
        ("{}/*强调*文字", "{}<em>强调</em>文字"),
        ("{}**bold**text", "{}<strong>bold</strong>text"),
        ("{}/**加粗**文字", "{}<strong>加粗</strong>文字"),
        ("{}~~old~~", "{}<s>old</s>"),
        ("{}**see {}**", "{}<strong>see {}</strong>"),
        ("*a* {}*b", "<em>a</em> {}"),
    ],
)
def test_emphasis_may_end_or_start_at_the_end_of_a_url(text: str, html: str) -> None:
    made = render_markdown(text.replace("{}", "https://a.example/x"))
    made = re.sub(r'<a href="([^"]*)"[^>]*>\1</a>', r"\1", made)
    address = "https://a.example/x/" if "{}/" in text else "https://a.example/x"
    assert html.replace("{}", address) in made


@pytest.mark.parametrize(
    "address",
    ["https://a.example/a*b", "https://a.example/a**b", "https://a.example/a~~b"],
)
def test_marks_without_their_other_half_are_part_of_a_url(address: str) -> None:
    html = render_markdown(f"{address} and {address}")
    assert html.count(f">{address}</a>") == 2
