"""Two Owners who lose the role at the same time do not leave the instance without one."""

import threading
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction

from contextpolicy import roles
from tests.contextpolicy.people import person
from tests.faults.programs import until


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="its test database has one connection")
def test_two_owners_who_leave_at_once_do_not_both_leave(
    transactional_ledger: None, now: datetime
) -> None:
    ines, mara = person("ines", roles.OWNER), person("mara", roles.OWNER)
    # `person` makes another Owner.
    User.objects.exclude(pk__in=[ines.pk, mara.pk]).update(is_active=False)
    told: list[str] = []

    def leave() -> None:
        try:
            roles.change_roles(person=mara, groups=[], actor="system", now=now)
        except roles.LastOwner as refusal:
            told.append(refusal.code)
        finally:
            connections.close_all()

    thread = threading.Thread(target=leave)
    with transaction.atomic():
        roles.change_roles(person=ines, groups=[], actor="system", now=now)
        thread.start()
        until(is_waited_for, what="the second change")
    thread.join(20)

    assert told == ["last_owner"]
    assert list(User.objects.filter(groups__name=roles.OWNER, is_active=True)) == [mara]


def is_waited_for() -> bool:
    """Return True if a connection waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])
