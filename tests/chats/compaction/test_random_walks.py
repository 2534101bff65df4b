"""Random actions: after each step, every branch still has one valid, complete context."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import branching, erasure, marks
from chats.compaction import coverage, maintain, pauses
from chats.compaction.people import approve, controls, revise, undo
from chats.compaction.publish import publish_prepared
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, Compaction, Message
from chats.providers.base import Finished, TextDelta
from chats.record import history
from chats.turns.start import start_turn
from contextpolicy import ledger
from tests.support.chat_invariants import COUNTER, check_compactions, check_receipts
from tests.support.chat_summaries import GOOD_SUMMARY, SENTENCE, SetPolicy

STEPS = 45


class Walk:
    """A chat with random actions. `now` advances by a minute with each."""

    def __init__(self, *, seed: int, user: User, chat: Chat, work: Any, now: datetime) -> None:
        self.dice = random.Random(seed)  # noqa: S311  # a test's dice
        self.user, self.chat, self.work, self.now = user, chat, work, now
        self.actor = f"user:{user.pk}"

    def step(self) -> str:
        """Run one action. Refusals with a known code are expected."""
        self.now += timedelta(minutes=1)
        self.chat.refresh_from_db()
        name, action = self.dice.choice(self.deeds())
        try:
            action()
        except Refusal as refusal:
            return f"{name}: {refusal.code}"
        return str(name)

    def deeds(self) -> list[tuple[str, Callable[[], Any]]]:
        """Return the possible actions. Messages and maintenance are the most frequent."""
        row, message = self.any_summary(), self.any_message()
        deeds: list[tuple[str, Callable[[], Any]]] = [
            *[("say", self.say)] * 6,
            *[("maintain", self.maintain)] * 4,
            ("publish", self.publish),
            ("compact", self.compact),
            (
                "resume",
                lambda: pauses.resume_compaction(chat=self.chat, actor=self.actor, now=self.now),
            ),
        ]
        by: dict[str, Any] = {"user": self.user, "now": self.now}
        if row is not None:
            text = GOOD_SUMMARY.replace("4711", str(self.dice.randrange(10_000)))
            deeds += [
                *[("undo", lambda: undo.undo_summary(compaction=row, **by))] * 2,
                *[("redo", lambda: undo.redo_summary(compaction=row, **by))] * 2,
                ("revise", lambda: revise.revise_summary(compaction=row, text=text, **by)),
                ("rerun", lambda: controls.request_summary_rerun(compaction=row, **by)),
                ("approve", lambda: approve.approve_summary(compaction=row, **by)),
            ]
        if message is not None:
            mark: dict[str, Any] = {"message": message, "actor": self.actor, "now": self.now}
            deeds += [
                ("pin", lambda: marks.pin_message(**mark)),
                ("unpin", lambda: marks.unpin_message(**mark)),
                ("exclude", lambda: marks.exclude_message(**mark)),
                ("include", lambda: marks.include_message(**mark)),
                ("erase", lambda: erasure.erase_message(message=message, **by)),
                ("branch", lambda: branching.branch_from_message(message=message, **by)),
                ("choose", self.choose),
                ("edit", lambda: self.answer(self.edited(message))),
                (
                    "regenerate",
                    lambda: self.answer(branching.regenerate_reply(message=message, **by)),
                ),
            ]
        return deeds

    def any_summary(self) -> Compaction | None:
        """Return a summary of the chat, usually the active one or the last one undone."""
        branch = Branch.objects.select_related("active_compaction__base").get(
            pk=str(self.chat.active_branch_id)
        )
        undone = branch.compactions.select_related("branch").filter(status="undone")
        near = coverage.get_active_summary(branch.active_compaction)
        near = near if self.dice.random() < 0.6 else undone.order_by("-created_at").first()
        if near is not None and self.dice.random() < 0.8:
            return near
        rows = Compaction.objects.select_related("branch").filter(
            branch__chat=self.chat, kind="summary"
        )
        found = list(rows.order_by("created_at", "pk"))
        return self.dice.choice(found) if found else None

    def any_message(self) -> Message | None:
        """Return a random message of the active branch."""
        branch = Branch.objects.get(pk=str(self.chat.active_branch_id))
        path = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
        found = list(path.select_related("branch").order_by("seq"))
        return self.dice.choice(found) if found else None

    def say(self) -> None:
        """Run a whole turn."""
        text = f"Say {self.dice.randrange(1000)}. {SENTENCE}"
        self.answer(start_turn(user=self.user, chat=self.chat, text=text, now=self.now).turn)

    def answer(self, turn: Any) -> None:
        """Let a worker reply."""
        self.work(turn, [TextDelta(SENTENCE * self.dice.randrange(1, 7)), Finished("stop")])
        assert turn.status == "completed", turn.error_sentence

    def edited(self, message: Message) -> Any:
        """Return the turn of an edit."""
        made = branching.edit_message(
            user=self.user, message=message, text="Instead.", now=self.now
        )
        return made.turn

    def choose(self) -> None:
        """Switch to another branch."""
        ids = list(self.chat.branches.order_by("created_at", "pk").values_list("pk", flat=True))
        branching.choose_branch(
            user=self.user, chat=self.chat, branch_id=self.dice.choice(ids), now=self.now
        )

    def maintain(self) -> None:
        """Run maintenance as the worker does after a turn."""
        maintain.maintain_chat_context(chat_id=self.chat.pk, counter=COUNTER, now=self.now)

    def publish(self) -> None:
        """Publish as a turn does at the high threshold."""
        assert self.chat.active_branch_id
        publish_prepared(branch_id=self.chat.active_branch_id, now=self.now)

    def compact(self) -> None:
        """Run a compaction."""
        controls.compact_now(user=self.user, chat=self.chat, now=self.now)
        self.maintain()


SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6)]


@pytest.mark.parametrize("seed", [0, *SLOW])
@pytest.mark.parametrize("approval", ["nobody", "owner"])
@pytest.mark.in_turn
def test_inv_02_any_order_of_events_leaves_a_sound_context(
    seed: int,
    approval: str,
    alice: User,
    chat: Chat,
    set_policy: SetPolicy,
    work: Any,
    now: datetime,
) -> None:
    set_policy(approval=approval)
    walk = Walk(seed=seed, user=alice, chat=chat, work=work, now=now)
    for _ in range(6):
        walk.say()
    known: set[Any] = set()
    done = []
    for _ in range(STEPS):
        done.append(walk.step())
        check_compactions(chat)
        check_receipts(chat, known=known)
    walk.chat.refresh_from_db()
    walk.say()
    check_receipts(chat, known=known)
    assert list(ledger.find_ledger_breaks()) == [], done
