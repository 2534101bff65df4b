"""Webhook pages: create, test, disable and delete webhooks, and show deliveries."""

import uuid
from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.ground.refusals import Refusal
from chats.models import Webhook
from chats.web.account.confirming import confirm_here, is_recently_confirmed
from chats.web.auth import PersonRequest, signed_in
from chats.web.reasons import DELIVERY_PROBLEMS
from chats.webhooks import managing

SHOWN = 50
CHOSEN = ("turn.finished",)


@require_http_methods(["GET", "POST"])
@signed_in
def webhooks(request: PersonRequest) -> HttpResponse:
    """List the user's webhooks, or create one. Only this response shows the new secret."""
    if request.method == "GET":
        return list_page(request)
    try:
        confirm_here(request)
        made, secret = managing.create_webhook(
            owner=request.user,
            url=request.POST.get("url", "").strip(),
            events=request.POST.getlist("events"),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return list_page(request, refusal=refusal)
    return list_page(request, made=made, secret=secret)


def list_page(
    request: PersonRequest,
    *,
    refusal: Refusal | None = None,
    made: Webhook | None = None,
    secret: str = "",
) -> HttpResponse:
    """Render the webhooks and the form. After a `refusal`, the form keeps the typed values."""
    chosen = request.POST.getlist("events") if refusal else CHOSEN
    offered = managing.list_available_events(request.user)
    context = {
        "webhooks": managing.list_webhooks(owner=request.user),
        "events": [(name, words, name in chosen) for name, words in offered.items()],
        "url": request.POST.get("url", "") if refusal else "",
        "most": managing.WEBHOOKS_PER_PERSON,
        "is_fresh": is_recently_confirmed(request),
        "refusal": refusal,
        "made": made,
        "secret": secret,
    }
    return render(request, "webhooks.html", context, status=refusal.status if refusal else 200)


@require_GET
@signed_in
def webhook(request: PersonRequest, webhook_id: uuid.UUID) -> HttpResponse:
    return render_webhook_page(
        request, managing.get_webhook(user=request.user, webhook_id=webhook_id)
    )


def render_webhook_page(
    request: PersonRequest, row: Webhook, *, refusal: Refusal | None = None
) -> HttpResponse:
    log = list(managing.list_delivery_log(row)[:SHOWN])
    context = {
        "webhook": row,
        "events": [
            (name, words, name in row.events)
            for name, words in managing.list_available_events(request.user).items()
        ],
        "log": [(told, DELIVERY_PROBLEMS.get(told.problem, "")) for told in log],
        "shown": SHOWN,
        "is_cut": len(log) == SHOWN,
        "refusal": refusal,
    }
    return render(request, "webhook.html", context, status=refusal.status if refusal else 200)


def run_webhook_action(
    request: PersonRequest, webhook_id: uuid.UUID, act: Callable[[Webhook], Any]
) -> HttpResponse:
    """Run an action on the user's webhook and redirect to its page."""
    row = managing.get_webhook(user=request.user, webhook_id=webhook_id)
    try:
        act(row)
    except Refusal as refusal:
        return render_webhook_page(request, row, refusal=refusal)
    return redirect("chats:webhook", webhook_id)


@require_POST
@signed_in
def webhook_events(request: PersonRequest, webhook_id: uuid.UUID) -> HttpResponse:
    """Save the events of a webhook and redirect to its page."""
    events = request.POST.getlist("events")
    now = timezone.now()
    return run_webhook_action(
        request,
        webhook_id,
        lambda row: managing.update_webhook(webhook=row, events=events, now=now),
    )


@require_POST
@signed_in
def webhook_switch(request: PersonRequest, webhook_id: uuid.UUID) -> HttpResponse:
    is_on = request.POST.get("on") == "1"
    now = timezone.now()
    return run_webhook_action(
        request, webhook_id, lambda row: managing.update_webhook(webhook=row, is_on=is_on, now=now)
    )


@require_POST
@signed_in
def webhook_test(request: PersonRequest, webhook_id: uuid.UUID) -> HttpResponse:
    """Send a test delivery, `webhook.test`."""
    return run_webhook_action(
        request, webhook_id, lambda row: managing.queue_test_event(webhook=row, now=timezone.now())
    )


@require_POST
@signed_in
def webhook_send(
    request: PersonRequest, webhook_id: uuid.UUID, delivery_id: uuid.UUID
) -> HttpResponse:
    """Resend a finished delivery."""

    def send(row: Webhook) -> None:
        delivery = managing.get_delivery(webhook=row, public_id=delivery_id)
        managing.resend_delivery(webhook=row, delivery=delivery, now=timezone.now())

    return run_webhook_action(request, webhook_id, send)


@require_POST
@signed_in
def webhook_delete(request: PersonRequest, webhook_id: uuid.UUID) -> HttpResponse:
    row = managing.get_webhook(user=request.user, webhook_id=webhook_id)
    managing.delete_webhook(webhook=row, now=timezone.now())
    return redirect("chats:webhooks")
