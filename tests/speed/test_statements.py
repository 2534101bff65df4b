"""Compiled statements give the same results as Django's, for all values."""

import uuid
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat
from django.test.utils import CaptureQueriesContext

from chats.models import PromptText
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyAssignment, PolicyVersion
from speed import compiled, prepared

pytestmark = pytest.mark.django_db
CHAT = uuid.UUID(int=7)


@pytest.fixture(autouse=True, params=[True, False], ids=["compiled", "plain"])
def speed(request: pytest.FixtureRequest, settings: Any) -> bool:
    """Run every test of this file with compiled statements and with Django's."""
    settings.SPEED = request.param
    return settings.SPEED is True


EVENTS = prepared.Select(
    lambda at: AuditEvent.objects.filter(chat_id=at("chat"), at__gte=at("since")).order_by("seq")
)
ASSIGNED = prepared.Select(
    lambda at: PolicyAssignment.objects.select_related("policy__current", "group").filter(
        policy__slug=at("slug")
    )
)
RENUMBERED = prepared.Update(
    lambda at: PolicyVersion.objects.filter(pk=at("version"), number__lt=at("below")),
    ("note",),
    lambda at: {"number": F("number") + at("more")},
)


def event(*, seq: int, now: datetime, chat_id: uuid.UUID | None = CHAT) -> AuditEvent:
    return AuditEvent(
        scope="chat:7",
        seq=seq,
        type="turn.started",
        at=now,
        actor="system",
        chat_id=chat_id,
        data={"ü": [1, None, "%s"]},
        previous_hash="0" * 64,
        hash="1" * 64,
    )


def test_an_inserted_row_is_the_stored_one(now: datetime) -> None:
    row = event(seq=1, now=now)
    prepared.insert_row(row)
    stored = AuditEvent.objects.get()
    assert row.pk == stored.pk
    names = [field.attname for field in AuditEvent._meta.concrete_fields]
    assert [getattr(row, name) for name in names] == [getattr(stored, name) for name in names]
    assert not row._state.adding


@pytest.mark.parametrize("number", [0, 1, prepared.MOST_ROWS, 2 * prepared.MOST_ROWS + 3])
def test_inserted_rows_are_the_stored_ones(now: datetime, number: int) -> None:
    rows = [event(seq=seq, now=now + timedelta(seconds=seq)) for seq in range(number)]
    prepared.insert_all(rows)
    names = [field.attname for field in AuditEvent._meta.concrete_fields if field.attname != "id"]
    stored = AuditEvent.objects.order_by("seq")
    assert [[getattr(row, name) for name in names] for row in stored] == [
        [getattr(row, name) for name in names] for row in rows
    ]


def test_stored_rows_are_left_out() -> None:
    old, new = (PromptText(digest=digest * 64, origin="rules", text=digest) for digest in "ab")
    prepared.insert_all([old], missing=True)
    changed = PromptText(digest=old.digest, origin="rules", text="changed")
    prepared.insert_all([changed, new], missing=True)
    assert dict(PromptText.objects.values_list("digest", "text")) == {"a" * 64: "a", "b" * 64: "b"}
    with pytest.raises(IntegrityError), transaction.atomic():
        prepared.insert_all([changed])


def test_rows_are_found_by_identifier_and_time_with_other_values_each_time(now: datetime) -> None:
    for seq in (1, 2, 3):
        prepared.insert_row(event(seq=seq, now=now + timedelta(minutes=seq)))
    prepared.insert_row(event(seq=4, now=now, chat_id=None))
    later = EVENTS.rows(chat=CHAT, since=now + timedelta(minutes=2))
    assert [row.seq for row in later] == [2, 3]
    assert [row.seq for row in EVENTS.rows(chat=CHAT, since=now)] == [1, 2, 3]
    assert EVENTS.rows(chat=uuid.uuid4(), since=now) == []
    assert EVENTS.rows(chat=None, since=now) == []
    assert later[0].at == now + timedelta(minutes=2)


def test_related_rows_come_along_and_an_absent_one_is_none(now: datetime) -> None:
    policy = ContextPolicy.objects.create(slug="long", name="Long")
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=1, values={"window_size": 5}, created_at=now
    )
    policy.save()
    group = Group.objects.create(name="support")
    PolicyAssignment.objects.create(policy=policy, level="group", group=group)
    PolicyAssignment.objects.create(policy=policy, level="instance")
    rows = {row.level: row for row in ASSIGNED.rows(slug="long")}
    with CaptureQueriesContext(connection) as queries:
        assert rows["group"].group == group
        assert rows["instance"].group is None
        assert rows["group"].policy.current is not None
        assert rows["group"].policy.current.values == {"window_size": 5}
    assert not queries.captured_queries


