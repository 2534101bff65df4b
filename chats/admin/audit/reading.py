"""The page on which an auditor reads the prompt of a call after giving a reason."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext

from chats.actions.auditing import (
    find_any_compaction,
    find_any_receipt,
    read_prompt,
    read_summary_request,
)
from chats.admin.audit.records import ReceiptAdmin
from chats.admin.forms import build_reason_field
from chats.admin.site import get_request_actor
from chats.admin.words import LEFT_OUT
from chats.compaction.reconstruction import build_summary_request_file, number_in
from chats.ground.refusals import NotFound, Refusal
from chats.models import Compaction, Receipt
from chats.prompt.sent_request import FORMS, RequestFile, build_request_file
from chats.record import audit_access
from chats.streams import files

TEMPLATE = "admin/chats/words.html"
END = "end"
GRANT, REFUSE = "grant", "refuse"
ANSWERS = {GRANT, REFUSE}


class ReadReceiptAdmin(ReceiptAdmin):
    """Receipts. Auditors can read their prompt texts once a reason is recorded."""

    fields: ClassVar[tuple[str, ...]] = ("words", *ReceiptAdmin.fields)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, with a notice about requests that wait for a second auditor."""
        may_read = request.user.has_perm("contextpolicy.view_auditevent")
        if may_read and request.method == "GET":
            rows = list_waiting_requests(actor=get_request_actor(request), now=timezone.now())
            others = [row for row in rows if not row.is_own]
            if others:
                self.message_user(
                    request,
                    format_html(
                        ngettext(
                            "{n} request to read a chat waits for a second auditor: "
                            '<a href="{url}">review request</a>.',
                            "{n} requests to read a chat wait for a second auditor: "
                            '<a href="{url}">review requests</a>.',
                            len(others),
                        ),
                        n=len(others),
                        url=reverse("admin:chats_receipt_words"),
                    ),
                )
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.read_words)
        return [path("words/", page, name="chats_receipt_words"), *super().get_urls()]

    @admin.display(description=gettext_lazy("Prompt text"))
    def words(self, receipt: Receipt) -> SafeString:
        address = reverse("admin:chats_receipt_words")
        label = gettext("Read the prompt (requires a reason)")
        return format_html('<a href="{}?receipt={}">{}</a>', address, receipt.pk, label)

    def read_words(self, request: HttpRequest) -> HttpResponse:
        """Request a reason, then show the prompt of a call or send it as a file.

        Raises PermissionDenied without the permissions to view receipts and the ledger.
        """
        may_read = request.user.has_perm("contextpolicy.view_auditevent")
        if not self.has_view_permission(request) or not may_read:
            raise PermissionDenied
        call = find_requested_call(request)
        now, actor = timezone.now(), get_request_actor(request)
        if ANSWERS.intersection(request.POST):
            return self.answered(request, actor=actor)
        if call is None:
            return self.shown(
                request, call=None, waiting=list_waiting_requests(actor=actor, now=now)
            )
        until = audit_access.get_reading_expiry(chat_id=call.chat_id, actor=actor, now=now)
        if request.method == "POST" and until is not None and END in request.POST:
            return self.ended(request, chat_id=call.chat_id, actor=actor)
        if until is None:
            if request.method == "POST" and self.opened(request, chat_id=call.chat_id, actor=actor):
                return HttpResponseRedirect(request.get_full_path())
            own = audit_access.find_waiting_request(chat_id=call.chat_id, actor=actor, now=now)
            two = settings.TWO_PERSONS
            reason = build_reason_field(request)
            return self.shown(request, call=call, own=own, two_persons=two, reason=reason)
        return self.read(request, call=call, actor=actor, until=until)

    def read(
        self, request: HttpRequest, *, call: "CallToRead", actor: str, until: datetime
    ) -> HttpResponse:
        """Record the access, then show the prompt of a call or send it as a file."""
        now = timezone.now()
        form = request.POST.get("form", "")
        form = form if form in FORMS else ""
        if isinstance(call.row, Compaction):
            number = number_in(request.GET.get("call", ""), call.row)
            found = read_summary_request(call.row, number=number, actor=actor, now=now, form=form)
            if form and found.file:
                return download_request_file(build_summary_request_file(found, form=form))
            more = {"lines": found.lines, "fault": found.reason, "asked": found}
            more["prefix"] = found.prefix
            return self.shown(request, call=call, until=until, **more)
        sent = read_prompt(call.row, actor=actor, now=now, form=form)
        if form and not sent.found.fault:
            return download_request_file(build_request_file(sent, form=form))
        more = {"sent": sent, "lines": sent.lines, "fault": sent.fault, "prefix": sent.prefix}
        more |= {"earlier": sent.prefix.before if sent.prefix else None}
        left_out = [(a, b, LEFT_OUT.get(why, why), why) for a, b, why in call.row.left_out]
        return self.shown(request, call=call, until=until, left_out=left_out, **more)

    def answered(self, request: HttpRequest, *, actor: str) -> HttpResponse:
        """Grant or refuse another auditor's request, then redirect to the page."""
        is_granted = GRANT in request.POST
        named = request.POST.get(GRANT if is_granted else REFUSE, "")
        try:
            asked_id = uuid.UUID(named)
            audit_access.decide_reading_request(
                asked_id, is_granted=is_granted, actor=actor, now=timezone.now()
            )
        except (ValueError, NotFound):
            message = gettext("This request was already granted or refused.")
            self.message_user(request, message, messages.ERROR, "already_answered")
        except Refusal as refusal:
            self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
        else:
            message = gettext("Request refused. The requester may not read the chat.")
            if is_granted:
                message = gettext(
                    "Request granted. The requester may read the chat for 30 minutes."
                )
            code = "access_granted" if is_granted else "access_refused"
            self.message_user(request, message, messages.SUCCESS, code)
        return HttpResponseRedirect(request.get_full_path())

    def ended(self, request: HttpRequest, *, chat_id: uuid.UUID, actor: str) -> HttpResponse:
        """End the access and redirect to the page, which then requests a reason again."""
        audit_access.close_reading(chat_id=chat_id, actor=actor, now=timezone.now())
        return HttpResponseRedirect(request.get_full_path())

    def opened(self, request: HttpRequest, *, chat_id: uuid.UUID, actor: str) -> bool:
        """Record the reason. Returns False after a refusal, which the page shows.

        The reason opens the chat, or requests the approval of a second auditor.
        """
        try:
            audit_access.open_reading(
                chat_id=chat_id,
                actor=actor,
                reason=request.POST.get("reason", ""),
                now=timezone.now(),
            )
        except Refusal as refusal:
            self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
            return False
        return True

    def shown(self, request: HttpRequest, **context: Any) -> HttpResponse:
        """Render the page with `Cache-Control: no-store`."""
        more = {**self.admin_site.each_context(request), "title": gettext("Model call prompt")}
        response = TemplateResponse(request, TEMPLATE, {**more, "opts": self.opts, **context})
        response["Cache-Control"] = "no-store"
        return response


