"""The summary request received by a model server equals the one rebuilt from rows."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone

from chats.actions import erasure
from chats.compaction import maintain
from chats.compaction.reconstruction import (
    build_summary_bodies,
    find_summary_model,
    rebuild_summary_request,
)
from chats.ground.commitments import is_commitment_valid
from chats.models import Chat, Compaction, ProviderAccount
from chats.record import commitment_check
from contextpolicy import ledger
from contextpolicy.engine.messages.segments import compute_text_ref, format_prompt_json
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.summaries.prompts import LOST_FACTS
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.roles import AUDITOR
from tests.contextpolicy.people import person, signed_in
from tests.fakes.fake_server import FakeServer
from tests.support.chat_summaries import GOOD_SUMMARY, SetPolicy, add_minutes

pytestmark = pytest.mark.processes
# With these values one request reads the whole chat. Later it takes several.
# A limit below the one that the policy sets for summaries.
LOWER = 256
WHOLE = {"prepare_at_tokens": 1_400, "compact_at_tokens": 1_800, "compact_to_tokens": 1_200}


@pytest.fixture
def server(long_chat: Chat, writer: ModelSpec, settings: Any) -> Iterator[FakeServer]:
    """A local server for the summary model."""
    with FakeServer() as fake:
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        ProviderAccount.objects.create(
            slug="wire", name="Wire", kind="openai", base_url=fake.base_url
        )
        ModelSpec.objects.filter(pk=writer.pk).update(provider="wire")
        fake.configure(replies=[{"text": GOOD_SUMMARY, "model": "writer"}] * 20)
        yield fake


def summarised(chat: Chat, *, now: datetime) -> Compaction:
    """Run the first attempt at a summary."""
    maintain.maintain_chat_context(
        chat_id=chat.pk, counter=ApproximateCounter(), now=add_minutes(now)
    )
    return Compaction.objects.filter(kind="summary").order_by("attempt")[0]


def told_of(row: Compaction) -> list[dict[str, Any]]:
    """Return the calls recorded in the ledger."""
    events = AuditEvent.objects.filter(chat_id=row.branch.chat_id, data__compaction=str(row.pk))
    return [event.data for event in events if "bodies" in event.data]


@pytest.mark.parametrize("cannot_stream", [False, True])
def test_inv_54_the_body_of_a_summary_has_the_hash_of_the_bytes_that_left(
    cannot_stream: bool,
    long_chat: Chat,
    writer: ModelSpec,
    server: FakeServer,
    set_policy: SetPolicy,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(cannot_stream=cannot_stream)
    set_policy(summarization_model=writer.slug, token_budget=4_000, **WHOLE)
    row = summarised(long_chat, now=now)
    sent = [record["body_sha256"] for record in server.requests()]
    assert row.bodies == sent[:1]
    found = rebuild_summary_request(row)
    assert (found.fault, found.body, found.body_sha256) == ("", "same", sent[0])
    (told, *_) = told_of(row)
    assert is_commitment_valid(told["bodies"][0], sent[0], salt=row.salt)
    page = signed_in(long_chat.owner)
    address = f"/chats/{long_chat.pk}/compactions/{row.pk}/request"
    assert sent[0] in page.get(address).content.decode()
    # The model refused a larger reply and got its own limit.
    monkeypatch.setattr("chats.providers.output_limits.MODEL_LIMITS", (LOWER,))
    model = find_summary_model(row)
    made = build_summary_bodies(row, found.messages, max_output_tokens=LOWER, model=model)
    row.bodies = [compute_text_ref(next(made))]
    lower = rebuild_summary_request(row)
    assert (lower.body, json.loads(lower.file)["max_tokens"]) == ("same", LOWER)
    row.bodies = sent[:1]
    # Other options change the body for the model. The prompt stays the same.
    ModelSpec.objects.filter(pk=writer.pk).update(cannot_stream=not cannot_stream)
    assert rebuild_summary_request(row).body == "options"


@pytest.mark.tampers
def test_each_call_of_a_summary_in_parts_has_its_hash(
    long_chat: Chat, writer: ModelSpec, server: FakeServer, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(summarization_model=writer.slug)
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_200)
    row = summarised(long_chat, now=now)
    sent = [record["body_sha256"] for record in server.requests()]
    bodies = row.bodies or []
    assert len(row.calls) == len(bodies) > 3
    assert bodies == sent[: len(bodies)]
    for number, body in enumerate(bodies, start=1):
        found = rebuild_summary_request(row, number=number)
        assert (found.fault, found.body, found.body_sha256) == ("", "same", body)
        assert is_commitment_valid(
            row.calls[number - 1], format_prompt_json(found.messages, ()), salt=row.salt
        )
    kept = row.made_of
    assert kept is not None
    Compaction.objects.filter(pk=row.pk).update(made_of={**kept, "texts": ["Never."] * 20})
    row.refresh_from_db()
    assert rebuild_summary_request(row).fault == ""
    assert rebuild_summary_request(row, number=len(bodies)).fault == "differs"


def test_what_a_second_attempt_was_told_is_built_again(
    long_chat: Chat, writer: ModelSpec, server: FakeServer, set_policy: SetPolicy, now: datetime
) -> None:
    named = {"summarization_model": writer.slug, "pinned_kinds": ["url"]}
    set_policy(token_budget=4_000, **named, **WHOLE)
    first = summarised(long_chat, now=now)
    second = Compaction.objects.get(branch=first.branch, attempt=2)
    found = rebuild_summary_request(second)
    assert found.fault == ""
    assert LOST_FACTS in found.messages[1].content
    assert found.body_sha256 == server.requests()[1]["body_sha256"]
    assert found.body == "same"


def test_owner_auditor_and_program_read_call_by_call(
    long_chat: Chat, writer: ModelSpec, server: FakeServer, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(summarization_model=writer.slug)
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_200)
    row = summarised(long_chat, now=now)
    last = len(row.calls)
    page = signed_in(long_chat.owner)
    address = f"/chats/{long_chat.pk}/compactions/{row.pk}/request"
    first = page.get(address).content.decode()
    assert f"Call 1 of {last}" in first
    assert "?call=2" in first
    ended = page.get(f"{address}?call={last}").content.decode()
    assert "The summary of part 1 of" in ended
    assert row.calls[-1] in ended
    assert "Next call" not in ended
    for nowhere in (str(last + 1), "0", "-1", "x", "9" * 30):
        assert f"Call 1 of {last}" in page.get(address, {"call": nowhere}).content.decode()

    api = f"/api/v1/chats/{long_chat.pk}/compactions/{row.pk}/request"
    said = page.get(api, {"call": last}).json()
    assert (said["call"], said["calls"], said["fault"]) == (last, last, "")
    assert (said["commitment"], said["body"]) == (row.calls[-1], "same")
    refused = page.get(api, {"call": last + 1})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_such_call")

    priya = signed_in(person("priya", AUDITOR))
    words = f"/admin/chats/receipt/words/?compaction={row.pk}"
    opened = priya.post(words, {"reason": "Complaint 2026-118"}, follow=True).content.decode()
    assert f"Call 1 of {last}" in opened
    assert row.calls[-1] in priya.get(f"{words}&call={last}").content.decode()


def test_a_changed_hash_is_found_and_an_erasure_takes_it_along(
    long_chat: Chat, writer: ModelSpec, server: FakeServer, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(summarization_model=writer.slug, token_budget=4_000, **WHOLE)
    row = summarised(long_chat, now=now)
    scope = f"chat:{long_chat.pk}"
    assert list(ledger.find_ledger_breaks(scope=scope, tally=Counter())) == []
    for changed in (["0" * 64], []):
        Compaction.objects.filter(pk=row.pk).update(bodies=changed)
        (found,) = ledger.find_ledger_breaks(scope=scope, tally=Counter())
        assert commitment_check.OTHER_BODIES in found.reason
    Compaction.objects.filter(pk=row.pk).update(bodies=row.bodies)
    message = row.branch.messages.get(seq=row.from_seq)
    erasure.erase_message(user=long_chat.owner, message=message, now=timezone.now())
    row.refresh_from_db()
    assert (row.bodies, row.made_of, row.salt) == ([], {}, "")
    assert list(ledger.find_ledger_breaks(scope=scope, tally=Counter())) == []
