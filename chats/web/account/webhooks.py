"""Webhook pages: create, test, disable and delete webhooks, and show deliveries."""

import uuid
from collections.abc import Callable
from typing import Any, cast

from django import forms
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.ground.refusals import Refusal
from chats.models import Webhook
from chats.web.account.confirming import build_confirm_form, confirm_here
from chats.web.auth import PersonRequest, signed_in
from chats.web.forms import OptionsField, PageForm, TextField, format_code
from chats.web.reasons import DELIVERY_PROBLEMS
from chats.webhooks import managing

SHOWN = 50
CHOSEN = ("turn.finished",)


class EventsForm(PageForm):
    """The events of which a webhook is notified."""

    events = OptionsField(label=gettext_lazy("Events"), widget=forms.CheckboxSelectMultiple)

    def __init__(self, *args: Any, user: User, **options: Any) -> None:
        super().__init__(*args, **options)
        offered = managing.list_available_events(user)
        cast(OptionsField, self.fields["events"]).choices = [
            (name, format_html("{} {}", words, format_code(name)))
            for name, words in offered.items()
        ]


class WebhookForm(EventsForm):
    """A new webhook."""

    url = TextField(
        label=gettext_lazy("Address"),
        max_length=managing.LONGEST_URL,
        widget=forms.URLInput(attrs={"autocomplete": "off"}),
    )
    field_order = ("url", "events")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, auto_id="webhook-%s", **options)
        self.fields["url"].help_text = gettext(
            "Enter a public https URL. You can create up to %(most)s webhooks."
        ) % {"most": managing.WEBHOOKS_PER_PERSON}


@require_http_methods(["GET", "POST"])
@signed_in
def webhooks(request: PersonRequest) -> HttpResponse:
    """List the user's webhooks, or create one. Only this response shows the new secret."""
    empty = WebhookForm(user=request.user, initial={"events": CHOSEN})
    if request.method == "GET":
        return render_webhooks(request, empty)
    form = WebhookForm(request.POST, user=request.user)
    values = form.read_values()
    with form.catch_refusal():
        confirm_here(request)
        made, secret = managing.create_webhook(
            owner=request.user,
            url=values["url"].strip(),
            events=values["events"],
            now=timezone.now(),
        )
        return render_webhooks(request, empty, made=made, secret=secret)
    return render_webhooks(request, form)


def render_webhooks(
    request: PersonRequest, form: WebhookForm, *, made: Webhook | None = None, secret: str = ""
) -> HttpResponse:
    """Render the list and the form.

    `made`, `secret`: a webhook that was just created, and its secret.
    """
    context = {
        "webhooks": managing.list_webhooks(owner=request.user),
        "form": form,
        "confirm": build_confirm_form(request),
        "refusal": form.refusal,
        "made": made,
        "secret": secret,
    }
    return render(request, "webhooks.html", context, status=form.status)


@require_GET
@signed_in
def webhook(request: PersonRequest, webhook_id: uuid.UUID) -> HttpResponse:
    return render_webhook_page(
        request, managing.get_webhook(user=request.user, webhook_id=webhook_id)
    )


def render_webhook_page(
    request: PersonRequest,
    row: Webhook,
    *,
    form: EventsForm | None = None,
    refusal: Refusal | None = None,
) -> HttpResponse:
    """Render the page of a webhook. `form`: a refused form, which keeps its values."""
    form = form or EventsForm(user=request.user, initial={"events": row.events})
    refusal = refusal or form.refusal
    log = list(managing.list_delivery_log(row)[:SHOWN])
    context = {
        "webhook": row,
        "form": form,
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
    row = managing.get_webhook(user=request.user, webhook_id=webhook_id)
    form = EventsForm(request.POST, user=request.user)
    with form.catch_refusal():
        managing.update_webhook(webhook=row, now=timezone.now(), **form.read_values())
        return redirect("chats:webhook", webhook_id)
    return render_webhook_page(request, row, form=form)


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
