"""Names in every script over REST, and letters that the search treats as equal."""

from datetime import datetime

import pytest

from chats.memory.search import archive
from chats.models import Branch, Chat, Message
from tests.chats.api.programs import Program
from tests.support.api_bodies import NEW_TEAM

NAMES = ["کتاب\u200cها", "東京\u3000出張", "Budget\u00a02027", "👩\u200d💻 Work", "Tom\u0303"]
REFUSED = ["a\nb", "a\u202eb", "\u200b\u200b", "a\u2028b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_any_script_is_accepted(name: str, of_alice: Program, chat: Chat) -> None:
    folder = of_alice.post("folders", {"name": name})
    assert (folder.status_code, folder.json()["name"]) == (201, name)
    of_alice.call("PATCH", "memory", {"consent": True})
    kept = of_alice.post("memory/preferences", {"slot": "name", "text": name})
    assert (kept.status_code, kept.json()["text"]) == (201, name)
    team = of_alice.post("teams", {**NEW_TEAM, "name": name})
    assert (team.status_code, team.json()["name"]) == (201, name)
    titled = of_alice.call("PATCH", f"chats/{chat.pk}", {"title": name})
    assert titled.json()["title"] == name


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_would_mislead_is_refused(name: str, of_alice: Program, chat: Chat) -> None:
    assert of_alice.post("folders", {"name": name}).status_code == 422
    of_alice.call("PATCH", "memory", {"consent": True})
    body = {"slot": "name", "text": name}
    assert of_alice.post("memory/preferences", body).status_code == 422
    assert of_alice.post("teams", {**NEW_TEAM, "name": name}).status_code == 422
    assert of_alice.post("chats", {"title": name}).status_code == 422
    assert of_alice.call("PATCH", f"chats/{chat.pk}", {"title": name}).status_code == 422


def test_two_spellings_are_one_folder(of_alice: Program) -> None:
    assert of_alice.post("folders", {"name": "Café"}).status_code == 201
    assert of_alice.post("folders", {"name": "Cafe\u0301 "}).status_code == 409


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("İstanbul'a gidiyoruz", "istanbul"),
        ("İzmir limanı", "IZMIR"),
        ("Isparta'da ısı", "ISI"),
        ("Spotkanie w Łodzi, Łódź", "lodz"),
        ("Spotkanie w Lodz", "Łódź"),
        ("Smørrebrød på Østerbro", "osterbro"),
        ("Đorđe je došao", "dorde"),
        ("Ærø og Þórshöfn", "thorshofn"),
    ],
)
def test_letters_are_found_as_people_type_them(
    said: str, asked: str, of_alice: Program, chat: Chat, now: datetime
) -> None:
    branch = Branch.objects.get(chat=chat)
    parts = [{"type": "text", "text": said}]
    Message.objects.create(
        branch=branch, seq=1, accepted=1, role="user", parts=parts, created_at=now
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=1)
    archive.index_branch(Branch.objects.select_related("chat").get(pk=branch.pk))
    (hit,) = of_alice.get("search", q=asked).json()["data"]
    assert hit["excerpt"] == said
    assert hit["marks"]


def test_a_title_has_a_visible_character(of_alice: Program) -> None:
    chat = of_alice.post("chats", {}).json()["id"]
    of_alice.post(f"chats/{chat}/messages", {"text": "\u200b\n\u2800\nThe ferns need water"})
    assert of_alice.get(f"chats/{chat}").json()["title"] == "The ferns need water"
