"""Help: the pages of `docs/`, rendered and searchable."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from urllib.parse import unquote

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.views.decorators.http import require_GET

from chats.ground.refusals import NotFound
from chats.rendering.documents import (
    DocumentSection,
    extract_match_excerpt,
    parse_document_sections,
    render_document,
)
from chats.web.auth import PersonRequest, signed_in

FOLDER = Path(settings.BASE_DIR) / "docs"
INDEX = "index"
PICTURE = re.compile(r"pictures/[\w-]+\.svg")
# The order of the menu; pages that are not named here follow by title.
ORDER = """
    index getting-started small-model policies teams memory-and-search skills tools files
    import-export deployment configuration backup-and-upgrade api gateway clients servers
    webhooks audit architecture capacity measurements
""".split()  # noqa: SIM905 - names separated by spaces are easier to read
# The help page of a page, with the anchor of a section, by the name of its URL; of the others, the
# index.
HELP_OF_PAGES = {
    "home": "getting-started#chats",
    "chat-new": "getting-started#chats",
    "chat": "getting-started#chats",
    "setup": "getting-started#connect-a-model",
    "server": "getting-started#connect-a-model",
    "compactions": "policies#summaries",
    "compaction": "policies#summaries",
    "originals": "policies#summaries",
    "compaction-request": "policies#summaries",
    "receipt": "policies",
    "request": "policies",
    "message": "policies",
    "system-text": "policies",
    "state": "policies#strategies",
    "state-history": "policies#strategies",
    "memory": "memory-and-search",
    "folder-memory": "memory-and-search",
    "chat-memory": "memory-and-search",
    "preference": "memory-and-search",
    "folder": "memory-and-search",
    "search": "memory-and-search#search",
    "find": "memory-and-search#search",
    "search-model": "memory-and-search#semantic-search",
    "teams": "teams",
    "team-new": "teams",
    "team-edit": "teams",
    "team-delete": "teams",
    "chat-team": "teams",
    "skills": "skills",
    "skill-import": "skills",
    "skill": "skills",
    "exchange": "import-export",
    "exchange-import": "import-export",
    "import": "import-export",
    "chat-export": "import-export#export",
    "usage": "policies#limits-on-usage",
    "readings": "audit#read-a-prompt-of-another-user",
    "api-keys": "api#scopes",
    "webhooks": "webhooks",
    "webhook": "webhooks",
}
# The same of the administration, by app and model.
HELP_OF_ADMIN = {
    "auth/user": "deployment#users-and-roles",
    "auth/group": "deployment#users-and-roles",
    "chats/compaction": "policies#summaries",
    "chats/kepttext": "policies#retention-and-legal-holds",
    "chats/provideraccount": "getting-started#connect-a-model",
    "chats/receipt": "audit#read-a-prompt-of-another-user",
    "chats/retentionrun": "policies#retention-and-legal-holds",
    "chats/team": "teams",
    "chats/turn": "audit#read-a-prompt-of-another-user",
    "contextpolicy/auditevent": "audit",
    "contextpolicy/blastradius": "policies#check-the-effect-before-publishing",
    "contextpolicy/contextpolicy": "policies",
    "contextpolicy/effectivepolicy": "policies#how-values-combine",
    "contextpolicy/evaluation": "policies#check-the-effect-before-publishing",
    "contextpolicy/legalhold": "policies#retention-and-legal-holds",
    "contextpolicy/modelspec": "getting-started#connect-a-model",
    "contextpolicy/policyassignment": "policies#create-and-assign-a-policy",
    "contextpolicy/skill": "skills",
    "contextpolicy/tooldefinition": "tools",
    "contextpolicy/toolserver": "tools",
}
MOST_FOUND = 30
LONGEST_QUESTION = 200


@dataclass(frozen=True, slots=True)
class HelpPage:
    """A document: its slug, title, text and sections.

    `anchors` maps anchors of a translation to those of the original. URLs use the latter.
    """

    slug: str
    title: str
    text: str
    sections: Sequence[DocumentSection]
    anchors: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return (
            reverse("chats:help") if self.slug == INDEX else reverse("chats:help", args=[self.slug])
        )

    @property
    def contents(self) -> list[DocumentSection]:
        """The headings for the list at the top of a long page."""
        found = [section for section in self.sections if section.level == 2]
        return found if len(found) > 2 else []


@dataclass(frozen=True, slots=True)
class HelpHit:
    """A section that contains the search text.

    `pieces`: the text around the match as (text, is_match) pairs.
    """

    page: HelpPage
    section: DocumentSection
    pieces: Sequence[tuple[str, bool]]

    @property
    def address(self) -> str:
        anchor = f"#{self.section.anchor}" if self.section.anchor else ""
        return self.page.address + anchor


def add_help_address(request: HttpRequest) -> dict[str, str]:
    """Return the template variable `help_address`: the URL of the help for the requested page."""
    match = request.resolver_match
    name = ""
    if match is not None and match.namespace == "chats":
        name = HELP_OF_PAGES.get(match.url_name or "", "")
    elif match is not None and match.namespace == "admin":
        name = HELP_OF_ADMIN.get("/".join(match.route.split("/")[1:3]), "")
    slug, _, anchor = name.partition("#")
    address = reverse("chats:help", args=[slug]) if slug else reverse("chats:help")
    return {"help_address": address + (f"#{anchor}" if anchor else "")}


def load_help_pages() -> dict[str, HelpPage]:
    """Return the documents in the active language by slug, in the order of the menu."""
    return load_translated_pages(get_language() or settings.LANGUAGE_CODE)


@cache
def load_translated_pages(language: str) -> dict[str, HelpPage]:
    """Return all documents, translated into the language where possible. Cached per process."""
    pages = {path.stem: read_page(path) for path in FOLDER.glob("*.md")}
    for path in (FOLDER / language).glob("*.md"):
        pages[path.stem] = copy_section_anchors(pages[path.stem], read_page(path))
    places = {slug: place for place, slug in enumerate(ORDER)}
    ordered = sorted(pages.values(), key=lambda one: (places.get(one.slug, len(ORDER)), one.title))
    return {page.slug: page for page in ordered}


def read_page(path: Path) -> HelpPage:
    text = path.read_text("utf-8")
    sections = parse_document_sections(text)
    return HelpPage(path.stem, sections[0].title if sections else path.stem, text, sections)


def copy_section_anchors(original: HelpPage, page: HelpPage) -> HelpPage:
    """Return a translation with the anchors of the original.

    Both have the same headings in the same order.
    """
    pairs = list(zip(page.sections, original.sections, strict=True))
    return replace(
        page,
        sections=[replace(section, anchor=same.anchor) for section, same in pairs],
        anchors={section.anchor: same.anchor for section, same in pairs},
    )


@require_GET
@signed_in
def help_page(request: PersonRequest, slug: str = INDEX) -> HttpResponse:
    """Show a help page, or the sections that contain `?q=`. Raises `NotFound`."""
    pages = load_help_pages()
    if slug not in pages:
        raise NotFound
    question = " ".join(request.GET.get("q", "").replace("\x00", "").split())[:LONGEST_QUESTION]
    page = pages[slug]
    context = {
        "page": page,
        "pages": pages.values(),
        "question": question,
        "hits": find_sections(question) if question else [],
        "most": MOST_FOUND,
        "html": "" if question else render_help_page(page),
    }
    return render(request, "help.html", context)


def render_help_page(page: HelpPage) -> SafeString:
    return render_document(
        page.text,
        resolve=partial(resolve_help_link, page=page),
        resolve_picture=embed_picture,
        anchors=page.anchors,
    )


@cache
def embed_picture(path: str) -> str:
    """Return a plot from `docs/pictures/` as a data URL; an empty string for any other picture."""
    if not PICTURE.fullmatch(path) or not (FOLDER / path).is_file():
        return ""
    return f"data:image/svg+xml;base64,{b64encode((FOLDER / path).read_bytes()).decode()}"


def find_sections(question: str) -> list[HelpHit]:
    """Return at most 30 sections that contain the search text. Matches in headings come first."""
    wanted = question.casefold()
    found = [
        (
            wanted not in section.title.casefold(),
            HelpHit(page, section, extract_match_excerpt(section.text, question)),
        )
        for page in load_help_pages().values()
        for section in page.sections
        if wanted in f"{section.title} {' '.join(section.text.split())}".casefold()
    ]
    found.sort(key=lambda each: each[0])
    return [hit for _, hit in found[:MOST_FOUND]]


def resolve_help_link(link: str, *, page: HelpPage) -> str:
    """Return the URL of a link in a document.

    Empty if it leads neither to a help page, to the API reference nor to the web.
    """
    if link.startswith(("https://", "http://", "mailto:")):
        return link
    path, _, anchor = unquote(link).partition("#")
    name = path.removeprefix("./").removeprefix("../").removeprefix("docs/")
    slug = name.removesuffix(".md")
    target = load_help_pages().get(slug) if name.endswith(".md") else None
    if path and target is None:
        return reverse("api:docs") if name == "openapi.yaml" else ""
    target = target or page
    address = target.address if path else ""
    return address + (f"#{target.anchors.get(anchor, anchor)}" if anchor else "")