def test_an_update_writes_values_and_expressions_where_it_should(now: datetime) -> None:
    policy = ContextPolicy.objects.create(slug="long", name="Long")
    one, nine = (
        PolicyVersion.objects.create(policy=policy, number=number, created_at=now)
        for number in (1, 9)
    )
    assert RENUMBERED.run({"note": "x"}, version=one.pk, below=5, more=2) == 1
    assert RENUMBERED.run({"note": "y"}, version=nine.pk, below=5, more=2) == 0
    assert RENUMBERED.run({"note": "z"}, version=nine.pk, below=10, more=1) == 1
    found = set(PolicyVersion.objects.values_list("number", "note"))
    assert found == {(3, "x"), (10, "z")}


def test_saved_fields_are_written_and_no_others(now: datetime) -> None:
    policy = ContextPolicy.objects.create(slug="long", name="Long", description="old")
    version = PolicyVersion.objects.create(policy=policy, number=1, created_at=now)
    policy.current, policy.name, policy.description = version, "Longer", "not saved"
    prepared.save_row_fields(policy, "current", "name")
    policy.refresh_from_db()
    assert (policy.current, policy.name, policy.description) == (version, "Longer", "old")
    policy.current = None
    prepared.save_row_fields(policy, "current", "name")
    policy.refresh_from_db()
    assert policy.current is None


def test_who_listens_to_statements_hears_them_and_they_do_the_same(now: datetime) -> None:
    heard: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        heard.append(sql.split()[0])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(listen):
        prepared.insert_row(event(seq=1, now=now))
        found = EVENTS.rows(chat=CHAT, since=now)
    assert heard == ["INSERT", "SELECT"]
    assert found == EVENTS.rows(chat=CHAT, since=now)
    assert found[0].data == EVENTS.rows(chat=CHAT, since=now)[0].data == {"ü": [1, None, "%s"]}


def test_a_refused_statement_raises_djangos_error_and_the_transaction_takes_no_more(
    now: datetime,
) -> None:
    prepared.insert_row(event(seq=1, now=now))
    with transaction.atomic():
        with pytest.raises(IntegrityError), transaction.atomic():
            prepared.insert_row(event(seq=1, now=now))
        assert len(EVENTS.rows(chat=CHAT, since=now)) == 1
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            EVENTS.rows(chat=CHAT, since=now)


def test_columns_that_were_not_asked_for_are_read_when_they_are_used(now: datetime) -> None:
    ContextPolicy.objects.create(slug="long", name="Long", description="For long chats")
    short = prepared.Select(lambda at: ContextPolicy.objects.only("name").filter(slug=at("slug")))
    row = short.first(slug="long")
    assert row is not None
    with CaptureQueriesContext(connection) as queries:
        assert row.name == "Long"
        assert not queries.captured_queries
        assert row.description == "For long chats"
    assert len(queries.captured_queries) == 1


def test_what_is_computed_stands_beside_the_columns_also_with_a_percent_sign(now: datetime) -> None:
    ContextPolicy.objects.create(slug="half", name="50 % of it", description="x")
    likened = prepared.Select(
        lambda at: ContextPolicy.objects.annotate(marked=Concat("slug", Value(" 100%"))).filter(
            slug=at("slug"), name__contains="%"
        )
    )
    row = likened.first(slug="half")
    assert row is not None
    assert cast(Any, row).marked == "half 100%"
    assert likened.first(slug="long") is None


@pytest.mark.parametrize("name", ["it's", "50 %", "%s", "%%s", "'; --", 'a "name"', "?", "ü\\"])
def test_a_text_of_the_statement_itself_is_that_text(name: str) -> None:
    named = prepared.Select(lambda at: ContextPolicy.objects.filter(name=name, slug=at("slug")))
    ContextPolicy.objects.create(slug="other", name=f"{name}!")
    written = ContextPolicy.objects.create(slug="this", name=name)
    assert named.first(slug="this") == written
    assert named.first(slug="other") is None
    with CaptureQueriesContext(connection):
        assert named.rows(slug="this") == [written]


def test_numbers_and_truths_of_the_statement_itself_are_what_they_were(now: datetime) -> None:
    for seq in (1, 2):
        event(seq=seq, now=now).save()
    second = prepared.Select(
        lambda at: AuditEvent.objects.filter(seq=2, chat_id__isnull=False, scope=at("scope"))
    )
    assert [row.seq for row in second.rows(scope="chat:7")] == [2]
    truths = prepared.Select(
        lambda at: AuditEvent.objects.annotate(yes=Value(True), no=Value(False)).filter(
            scope=at("scope")
        )
    )
    row = cast(Any, truths.first(scope="chat:7"))
    assert (row.yes, row.no) == (True, False)


def test_a_text_or_number_where_a_parameter_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        compiled.inline_parameters("a = %s AND b = %s", ["text"])
