"""`python -m tests.faults.retention_kills`: kill retention runs at random boundaries.

A child process continues a run and is killed (SIGKILL) before a statement or on either side of a
commit. Its successor continues from there. Legal holds are placed between kills. At the end every
due message without a hold is erased once, no other message is, and the certificate is valid.

--kills N      number of kills; the rest of the run is not killed
    --chats N      number of chats
    --seed N       seed for the boundaries and the holds

Exits with a code other than 0 at the first violation. Data is stored as for `crashes`.
"""

import argparse
import random
import sys
from datetime import datetime, timedelta
from functools import partial

from tests.faults.borders import in_child  # Sets up Django, so it comes first.

# isort: split

from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from benchmarks.bulk import fill
from chats.actions import certificates, lifecycle, retention
from chats.models import Chat, Message, RetentionRun
from contextpolicy import holds, ledger
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.faults import town
from tests.faults.laws import Violation

DAYS = 90
HOLDS = 3
# A child runs only a few steps, so most children are killed.
BORDERS = 150


def prepare(owner: User, *, chats: int, dice: random.Random, now: datetime) -> None:
    """Make chats in which some messages are too old, all are, or none."""
    policy = create_policy(
        slug="ninety", name="Ninety", values={"retention_days": DAYS}, actor="system", now=now
    )
    assign_policy(policy=policy, level="user", user=owner, actor="system", now=now)
    for _ in range(chats):
        chat = lifecycle.create_chat(owner=owner, now=now)
        size, old = dice.randrange(2, 9), dice.randrange(0, 9)
        fill(chat, [f"Old message {number}" for number in range(size)], now=now)
        ago = now - timedelta(days=DAYS + 1)
        Message.objects.filter(branch__chat=chat, seq__lte=old).update(created_at=ago)


def look(due: set[str], *, young: set[str]) -> None:
    """Raise `Violation` if a message was erased twice or was not due."""
    left = {str(pk) for pk in Message.objects.filter(erased_at=None).values_list("pk", flat=True)}
    if not young <= left:
        raise Violation("a message was erased that was not due")
    events = AuditEvent.objects.filter(type="message.erased")
    told = [event.data["message"] for event in events]
    if len(told) != len(set(told)) or not set(told) <= due:
        raise Violation("a message was certified twice, or was not due")


def play(owner: User, *, kills: int, dice: random.Random, now: datetime) -> tuple[int, int]:
    """Kill the run until it completes; return the numbers of kills and holds."""
    due, young = by_age(owner, now=now)
    go_on = partial(retention.continue_retention_run, clock=timezone.now, is_closing=lambda: False)
    killed = held = 0
    while RetentionRun.objects.get().is_open:
        killed += in_child(go_on, at=dice.randrange(1, BORDERS) if killed < kills else 0)
        RetentionRun.objects.update(lease_until=None)
        look(due, young=young)
        free = Chat.objects.exclude(pk__in=holds.load_held_targets(now=now).chats).order_by("-pk")
        if held < HOLDS and (chat := free.first()) is not None:
            held += 1
            holds.place_hold(
                level="chat", chat_id=chat.pk, case="7", reason="Why", actor="user:1", now=now
            )
    return killed, held


def by_age(owner: User, *, now: datetime) -> tuple[set[str], set[str]]:
    """The messages that are too old, and the others."""
    ago = now - timedelta(days=DAYS)
    rows = Message.objects.filter(branch__chat__owner=owner).values_list("pk", "created_at")
    return (
        {str(pk) for pk, said_at in rows if said_at <= ago},
        {str(pk) for pk, said_at in rows if said_at > ago},
    )


def settle(run: RetentionRun, *, chats: int, now: datetime) -> None:
    """Raise `Violation` if the run is incomplete or its certificate is invalid."""
    run.refresh_from_db()
    kept = holds.load_held_targets(now=now).chats
    old = Message.objects.filter(erased_at=None, created_at__lte=now - timedelta(days=DAYS))
    if old.exclude(branch__chat__in=kept).exists():
        raise Violation("a message that was due and free was left")
    if run.chats != chats:
        raise Violation(f"{run.chats} chats were looked at, {chats} there were")
    if faults := [
        *certificates.list_certificate_faults(run),
        *map(str, ledger.find_ledger_breaks()),
    ]:
        raise Violation(f"the certificate or the ledger is broken: {faults}")


def main() -> None:
    """Run with the given options and print the result."""
    given = argparse.ArgumentParser()
    given.add_argument("--kills", type=int, default=30)
    given.add_argument("--chats", type=int, default=24)
    given.add_argument("--seed", type=int, default=1)
    asked = given.parse_args()
    dice = random.Random(asked.seed)  # noqa: S311  # a test's dice
    owner, now = town.prepare(dice), timezone.now()
    prepare(owner, chats=asked.chats, dice=dice, now=now)
    retention.AT_ONCE = 2
    run = retention.start_retention_run(actor="system", now=now)
    killed, held = play(owner, kills=asked.kills, dice=dice, now=now)
    settle(run, chats=asked.chats, now=now)
    sys.stdout.write(
        f"database: {connection.vendor}, seed {asked.seed}\n{killed} kills, {held} holds, "
        f"{run.messages_erased} messages erased, {run.chats_erased} chats, {run.chats_held} held\n"
        "0 lost, 0 doubled, the certificate holds\n"
    )


if __name__ == "__main__":
    main()
