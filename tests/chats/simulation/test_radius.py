"""The blast radius: count of all chats that a policy would change, required before publication."""

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from pytest_django import Settings

from chats.actions import lifecycle
from chats.ground import leases, queue
from chats.ground.leases import LeaseLost
from chats.models import Chat
from chats.simulation import due, radius, sampling
from chats.simulation.radius import RadiusOver
from contextpolicy import blast
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.imports import import_strategy
from contextpolicy.models import BlastRadius, ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.policy_refusals import PolicyProblems
from contextpolicy.publish import (
    activate_version,
    create_policy,
    create_policy_version,
    restore_policy_version,
)
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import Page, message_codes, opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_messages import fill_with_every_kind
from tests.support.ledger_events import list_events

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_one_time")]

WIDE, NARROW = ({"strategy": "simple", "window_size": size} for size in (30, 6))
REFUSING = {**WIDE, "allowed_models": ["another"]}


@pytest.fixture
def chats(alice: User, bob: User, demo_model: ModelSpec, now: datetime) -> list[Chat]:
    """Three long chats and four short ones, of two people."""
    made = []
    for number in range(7):
        chat = lifecycle.create_chat(owner=(alice, bob)[number % 2], now=now)
        fill_with_every_kind(chat, 20 if number < 3 else 3, now=now)
        Chat.objects.filter(pk=chat.pk).update(updated_at=now)
        made.append(chat)
    return made


@pytest.fixture
def policy(now: datetime) -> ContextPolicy:
    """An instance-wide policy whose window is larger than any chat."""
    made = create_policy(slug="house", name="House", values=WIDE, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now, is_agreed=True)
    ModelSpec.objects.create(slug="another", provider="x", name="m")
    return made


