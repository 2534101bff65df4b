"""Settings, webhooks: made with the secret shown once, tried out, switched off, deleted."""

import re
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import Webhook
from chats.webhooks import delivering, managing
from tests.fakes.receiver import Receiver
from tests.support.chat_pages import set_sign_in_time

PAGE = "/settings/webhooks/"
URL = "https://example.org/told"
FORM = {"url": [URL], "events": ["turn.finished", "message.added"]}


@pytest.fixture
def webhook(alice: User, receiver: Receiver) -> Webhook:
    """Alice's webhook to a server that takes everything."""
    return managing.create_webhook(
        owner=alice, url=receiver.url, events=["task.changed"], now=timezone.now()
    )[0]


def test_a_webhook_is_made_and_its_secret_shown_once(fresh: Client, alice: User) -> None:
    assert f'href="{PAGE}"' in fresh.get("/settings/").content.decode()
    html = fresh.get(PAGE).content.decode()
    assert 'data-note="no-webhooks"' in html
    assert 'value="ledger.recorded"' not in html
    html = fresh.post(PAGE, FORM).content.decode()
    found = re.search(r"<code>(whsec_[^<]+)</code>", html)
    assert found is not None
    html = fresh.get(PAGE).content.decode()
    assert found[1] not in html
    assert URL in html
    row = Webhook.objects.get(owner=alice)
    assert row.events == ["message.added", "turn.finished"]


def test_what_was_typed_stays_after_a_refusal(fresh: Client) -> None:
    response = fresh.post(PAGE, {"url": "http://example.org/x", "events": ["task.changed"]})
    html = response.content.decode()
    assert response.status_code == 422
    assert "webhook_address_refused" in html
    assert 'value="http://example.org/x"' in html
    assert re.search(r'value="task.changed"[^>]*\schecked', html)
    assert not Webhook.objects.exists()


def test_an_old_sign_in_is_confirmed_first(page: Client) -> None:
    set_sign_in_time(page, timezone.now() - timedelta(minutes=20))
    assert page.post(PAGE, FORM).status_code == 403
    assert not Webhook.objects.exists()


def test_it_is_tried_out_and_the_log_tells(
    fresh: Client, webhook: Webhook, receiver: Receiver
) -> None:
    one = f"{PAGE}{webhook.pk}/"
    assert 'data-note="no-deliveries"' in fresh.get(one).content.decode()
    assert fresh.post(f"{one}test")["Location"] == one
    assert "Queued" in fresh.get(one).content.decode()
    receiver.statuses = [500]
    delivering.send_due_deliveries(lane="fast", clock=timezone.now)
    html = fresh.get(one).content.decode()
    assert "status 500" in html
    assert 'data-reason="refused"' in html
    assert "Failing" in html
    fresh.post(f"{one}test")
    delivering.send_due_deliveries(lane="fast", clock=timezone.now)
    html = fresh.get(one).content.decode()
    assert "Delivered" in html
    told = webhook.deliveries.filter(status="delivered")[0]
    fresh.post(f"{one}deliveries/{told.public_id}/send")
    assert fresh.post(f"{one}deliveries/{told.public_id}/send").status_code == 409


def test_refused_events_stay_chosen(fresh: Client, webhook: Webhook) -> None:
    said = {"events": ["turn.finished", "no.such"]}
    response = fresh.post(f"{PAGE}{webhook.pk}/events", said)
    assert response.status_code == 422
    html = response.content.decode()
    assert re.findall(r'value="([\w.]+)"[^>]*\schecked', html) == ["turn.finished"]
    assert Webhook.objects.get().events == ["task.changed"]


def test_events_are_chosen_it_is_switched_off_and_deleted(fresh: Client, webhook: Webhook) -> None:
    one = f"{PAGE}{webhook.pk}/"
    fresh.post(f"{one}events", {"events": ["turn.finished"]})
    assert Webhook.objects.get().events == ["turn.finished"]
    assert fresh.post(f"{one}events", {}).status_code == 422
    fresh.post(f"{one}switch", {"on": "0"})
    html = fresh.get(one).content.decode()
    assert "Enable webhook" in html
    assert "Disabled" in html
    assert fresh.post(f"{one}test").status_code == 409
    fresh.post(f"{one}switch", {"on": "1"})
    assert Webhook.objects.get().off == Webhook.Off.ON
    assert fresh.post(f"{one}delete")["Location"] == PAGE
    assert not Webhook.objects.exists()


def test_s01_a_foreign_webhook_is_absent(charlies_page: Client, webhook: Webhook) -> None:
    set_sign_in_time(charlies_page, timezone.now())
    told = managing.queue_test_event(webhook=webhook, now=timezone.now())
    for pk in (webhook.pk, uuid.uuid4()):
        one = f"{PAGE}{pk}/"
        assert charlies_page.get(one).status_code == 404
        acts = ("events", "switch", "test", "delete", f"deliveries/{told.public_id}/send")
        for act in acts:
            assert charlies_page.post(f"{one}{act}").status_code == 404
    assert str(webhook.url) not in charlies_page.get(PAGE).content.decode()
    assert Webhook.objects.get().events == ["task.changed"]
