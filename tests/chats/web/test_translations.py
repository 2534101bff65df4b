"""Languages: which one a response has, and that no text of a page is left out."""

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation
from django.utils.translation import trans_real

from chats.admin import site
from chats.models import AccountSettings, Chat
from tests import pseudo
from tests.support.page_addresses import CHAT_PAGES, PAGES

CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.5"}
ROOT = Path(__file__).resolve().parents[3]
# Elements whose words are code, data or written by people.
WITHOUT_WORDS = {"script", "style", "code", "pre", "kbd", "bdi", "time", "textarea", "samp", "svg"}
# Words on pages that are names or data.
NAMES = re.compile(
    r"Palimpsest|ledger\.read|instance #|https://[\w./]+|API|JSON|Markdown|what|OpenAI|Anthropic|alice|English|简体中文|UTC|Alt|Ctrl|Enter|Esc|Shift|Tab|Webhooks?"
)
# Data in the admin's forms: models, users, headings of summaries in prompts, the text of an icon.
ADMIN_DATA = re.compile(
    r"demo|admin|True|Facts, Preferences, Decisions, Open items, Done items", re.I
)
# The documents of Help, the API's own page, and lists of names.
NOT_OURS = {"/api/v1/docs", "/help/audit/", "/help/?q=policy"}


class Words(HTMLParser):
    """Collects the texts of a page that a person reads."""

    ATTRIBUTES = ("title", "alt", "placeholder", "aria-label", "data-label", "hx-confirm")

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the texts of an element's attributes."""
        self.found += [value for name, value in attrs if name in self.ATTRIBUTES and value]
        if tag in WITHOUT_WORDS or "data-untranslated" in dict(attrs) or tag == "option":
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element without words."""
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if not self.inside and data.strip():
            self.found.append(" ".join(data.split()))


def untranslated(html: str) -> list[str]:
    """Return the texts of a page that did not pass through gettext."""
    words = Words()
    words.feed(html)
    whole = "\n".join(words.found)
    # A message may consist of several texts, with tags between them, and be part of another one.
    innermost = re.compile(f"{pseudo.BEGIN}[^{pseudo.BEGIN}{pseudo.END}]*{pseudo.END}")
    rest, number = whole, 1
    while number:
        rest, number = innermost.subn("", rest)
    return [line for line in rest.splitlines() if re.search(r"[A-Za-z]{3}", NAMES.sub("", line))]


@pytest.fixture
def pseudo_locale(settings: Any) -> Iterator[None]:
    """Add the pseudo-locale."""
    settings.LANGUAGES = [*django_settings.LANGUAGES, (pseudo.CODE, "Pseudo")]
    original = trans_real.translation
    pseudo.install()
    yield
    trans_real.translation = original


@pytest.fixture
def page(admin_user: User, admin_client: Client) -> Client:
    """An administrator's browser."""
    return admin_client


def test_the_browser_chooses_until_the_account_does(page: Client, admin_user: User) -> None:
    first = page.get("/settings/appearance/", headers=CHINESE)
    assert 'lang="zh-hans" dir="ltr"' in first.content.decode()
    assert first["Content-Language"] == "zh-hans"
    assert "Accept-Language" in first["Vary"]
    chosen = {"appearance": "system", "language": "en", "time_zone": ""}
    page.post("/settings/appearance/", chosen, headers=CHINESE)
    again = page.get("/settings/", headers=CHINESE)
    assert 'lang="en"' in again.content.decode()
    assert AccountSettings.objects.get(owner=admin_user).language == "en"


def test_another_browser_of_the_account_follows(page: Client, admin_user: User) -> None:
    AccountSettings.objects.create(owner=admin_user, language="zh-hans")
    page.get("/settings/")
    assert 'lang="zh-hans"' in page.get("/settings/").content.decode()
    assert 'lang="zh-hans"' in page.get("/admin/").content.decode()


@pytest.mark.parametrize("language", ["xx", "de", "zh-hant-xx'\"><", "en\x00"])
def test_an_unknown_language_is_refused_or_english(page: Client, language: str) -> None:
    chosen = {"appearance": "system", "language": language, "time_zone": ""}
    assert page.post("/settings/appearance/", chosen).status_code == 200
    html = page.get("/settings/", headers={"Accept-Language": "xx, de;q=0.5"}).content.decode()
    assert 'lang="en"' in html


