"""Records for auditors and integrators: compactions, effective policies, audit events."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from chats.models import Chat, Compaction
from contextpolicy import ledger
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    EffectivePolicy,
    PolicyAssignment,
    PolicyVersion,
)
from tests.chats.api.programs import MakeProgram, Program

SECRET_PROMPT = "You are a discreet assistant of Example & Co."


@pytest.fixture
def auditor(db: None) -> User:
    """A user who can read the ledger."""
    person = User.objects.create_user("auditor")
    person.user_permissions.add(Permission.objects.get(codename="view_auditevent"))
    return person


def lay(values: dict[str, Any], now: datetime, *, locks: tuple[str, ...] = ()) -> None:
    """Store an instance-wide policy without validation."""
    policy = ContextPolicy.objects.create(slug="support", name="Support")
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=7, values=values, locks=list(locks), created_at=now
    )
    policy.save()
    PolicyAssignment.objects.create(policy=policy, level="instance")


def test_policy_says_what_holds_and_where_it_comes_from(
    of_alice: Program, chat: Chat, now: datetime
) -> None:
    lay(
        {"keep_last_messages": 20, "system_text": SECRET_PROMPT}, now, locks=("keep_last_messages",)
    )
    seen = of_alice.get(f"chats/{chat.pk}/policy").json()
    assert seen["label"] == "Support v7"
    assert seen["values"]["keep_last_messages"] == 20
    assert seen["values"]["system_text"] == SECRET_PROMPT
    assert seen["sources"]["keep_last_messages"] == {
        "level": "instance",
        "policy": "support",
        "version": 7,
        "locked": True,
    }
    assert set(seen["sources"]) == set(seen["values"])
    assert seen["system_text"]["hidden"] is False


def test_hidden_system_text_is_told_by_size_and_hash_only(
    of_alice: Program, chat: Chat, now: datetime
) -> None:
    own = {"system_text": SECRET_PROMPT, "summary_instruction": SECRET_PROMPT}
    lay({**own, "hide_system_text": True}, now)
    answer = of_alice.get(f"chats/{chat.pk}/policy")
    assert "discreet" not in answer.content.decode()
    hidden = answer.json()["system_text"]
    assert (hidden["hidden"], hidden["characters"]) == (True, len(SECRET_PROMPT))
    assert len(hidden["sha256"]) == 64


def test_impossible_policy_is_a_conflict_and_not_an_error_of_ours(
    of_alice: Program, chat: Chat, now: datetime
) -> None:
    lay({"token_budget": 100, "reserve_tokens": 5_000}, now)
    for answer in (
        of_alice.get(f"chats/{chat.pk}/policy"),
        of_alice.post(f"chats/{chat.pk}/messages", {"text": "Hello"}),
    ):
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "policy_impossible"
        assert len(answer.json()["error"]["message"]) > 20


def test_compactions_name_their_originals(of_alice: Program, chat: Chat, now: datetime) -> None:
    policy = EffectivePolicy.objects.create(digest="d" * 64, values={}, sources={})
    assert chat.active_branch
    made = [
        Compaction.objects.create(
            branch=chat.active_branch,
            kind="summary",
            status=status,
            from_seq=1,
            to_seq=to,
            exceptions=[3],
            source_count=to - 1,
            text=f"Summary to {to}",
            reason="why",
            trigger="marks",
            effective_policy=policy,
            created_at=now + timedelta(minutes=to),
        )
        for to, status in ((4, "replaced"), (8, "published"), (9, "failed"))
    ]
    listed = of_alice.get(f"chats/{chat.pk}/compactions", limit=2).json()
    assert [row["status"] for row in listed["data"]] == ["failed", "published"]
    rest = of_alice.get(f"chats/{chat.pk}/compactions", cursor=listed["next_cursor"]).json()
    assert [row["status"] for row in rest["data"]] == ["replaced"]
    one = of_alice.get(f"chats/{chat.pk}/compactions/{made[1].pk}").json()
    assert one == listed["data"][1]
    assert one["originals"]["from_seq"] == 1
    assert one["originals"]["to_seq"] == 8
    assert one["originals"]["exceptions"] == [3]
    assert "lease_token" not in one


def test_people_read_the_events_of_their_own_chats(
    of_alice: Program, of_charlie: Program, chat: Chat
) -> None:
    types = {event["type"] for event in of_alice.get("audit/events").json()["data"]}
    assert types == {"chat.created"}
    assert of_charlie.get("audit/events").json()["data"] == []


def test_auditors_read_everything_in_pages(
    program: MakeProgram, auditor: User, of_alice: Program, chat: Chat
) -> None:
    client = program(auditor)
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = client.get("audit/events", limit=2, cursor=cursor).json()
        assert len(page["data"]) <= 2
        seen += [event["hash"] for event in page["data"]]
        cursor = page["next_cursor"]
    assert seen == list(AuditEvent.objects.values_list("hash", flat=True))
    assert len(seen) >= 3


def test_events_are_filtered(
    program: MakeProgram, auditor: User, chat: Chat, now: datetime
) -> None:
    later = now + timedelta(hours=1)
    ledger.record_event("chat.model_changed", actor="user:1", now=later, chat_id=chat.pk)
    client = program(auditor)

    def found(**query: Any) -> list[str]:
        return [event["type"] for event in client.get("audit/events", **query).json()["data"]]

    assert found(type="chat.created") == ["chat.created"]
    assert found(chat=chat.pk) == ["chat.model_changed", "chat.created"]
    assert found(chat=chat.pk, since=later.isoformat()) == ["chat.model_changed"]
    assert found(chat=chat.pk, since=(later + timedelta(seconds=1)).isoformat()) == []
    assert found(q=f"event:chat.* -event:chat.created at:{later:%Y-%m-%d}") == [
        "chat.model_changed"
    ]
    assert found(q="actor:auditor event:ledger.read")[0] == "ledger.read"


def test_a_search_line_is_refused_with_a_sentence_and_tells_no_names(
    program: MakeProgram, auditor: User, of_alice: Program, of_charlie: Program
) -> None:
    refused = program(auditor).get("audit/events", q="colour:red")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "search_not_understood"
    assert "Use one of event:" in refused.json()["error"]["message"]
    # Charlie gets the same response for existing and unknown names.
    known, unknown = (of_charlie.get("audit/events", q=f"actor:{n}") for n in ("alice", "zoe"))
    assert known.status_code == unknown.status_code == 400
    assert known.json()["error"]["message"] == unknown.json()["error"]["message"]
    assert of_charlie.get("audit/events", q="event:chat.*").json()["data"] == []
    assert not AuditEvent.objects.filter(type="ledger.read", actor__in=["alice"]).exists()


@pytest.mark.parametrize(
    "query", [{"type": "x"}, {"chat": "x"}, {"since": "yesterday"}, {"actor": "user:1"}]
)
def test_bad_filter_is_refused(query: dict[str, str], of_alice: Program) -> None:
    answer = of_alice.get("audit/events", **query)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(query))