@dataclass(frozen=True, slots=True)
class Waiting:
    """A reading request that waits for a second auditor, with the requester's name."""

    asked: audit_access.ReadingRequest
    name: str
    is_own: bool


def list_waiting_requests(*, actor: str, now: datetime) -> list[Waiting]:
    """Return the reading requests that wait for a second auditor, newest first."""
    rows = audit_access.list_reading_requests(now=now)
    names = dict(
        User.objects.filter(pk__in={row.user for row in rows}).values_list("pk", "username")
    )
    own = audit_access.parse_actor_id(actor)
    nameless = gettext("user {number}")
    return [
        Waiting(row, names.get(row.user, nameless.format(number=row.user)), row.user == own)
        for row in rows
    ]


def download_request_file(file: RequestFile) -> HttpResponse:
    return files.build_text_download(file.text, name=file.name, kind=file.kind)


@dataclass(frozen=True, slots=True)
class CallToRead:
    """A model call that an auditor wants to read, with its chat."""

    row: Receipt | Compaction
    chat_id: uuid.UUID


def find_requested_call(request: HttpRequest) -> CallToRead | None:
    """Return the call given by `?receipt=` or `?compaction=`, or None."""
    try:
        if key := request.GET.get("receipt"):
            receipt = find_any_receipt(uuid.UUID(key))
            return CallToRead(receipt, receipt.turn.branch.chat_id)
        row = find_any_compaction(uuid.UUID(request.GET.get("compaction", "")))
    except (ValueError, NotFound):
        return None
    return CallToRead(row, row.branch.chat_id)
