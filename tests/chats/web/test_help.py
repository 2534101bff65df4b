"""Help pages: every document rendered, linked and found; nothing else is served."""

import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from chats.admin import site
from chats.people.sessions import SIGNED_IN_AT
from chats.rendering.documents import parse_document_sections, render_document
from chats.web import help_pages, urls

DOCS = Path(__file__).resolve().parents[3] / "docs"
SLUGS = sorted(path.stem for path in DOCS.glob("*.md"))
# Journeys of people who read Chinese: the source documents are Chinese.
TRANSLATED = (
    "audit",
    "files",
    "getting-started",
    "import-export",
    "memory-and-search",
    "policies",
    "skills",
    "teams",
    "tools",
)
# Commands and data in the documents, without comments.
CODE = re.compile(r"^```(?:json|http)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PLOTS = re.compile(r"!\[[^\]]+\]\(pictures/[\w-]+\.svg\)")
ADDRESS = re.compile(r'(?:href|action)="(/help/[^"#?]*)(?:#([^"]*))?"')


def test_every_document_is_a_page_with_its_title(admin_client: Client) -> None:
    assert sorted(help_pages.load_help_pages()) == SLUGS
    for slug in SLUGS:
        page = admin_client.get(f"/help/{slug}/")
        assert page.status_code == 200
        title = (DOCS / f"{slug}.md").read_text("utf-8").splitlines()[0].lstrip("# ")
        assert help_pages.load_help_pages()[slug].title == title.replace("`", "")


def test_every_link_between_help_pages_leads_to_a_page_and_a_heading(admin_client: Client) -> None:
    for slug in SLUGS:
        body = admin_client.get(f"/help/{slug}/").content.decode()
        for address, anchor in set(ADDRESS.findall(body)):
            target = admin_client.get(address)
            assert target.status_code == 200, (slug, address)
            assert not anchor or f'id="{anchor}"' in target.content.decode(), (
                slug,
                address,
                anchor,
            )


@pytest.mark.parametrize("language", ["zh-hans"])
def test_translated_pages_have_the_sections_and_addresses_of_the_originals(
    admin_client: Client, language: str
) -> None:
    translated = sorted(path.stem for path in (DOCS / language).glob("*.md"))
    assert translated == sorted(TRANSLATED)
    original = help_pages.load_translated_pages("en")
    pages = help_pages.load_translated_pages(language)
    for slug in translated:
        page = pages[slug]
        assert [section.level for section in page.sections] == [
            section.level for section in original[slug].sections
        ]
        assert [section.anchor for section in page.sections] == [
            section.anchor for section in original[slug].sections
        ]
        assert page.title != original[slug].title
        assert CODE.findall(page.text) == CODE.findall(original[slug].text)
    for slug in SLUGS:
        body = admin_client.get(f"/help/{slug}/", headers={"Accept-Language": language})
        for address, anchor in set(ADDRESS.findall(body.content.decode())):
            target = admin_client.get(address, headers={"Accept-Language": language})
            assert not anchor or f'id="{anchor}"' in target.content.decode(), (slug, anchor)


HELPED = sorted({*help_pages.HELP_OF_PAGES.values(), *help_pages.HELP_OF_ADMIN.values()})


@pytest.mark.parametrize("place", HELPED)
def test_the_help_of_each_page_exists(admin_client: Client, place: str) -> None:
    slug, _, anchor = place.partition("#")
    page = admin_client.get(f"/help/{slug}/")
    assert page.status_code == 200
    assert not anchor or f'id="{anchor}"' in page.content.decode()