@pytest.fixture
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process two chats per page."""
    monkeypatch.setattr(radius, "PAGE", 2)


def begun(policy: ContextPolicy, values: Any, *, now: datetime) -> BlastRadius:
    """A started count."""
    return radius.start_radius_count(
        policy=policy, values=values, locks=[], place="assigned", actor="user:7", now=now
    )


def work(
    row: BlastRadius, now: datetime, is_closing: Callable[[], bool] = lambda: False
) -> BlastRadius:
    """Return the row after one task processed it."""
    radius.continue_radius_count(radius_id=row.pk, clock=lambda: now, is_closing=is_closing)
    row.refresh_from_db()
    return row


def steps(row: BlastRadius, now: datetime) -> Iterator[None]:
    """Return the steps of a worker that claimed the count."""
    lease = due.RADIUS_COUNTS.claim(row.pk)
    assert lease is not None
    return radius.run_count_steps(lease, clock=lambda: now, is_closing=lambda: False)


class TestCount:
    """The background job."""

    def test_it_counts_every_chat_once_and_keeps_numbers_alone(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, pages_of_two: None
    ) -> None:
        row = work(begun(policy, NARROW, now=now), now)
        assert (row.state, row.in_use, row.judged) == ("finished", 7, 7)
        assert (row.changed, row.would_refuse, row.failed) == (3, 0, 0)
        assert (row.sampled, row.sampled_changed) == (7, 3)
        assert {each["chat"] for each in row.worst} == {str(chat.pk) for chat in chats[:3]}
        assert "Eva" not in str(row.worst)
        assert list_events("radius.started")[0].data["in_use"] == 7
        told = list_events("radius.finished")[0].data
        assert (told["judged"], told["changed"], told["digest"]) == (7, 3, row.digest)

    def test_a_killed_worker_loses_a_page_and_nothing_counts_twice(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, pages_of_two: None
    ) -> None:
        row = begun(policy, NARROW, now=now)
        for _ in range(2):
            work_of_one = steps(row, now)
            next(work_of_one)
            next(work_of_one, None)
            # The worker is killed here. Its lease expires, and the sweep finds the count.
            BlastRadius.objects.filter(pk=row.pk).update(lease_until=leases.compute_expired_end())
            assert due.enqueue_due(now=now) == 1
            BlastRadius.objects.filter(pk=row.pk).update(lease_token=uuid.uuid4())
            with pytest.raises(LeaseLost):
                list(work_of_one)
        BlastRadius.objects.filter(pk=row.pk).update(lease_until=leases.compute_expired_end())
        row = work(row, now)
        assert (row.state, row.judged, row.changed) == ("finished", 7, 3)
        assert due.enqueue_due(now=now) == 0

    def test_it_stops_in_mid_page_and_goes_on_behind_its_place(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, pages_of_two: None
    ) -> None:
        row = begun(policy, NARROW, now=now)
        working = steps(row, now)
        next(working), next(working)
        stopped = radius.stop_radius_count(radius_id=row.pk, actor="user:7", now=now)
        assert (stopped.state, stopped.judged) == ("stopped", 2)
        with pytest.raises(LeaseLost):
            next(working)
        assert due.RADIUS_COUNTS.claim(row.pk) is None
        assert (
            radius.stop_radius_count(radius_id=row.pk, actor="user:7", now=now).state == "stopped"
        )
        assert len(list_events("radius.stopped")) == 1
        assert begun(policy, NARROW, now=now).pk == row.pk
        assert len(list_events("radius.resumed")) == 1
        assert work(row, now).judged == 7
        for act in (radius.stop_radius_count, radius.resume_radius_count):
            with pytest.raises(RadiusOver, match="finished"):
                act(radius_id=row.pk, actor="user:7", now=now)

    def test_a_worker_that_is_to_end_hands_on(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, pages_of_two: None
    ) -> None:
        row = begun(policy, NARROW, now=now)
        # The shutdown request comes during the third chat, so half a page is processed again.
        looks = iter([False] * 5)
        row = work(row, now, lambda: not next(looks, False) and next(looks, None) is None)
        assert (row.state, row.lease_until) == ("counting", None)
        assert row.judged in {0, 2}
        assert work(row, now).judged == 7

    def test_it_is_void_once_another_version_is_in_force(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, pages_of_two: None
    ) -> None:
        row = begun(policy, NARROW, now=now)
        next(steps(row, now))
        create_policy_version(
            policy=policy, values=REFUSING, locks=[], note="", actor="system", now=now
        )
        BlastRadius.objects.filter(pk=row.pk).update(lease_until=leases.compute_expired_end())
        row = work(row, now)
        assert row.state == "void"
        assert list_events("radius.stopped")[0].data["void"] is True

    def test_other_content_of_the_policy_ends_the_open_count(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime
    ) -> None:
        first = begun(policy, NARROW, now=now)
        second = begun(policy, REFUSING, now=now)
        first.refresh_from_db()
        assert (first.state, second.state) == ("void", "counting")
        assert work(second, now).would_refuse == 7
        assert second.worst[0]["refuses"]
        with pytest.raises(PolicyProblems):
            begun(policy, {"window_size": -1}, now=now)

    def test_one_chat_that_fails_is_told_and_is_not_unchanged(
        self,
        chats: list[Chat],
        policy: ContextPolicy,
        now: datetime,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        judge = sampling.compare_chat

        def broken(pk: Any, **options: Any) -> Any:
            if pk == chats[0].pk:
                raise ValueError("words of a person")
            return judge(pk, **options)

        for module in ("radius", "sampling"):
            monkeypatch.setattr(f"chats.simulation.{module}.compare_chat", broken)
        row = work(begun(policy, NARROW, now=now), now)
        assert (row.judged, row.changed, row.failed) == (6, 2, 1)
        assert (row.sampled, row.sampled_changed) == (6, 2)

    def test_what_is_not_in_use_or_came_later_is_left_out(
        self, chats: list[Chat], policy: ContextPolicy, alice: User, now: datetime
    ) -> None:
        Chat.objects.filter(pk=chats[0].pk).update(updated_at=now - timedelta(days=200))
        row = begun(policy, NARROW, now=now)
        lifecycle.create_chat(owner=alice, now=now + timedelta(seconds=1))
        assert work(row, now).judged == 6


class TestPublish:
    """`publish` requires a count."""

    @pytest.fixture(autouse=True)
    def limit(self, settings: Settings) -> None:
        """Set the share of changed chats that needs no full count to at most ten percent."""
        settings.BLAST_RADIUS_LIMIT = 0.1

    def made(self, policy: ContextPolicy, values: Any, now: datetime, **more: Any) -> Any:
        """Create the next version."""
        return create_policy_version(
            policy=policy, values=values, locks=[], note="", actor="user:7", now=now, **more
        )

    def test_without_a_count_nothing_comes_into_force_by_any_door(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime
    ) -> None:
        with pytest.raises(BlastRadiusNeeded) as refusal:
            self.made(policy, NARROW, now)
        assert refusal.value.next_step == blast.PUBLISH_VERSION
        assert refusal.value.code == "blast_radius_needed"
        draft = self.made(policy, NARROW, now, is_draft=True)
        with pytest.raises(BlastRadiusNeeded):
            activate_version(policy=policy, number=draft.number, actor="user:8", now=now)
        row = work(begun(policy, NARROW, now=now), now)
        activate_version(policy=policy, number=draft.number, actor="user:8", now=now)
        assert policy.current == draft
        told = list_events("policy.version_activated")[0].data["counted"]
        assert (told["radius"], told["changed"]) == (str(row.pk), 3)

    def test_a_count_is_of_exactly_this_content_and_base_and_some_days_old(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime
    ) -> None:
        work(begun(policy, NARROW, now=now), now)
        with pytest.raises(BlastRadiusNeeded):
            self.made(policy, {**NARROW, "window_size": 5}, now)
        with pytest.raises(BlastRadiusNeeded):
            self.made(policy, NARROW, now + blast.FRESH + timedelta(seconds=1))
        second = self.made(policy, NARROW, now)
        assert second.activated_at
        # Restoring a recently active version needs no count. The earlier count covers another
        # version.
        assert restore_policy_version(policy=policy, number=1, actor="user:7", now=now).activated_at
        with pytest.raises(BlastRadiusNeeded):
            self.made(policy, NARROW, now)

    def test_a_harmless_sample_lets_it_and_a_refusal_in_it_does_not(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime
    ) -> None:
        harmless = {**WIDE, "window_size": 29}
        row = begun(policy, harmless, now=now)
        next(steps(row, now))
        assert self.made(policy, harmless, now).activated_at
        assert work(row, now).state == "counting"
        BlastRadius.objects.filter(pk=row.pk).update(lease_until=leases.compute_expired_end())
        assert work(row, now).state == "void"
        row = begun(policy, REFUSING, now=now)
        next(steps(row, now))
        with pytest.raises(BlastRadiusNeeded) as refusal:
            self.made(policy, REFUSING, now)
        assert refusal.value.count == row
        assert refusal.value.count.sampled_refuse

    def test_an_import_waits_as_a_draft(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime
    ) -> None:
        form = {"palimpsest_policy": 1, "slug": "house", "name": "House", "values": NARROW}
        import_strategy(text=json.dumps(form), actor="user:7", now=now, into=policy)
        newest = policy.newest
        assert newest is not None
        assert (newest.values, newest.activated_at) == (NARROW, None)
        assert list_events("policy.version_created")[-1].data["uncounted"] is True

    def test_an_emergency_needs_a_reason_and_no_count(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime
    ) -> None:
        draft = self.made(policy, NARROW, now, is_draft=True)
        activate_version(
            policy=policy, number=draft.number, actor="user:7", now=now, emergency="It burns"
        )
        assert list_events("policy.version_activated")[0].data["emergency"] == "It burns"

    def test_what_governs_nobody_needs_none(
        self, chats: list[Chat], now: datetime, alice: User
    ) -> None:
        free = create_policy(slug="f", name="F", values=WIDE, actor="user:7", now=now)
        assign_policy(policy=free, level="chat", chat_id=chats[0].pk, actor="user:7", now=now)
        assert self.made(free, NARROW, now).activated_at
        with pytest.raises(BlastRadiusNeeded):
            assign_policy(policy=free, level="instance", actor="user:7", now=now)
        row = radius.start_radius_count(
            policy=free, values=NARROW, locks=[], place="instance", actor="user:7", now=now
        )
        # The first of the three long chats already has this policy.
        assert work(row, now).changed == 2
        assign_policy(policy=free, level="instance", actor="user:7", now=now)

    def test_a_group_asks_for_the_count_of_its_members(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, alice: User
    ) -> None:
        # Alice owns two of the three long chats, and four of the seven chats.
        team, other = (Group.objects.create(name=name) for name in ("team", "other"))
        alice.groups.set([team, other])
        free = create_policy(slug="f", name="F", values=NARROW, actor="user:7", now=now)
        given: dict[str, Any] = {
            "policy": free,
            "values": NARROW,
            "locks": [],
            "actor": "user:7",
            "now": now,
        }
        for place, group in (("instance", None), ("instance", other), ("assigned", None)):
            assert (
                work(radius.start_radius_count(**given, place=place, group=group), now).state
                == "finished"
            )
            with pytest.raises(BlastRadiusNeeded) as refusal:
                assign_policy(policy=free, level="group", group=team, actor="user:7", now=now)
            assert refusal.value.next_step == blast.ASSIGN
        row = work(radius.start_radius_count(**given, place="instance", group=team), now)
        assert (row.in_use, row.judged, row.changed) == (4, 4, 2)
        made = assign_policy(policy=free, level="group", group=team, actor="user:7", now=now)
        told = list_events("policy.assigned")[-1].data["counted"]
        assert (told["group"], told["changed"]) == (team.pk, 2)
        # Assigning the same policy again needs no count. A count for a group does not allow a
        # publication.
        assert (
            assign_policy(policy=free, level="group", group=team, actor="user:7", now=now) == made
        )
        work(
            radius.start_radius_count(**{**given, "values": WIDE}, place="instance", group=team),
            now,
        )
        with pytest.raises(BlastRadiusNeeded):
            self.made(free, WIDE, now)

    def test_at_a_group_only_what_this_group_has_makes_way(
        self, chats: list[Chat], now: datetime, alice: User
    ) -> None:
        team, other = (Group.objects.create(name=name) for name in ("team", "other"))
        alice.groups.set([team, other])
        # If several groups have a policy, the first one by slug wins.
        for slug, group, values in (("a", other, NARROW), ("b", team, WIDE)):
            made = create_policy(slug=slug, name=slug, values=values, actor="system", now=now)
            assign_policy(
                policy=made, level="group", group=group, actor="system", now=now, is_agreed=True
            )
        new = create_policy(slug="c", name="C", values=WIDE, actor="system", now=now)
        for group, changed in ((team, 0), (other, 2)):
            row = radius.start_radius_count(
                policy=new,
                values=WIDE,
                locks=[],
                place="instance",
                group=group,
                actor="user:7",
                now=now,
            )
            assert work(row, now).changed == changed

    def test_a_first_install_is_not_held_up(self, now: datetime, policy: ContextPolicy) -> None:
        assert self.made(policy, NARROW, now).activated_at

    def test_off_is_the_default(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, settings: Settings
    ) -> None:
        settings.BLAST_RADIUS_LIMIT = None
        assert self.made(policy, NARROW, now).activated_at


class TestPages:
    """The administration."""

    def test_a_group_is_counted_and_then_gets_the_policy(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, settings: Settings
    ) -> None:
        settings.BLAST_RADIUS_LIMIT = 0.1
        team = Group.objects.create(name="team")
        ines = signed_in(person("ines", POLICY_ADMIN))
        fields = {"policy": policy.pk, "place": "group", "members_of": team.pk}
        add = "/admin/contextpolicy/policyassignment/add/"
        refused = ines.post(add, fields, follow=True)
        assert message_codes(refused) == ["blast_radius_needed"]
        assert str(blast.ASSIGN) in Page(refused.content.decode()).words
        address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"
        form = {**opened(ines, address).fields, "try-chat": "all", "try-place": f"group:{team.pk}"}
        page = ines.post(address, {**form, "_preview": "1"}).content.decode()
        row = BlastRadius.objects.get()
        assert (row.group, row.place) == (team, "instance")
        assert str(row.pk) in page
        assert (
            "members of"
            in ines.get(f"/admin/contextpolicy/blastradius/{row.pk}/count/").content.decode()
        )
        work(row, now)
        ines.post(add, fields)
        assert policy.assignments.filter(group=team).exists()

    def test_a_version_that_is_saved_waits_for_its_count(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, settings: Settings
    ) -> None:
        settings.BLAST_RADIUS_LIMIT = 0.1
        ines = signed_in(person("ines", POLICY_ADMIN))
        address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"
        form = {**opened(ines, address).fields, "window_size": "6"}
        saved = ines.post(address, {**form, "_continue": "1"}, follow=True)
        assert "waits_for_count" in message_codes(saved)
        assert str(blast.PUBLISH_VERSION) in Page(saved.content.decode()).words
        form = {**opened(ines, address).fields, "try-chat": "all", "try-place": "assigned"}
        asked = ines.post(address, {**form, "_preview": "1"}).content.decode()
        assert "Count of the chats in use (7), counting" in Page(asked).words
        row = BlastRadius.objects.get()
        count = f"/admin/contextpolicy/blastradius/{row.pk}/count/"
        assert count in asked
        work(row, now)
        ines.post(address, {**opened(ines, address).fields, "_save": "1"})
        policy.refresh_from_db()
        assert policy.current is not None
        assert policy.current.number == 2
        assert 'data-note="count-outdated"' in ines.get(count).content.decode()

    def test_a_person_stops_it_goes_on_and_sees_the_worst(
        self, chats: list[Chat], policy: ContextPolicy, now: datetime, pages_of_two: None
    ) -> None:
        ines = signed_in(person("ines", POLICY_ADMIN))
        row = begun(policy, NARROW, now=now)
        count = f"/admin/contextpolicy/blastradius/{row.pk}/count/"
        assert ines.get(count)["Refresh"] == "5"
        next(steps(row, now))
        assert ines.post(count, {"act": "stop"}).status_code == 302
        assert "Resume count" in Page(ines.get(count).content.decode()).words
        ines.post(count, {"act": "resume"})
        work(row, now)
        shown = ines.get(count)
        words = Page(shown.content.decode()).words
        assert "Finished: 7 of 7 chats" in words
        assert "3 (42.9%)" in words
        assert "Refresh" not in shown
        html = ines.get(f"{count}?chat={row.worst[0]['chat']}").content.decode()
        assert "House (edited)" in Page(html).words
        assert "asks for Eva" not in html
        for wrong in ("x", str(uuid.uuid4())):
            assert "This chat " in ines.get(f"{count}?chat={wrong}").content.decode()
        olga = signed_in(person("olga", AUDITOR))
        assert olga.get(count).status_code == 200
        assert olga.post(count, {"act": "stop"}).status_code == 403


class TestREST:
    """`/blast-radius`."""

    def asked(self, who: Client, path: str = "", body: Any = None) -> Any:
        """Return the response to a POST."""
        return who.post(f"/api/v1/blast-radius{path}", body or {}, content_type="application/json")

    def test_a_program_begins_reads_stops_and_goes_on(
        self, chats: list[Chat], policy: ContextPolicy, alice: User, settings: Settings
    ) -> None:
        settings.BLAST_RADIUS_LIMIT = 0.1
        ines, now = signed_in(person("ines", POLICY_ADMIN)), chats[0].created_at
        body = {"policy": "house", "values": NARROW}
        version = {"values": NARROW, "based_on": 1}
        post = "/api/v1/policies/house/versions"
        refused = ines.post(post, version, content_type="application/json")
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            409,
            "blast_radius_needed",
        )
        made = self.asked(ines, body=body)
        assert (made.status_code, made.json()["state"]) == (202, "counting")
        again = self.asked(ines, body=body).json()
        assert again["id"] == made.json()["id"]
        one = f"/{made.json()['id']}"
        assert self.asked(ines, f"{one}/stop").json()["state"] == "stopped"
        assert self.asked(ines, f"{one}/resume").json()["state"] == "counting"
        work(BlastRadius.objects.get(), now)
        told = ines.get(f"/api/v1/blast-radius{one}").json()
        assert (told["state"], told["judged"], told["changed"]) == ("finished", 7, 3)
        assert len(told["worst"]) == 3
        assert ines.get("/api/v1/blast-radius").json()["data"][0]["id"] == told["id"]
        late = self.asked(ines, f"{one}/stop")
        assert (late.status_code, late.json()["error"]["code"]) == (409, "radius_over")
        assert ines.post(post, version, content_type="application/json").status_code == 201
        for path in ("", one, f"{one}/stop"):
            stranger = signed_in(alice)
            answer = self.asked(stranger, path, body if not path else None)
            assert answer.status_code in {404, 405}
        assert self.asked(ines, body={"policy": "none"}).status_code == 404


def test_the_task_is_sent_after_the_commit(
    chats: list[Chat],
    policy: ContextPolicy,
    now: datetime,
    django_capture_on_commit_callbacks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(queue, "publish_task", lambda *a, **k: sent.append(a))
    with django_capture_on_commit_callbacks(execute=True):
        row = begun(policy, NARROW, now=now)
    assert (queue.COUNT_RADIUS, {"radius_id": str(row.pk)}) in sent