def test_rest_errors_follow_the_client_and_gateway_errors_stay_english(client: Client) -> None:
    english = client.get("/api/v1/chats").json()["error"]
    chinese = client.get("/api/v1/chats", headers=CHINESE).json()["error"]
    assert english["code"] == chinese["code"]
    assert re.search(r"[\u4e00-\u9fff]", chinese["message"])
    assert not re.search(r"[\u4e00-\u9fff]", english["message"])
    gateway = [client.get("/v1/models", headers=headers).json() for headers in ({}, CHINESE)]
    assert gateway[0]["error"]["message"] == gateway[1]["error"]["message"]


def test_the_schema_is_the_same_in_every_language(page: Client) -> None:
    schemas = [page.get("/api/v1/schema", headers=headers).content for headers in ({}, CHINESE)]
    assert schemas[0] == schemas[1]


@pytest.mark.parametrize("path", sorted({*PAGES} - NOT_OURS))
def test_every_text_of_a_page_is_translated(page: Client, path: str, pseudo_locale: None) -> None:
    html = page.get(path, headers={"Accept-Language": pseudo.CODE}, follow=True).content.decode()
    assert f'lang="{pseudo.CODE}" dir="rtl"' in html
    lines = untranslated(html)
    assert not lines, "\n".join(lines)


def test_every_text_of_a_chat_is_translated(
    page: Client, admin_user: User, pseudo_locale: None, demo_model: Any, now: Any
) -> None:
    page.post("/chats/new", {"text": "1"})
    chat = Chat.objects.get()
    found: list[str] = []
    for part in ("", *CHAT_PAGES):
        html = page.get(f"/chats/{chat.pk}/{part}", headers={"Accept-Language": pseudo.CODE})
        found += [f"{part}: {line}" for line in untranslated(html.content.decode())]
    assert not found, "\n".join(found)


def test_the_pseudo_locale_shows_an_untranslated_text() -> None:
    with translation.override("en"):
        shown = pseudo.pseudo("Send {count} messages to <b>%(name)s</b>")
    assert untranslated(f"<p>{shown}</p>") == []
    assert untranslated("<p>Send it</p><code>chat_id</code>") == ["Send it"]
    assert untranslated('<a title="Open the menu">⟦Öpéñ⟧</a>') == ["Open the menu"]
    assert pseudo.pseudo("j F Y, H:i") == "j F Y, H:i"


def list_marked_texts(path: Path) -> Iterator[str]:
    """Yield the literal texts in calls of gettext's functions."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            name = re.fullmatch(r"(n?p?)gettext(?:_lazy|_noop)?", call.func.id)
            # The first argument of `pgettext` is the context.
            for text in call.args["p" in name[1] :] if name else []:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value


def test_every_marked_text_is_in_the_catalogue() -> None:
    catalogue = (ROOT / "locale/zh_Hans/LC_MESSAGES/django.po").read_text()
    parts = re.findall(r'^msgid(?:_plural)? ((?:".*"\n)+)', catalogue, re.MULTILINE)
    known = {"".join(map(ast.literal_eval, part.splitlines())) for part in parts}
    files = [
        path for folder in ("chats", "contextpolicy") for path in (ROOT / folder).rglob("*.py")
    ]
    found = {text: path.name for path in files for text in list_marked_texts(path)}
    assert {text: name for text, name in found.items() if text not in known} == {}


def test_every_text_of_an_admin_form_is_translated(
    page: Client, pseudo_locale: None, demo_model: Any
) -> None:
    found: list[str] = []
    for model in site._registry:
        path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        responses = [
            send(address, headers={"Accept-Language": pseudo.CODE}, follow=True)
            for send, address in (
                (page.get, path),
                (page.get, f"{path}add/"),
                (page.post, f"{path}add/"),
            )
        ]
        assert responses[0].status_code == 200
        for response in responses:
            html = ADMIN_DATA.sub("", response.content.decode())
            found += [f"{path}: {line}" for line in untranslated(html)]
    assert not found, "\n".join(found)