def test_the_help_of_pages_names_pages_that_exist() -> None:
    names = {pattern.name for pattern in urls.urlpatterns}
    assert set(help_pages.HELP_OF_PAGES) <= names
    models = {model._meta.label_lower.replace(".", "/") for model in site._registry}
    assert set(help_pages.HELP_OF_ADMIN) <= models


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/settings/memory/", "/help/memory-and-search/"),
        ("/teams/", "/help/teams/"),
        ("/settings/exchange/", "/help/import-export/"),
        ("/chats/new", "/help/getting-started/#chats"),
        ("/settings/", "/help/"),
        ("/admin/", "/help/"),
        ("/admin/contextpolicy/contextpolicy/", "/help/policies/"),
        ("/admin/contextpolicy/auditevent/", "/help/audit/"),
    ],
)
def test_a_page_links_to_its_help(admin_client: Client, path: str, address: str) -> None:
    session = admin_client.session
    session[SIGNED_IN_AT] = timezone.now().isoformat()
    session.save()
    page = admin_client.get(path)
    assert page.status_code == 200
    assert f'href="{address}"' in page.content.decode()


@pytest.mark.parametrize("slug", ["none", "..", "decisions", "openapi"])
def test_other_files_are_not_served(admin_client: Client, slug: str) -> None:
    assert admin_client.get(f"/help/{slug}/").status_code == 404


def test_signed_out_people_are_sent_to_the_sign_in_page(client: Client, db: None) -> None:
    answer = client.get("/help/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/login/?next=/help/")


def test_a_search_leads_to_the_section(admin_client: Client) -> None:
    section = next(
        each
        for page in help_pages.load_help_pages().values()
        for each in page.sections
        if each.level > 1
    )
    body = admin_client.get("/help/", {"q": section.title.upper()}).content.decode()
    assert f"#{section.anchor}" in body
    assert "<mark>" in body or section.title in body


@pytest.mark.parametrize("question", ["<script>alert(1)</script>", "\x00", "%", "a" * 5_000, "  "])
def test_any_question_is_answered_as_text(admin_client: Client, question: str) -> None:
    answer = admin_client.get("/help/", {"q": question})
    assert answer.status_code == 200
    assert "<script>alert" not in answer.content.decode()


def test_a_document_is_rendered_with_anchors_links_and_escaped_html() -> None:
    text = (
        "# T\n\nSee [a](a.md#x), [web](https://e.example) and [code](../x.py).\n\n"
        "## Two *words*?\n\n<b>x</b>\n"
    )
    known = {"a.md#x": "/help/a/#x", "https://e.example": "https://e.example"}
    html = render_document(text, resolve=lambda link: known.get(link, ""))
    assert '<a href="/help/a/#x">a</a>' in html
    assert '<a href="https://e.example">web</a>' in html
    assert "and code." in html
    assert '<h2 id="two-words">' in html
    assert "&lt;b&gt;" in html
    assert "<h1" not in html
    assert [(one.level, one.title, one.anchor) for one in parse_document_sections(text)] == [
        (1, "T", ""),
        (2, "Two words?", "two-words"),
    ]


def test_plots_are_shown_and_other_pictures_are_left_out(admin_client: Client) -> None:
    text = "# T\n\n![Time by streams](pictures/first-token-streams.svg) ![x](pictures/chat.png)\n"
    text += "\n![y](../secret.svg) ![z](https://e.example/a.svg)\n"
    html = render_document(text, resolve=str, resolve_picture=help_pages.embed_picture)
    assert html.count("<img") == 1
    assert 'alt="Time by streams"' in html
    page = admin_client.get("/help/measurements/")
    shown = re.findall(r'<img src="data:image/svg\+xml;base64,', page.content.decode())
    assert len(shown) == len(PLOTS.findall((DOCS / "measurements.md").read_text("utf-8")))
    assert shown
    # Data URLs are allowed as pictures.
    assert re.search(r"img-src [^;]*\bdata:", page["Content-Security-Policy"])


def test_results_of_a_search_show_words_and_no_markdown() -> None:
    text = "# T\n\n## Use\n\n**Open** *Policies*, see `code` and [here](x.md).\n\n"
    text += "| a | b |\n|---|---|\n| c | d |\n\n"
    text += "```mermaid\nflowchart LR\n```\n\n```sh\nmake run\n```\n"
    section = parse_document_sections(text)[1]
    words = " ".join(section.text.split())
    assert words == "Open Policies, see code and here. a b c d make run"
