"""The search page: titles, messages, originals and summaries of the user's chats."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.actions import lifecycle
from chats.memory.search import archive
from chats.models import AccountSettings, Branch, Chat, Compaction, Folder, Message, Turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.chat_pages import HTMX

NOBODY: dict[str, Any] = {"from": "nobody"}
Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]


def index() -> None:
    """Index everything."""
    for branch in Branch.objects.select_related("chat", "active_compaction__base", "parent"):
        archive.index_branch(branch)


def found(client: Client, question: str, *, part: bool = True, **query: Any) -> str:
    """The hits, alone or as a page."""
    index()
    headers = HTMX if part else {}
    response = client.get(reverse("chats:search"), {"q": question, **query}, headers=headers)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.requirement("S4.7", by="user")
def test_a_page_without_scripts_finds_and_leads_to_the_place(
    page: Client, chat: Chat, talk: Talk
) -> None:
    talk("The <b>compressor</b> board failed", "Order 77-2041.")
    html = found(page, "compressors", part=False)
    row = Message.objects.get(branch__chat=chat, role="user")
    assert f'href="{reverse("chats:chat", args=[chat.pk])}#message-{row.pk}"' in html
    assert "The &lt;b&gt;<mark>compressor</mark>&lt;/b&gt; board failed" in html
    assert 'name="q"' in html


def test_titles_stand_first(page: Client, chat: Chat, talk: Talk) -> None:
    talk("About herons", "Yes.")
    Chat.objects.filter(pk=chat.pk).update(title="Graureiher <i>")
    html = found(page, "reiher")
    assert "Graureiher &lt;i&gt;" in html
    assert "Titles" in html
    html = found(page, "herons")
    assert "Titles" not in html


def test_an_original_leads_under_its_summary_and_the_summary_is_found(
    page: Client, chat: Chat, talk: Talk, summary: Fold
) -> None:
    talk("The compressor board failed", "Order 77-2041.")
    talk("And the belt?", "Nobody knows.")
    row = summary(2)
    html = found(page, "compressor")
    assert f"#original-{row.pk}-1" in html
    assert 'data-note="covered-original"' in html
    Compaction.objects.filter(pk=row.pk).update(text="- An ibis was seen.")
    Branch.objects.filter(chat=chat).update(active_compaction=None)
    index()
    Branch.objects.filter(chat=chat).update(active_compaction=row)
    assert reverse("chats:compaction", args=[chat.pk, row.pk]) in found(page, "ibis")


@pytest.mark.memory_case(39)
def test_a_hit_on_another_branch_opens_it_at_the_message(
    page: Client, charlies_page: Client, chat: Chat, talk: Talk, now: datetime
) -> None:
    talk("The heron", "A bird.")
    old = Branch.objects.get(chat=chat)
    new = Branch.objects.create(chat=chat, parent=old, fork_seq=0, last_seq=0, created_at=now)
    Chat.objects.filter(pk=chat.pk).update(active_branch=new)
    row = Message.objects.get(branch=old, role="user")
    show = reverse("chats:message-show", args=[chat.pk, row.pk])
    assert f'action="{show}" method="post"' in found(page, "heron")
    assert charlies_page.post(show).status_code == 404
    response = page.post(show)
    assert response.status_code == 302
    assert response["Location"].endswith(f"#message-{row.pk}")
    assert Chat.objects.get(pk=chat.pk).active_branch_id == old.pk


@pytest.mark.memory_case(19)
def test_charlie_finds_nothing_of_alice(
    page: Client, charlies_page: Client, chat: Chat, talk: Talk
) -> None:
    talk("The heron", "A bird.")
    Chat.objects.filter(pk=chat.pk).update(title="Heron")
    assert "<mark>heron</mark>" in found(page, "heron")
    queries: list[dict[str, Any]] = [{}, {"chat": str(chat.pk)}, {"role": "user"}]
    for query in queries:
        html = found(charlies_page, "heron", **query)
        assert "No results" in html
        assert "eron</mark>" not in html
    assert (
        "mark" not in charlies_page.get(reverse("chats:palette"), {"q": "heron"}).content.decode()
    )


def test_the_filters_are_fields_of_the_form(
    page: Client, alice: User, chat: Chat, talk: Talk, now: datetime
) -> None:
    talk("The heron", "A heron is a bird.")
    folder = Folder.objects.create(owner=alice, name="Birds & boats")
    assert found(page, "heron", role="user").count("<mark>") == 1
    assert found(page, "heron", role="assistant").count("<mark>") == 1
    assert "No results" in found(page, "heron", folder=folder.pk)
    Chat.objects.filter(pk=chat.pk).update(folder=folder)
    html = found(page, "heron", part=False, folder=folder.pk)
    assert html.count("<mark>") == 2
    assert f'<option value="{folder.pk}" selected>Birds &amp; boats</option>' in html
    assert "No results" in found(page, "heron", before="2020-01-01")
    assert found(page, "heron", after="2020-01-01").count("<mark>") == 2
    assert "No results" in found(page, "heron", **NOBODY)
    assert 'data-note="invalid-date"' in found(page, "heron", before="<soon>")
    assert found(page, "heron", chat=chat.pk, role="nonsense").count("<mark>") == 2


@pytest.mark.memory_case(33)
@pytest.mark.parametrize(
    "question",
    ["", "  ", '"a" OR "b" NEAR(c)', "the of", "用Django做 heron", "* ^ { } :", "heron\x00", "😀"],
)
def test_any_question_gets_a_sentence_or_hits(question: str, page: Client, chat: Chat) -> None:
    assert 'id="hits"' in found(page, question)
    assert page.get(reverse("chats:palette"), {"q": question}).status_code == 200


def test_a_question_over_its_limit_is_refused_with_a_sentence(page: Client, chat: Chat) -> None:
    assert "has 5,000 characters. The limit is 400" in found(page, "x" * 5_000)
    assert page.get(reverse("chats:search"), {"q": "x" * 401}).status_code == 422


def test_what_is_ignored_is_named(page: Client, chat: Chat, talk: Talk) -> None:
    talk("word one", "Yes.")
    html = found(page, " ".join(f"q{letter}z" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"))
    assert 'data-note="ignored-words"' in html
    assert "q6z" in html


@pytest.mark.memory_case(41)
def test_it_says_how_far_the_index_is(page: Client, chat: Chat, talk: Talk) -> None:
    talk("The heron", "A bird.")
    html = page.get(reverse("chats:search"), {"q": "heron"}, headers=HTMX).content.decode()
    assert 'data-note="not-indexed" data-percent="0"' in html
    assert 'data-note="not-indexed"' not in found(page, "heron")


def test_pages_of_twenty(page: Client, chat: Chat, talk: Talk, now: datetime) -> None:
    branch = Branch.objects.get(chat=chat)
    Message.objects.bulk_create(
        Message(branch=branch, seq=seq, accepted=seq, role="user", created_at=now,
                parts=[{"type": "text", "text": f"heron {seq}"}])
        for seq in range(1, 46)
    )  # fmt: skip
    Branch.objects.filter(pk=branch.pk).update(last_seq=45)
    assert found(page, "heron").count("<mark>") == 20
    assert "page=2" in found(page, "heron")
    last = found(page, "heron", page=3)
    assert last.count("<mark>") == 5
    assert "page=2" in last
    assert "page=4" not in last
    assert found(page, "heron", page="x").count("<mark>") == 20


def test_an_archive_that_a_policy_closed_since_is_not_searched(
    page: Client, alice: User, chat: Chat, talk: Talk, summary: Fold, now: datetime
) -> None:
    talk("The compressor board failed", "Order 77-2041.")
    talk("A newer compressor", "Nobody knows.")
    summary(2)
    assert found(page, "compressor").count("<mark>") == 2
    policy = create_policy(
        slug="closed", name="Closed", values={"archive": False}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    html = page.get(reverse("chats:search"), {"q": "compressor"}, headers=HTMX).content.decode()
    assert html.count("<mark>") == 1
    assert "newer" in html
    # A window leaves every message in the thread, so it is found too.
    summary(4, kind="window", text="", base=None)
    assert found(page, "compressor").count("<mark>") == 2


def test_the_palette_has_options_with_places(page: Client, chat: Chat, talk: Talk) -> None:
    talk("The heron", "A bird.")
    Chat.objects.filter(pk=chat.pk).update(title="Herons")
    index()
    html = page.get(reverse("chats:palette"), {"q": "hero"}).content.decode()
    assert html.count('role="option"') == 2
    assert f'data-address="{reverse("chats:chat", args=[chat.pk])}"' in html
    assert 'data-question="hero"' in html
    assert "<mark>heron</mark>" in html


def test_every_page_of_a_person_has_the_palette_and_no_other(
    page: Client, client: Client, chat: Chat
) -> None:
    for name in ("chats:search", "chats:settings", "chats:chat-new"):
        assert 'id="palette"' in page.get(reverse(name)).content.decode()
    assert 'id="palette"' not in client.get(reverse("login")).content.decode()
    assert client.get(reverse("chats:search")).status_code == 302


def test_a_new_chat_is_found_after_its_task(
    page: Client, alice: User, chat: Chat, talk: Talk, now: datetime, work: Any
) -> None:
    other = lifecycle.create_chat(owner=alice, now=now, title="Boats")
    html = found(page, "boats")
    assert reverse("chats:chat", args=[other.pk]) in html


def test_a_day_before_the_calendar_is_refused_as_a_date(page: Client, chat: Chat) -> None:
    AccountSettings.objects.update_or_create(
        owner=chat.owner, defaults={"time_zone": "Asia/Shanghai", "time_zone_chosen": True}
    )
    for name in ("before", "after"):
        html = found(page, "heron", part=False, **{name: "0001-01-01"})
        assert 'data-note="invalid-date"' in html
        assert 'data-note="invalid-date"' not in found(
            page, "heron", part=False, **{name: "0001-01-02"}
        )
