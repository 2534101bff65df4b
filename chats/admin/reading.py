"""The page on which an auditor reads the words of one call, with a reason that stands first."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chats.admin.records import ReceiptAdmin
from chats.compaction.rebuilt import SUMMARY_FAULTS, summary_request_of
from chats.models import Compaction, Receipt
from chats.prompt.as_sent import FORMS, Line, as_sent
from chats.record import reading
from contextpolicy.admin.site import actor_of

TEMPLATE = "admin/chats/words.html"


class ReadReceiptAdmin(ReceiptAdmin):
    """Receipts, whose words are shown after a reason was written down."""

    fields: ClassVar[tuple[str, ...]] = ("words", *ReceiptAdmin.fields)

    def get_urls(self) -> list[URLPattern]:
        """Add the page."""
        page = self.admin_site.admin_view(self.read_words)
        return [path("words/", page, name="chats_receipt_words"), *super().get_urls()]

    @admin.display(description="Words")
    def words(self, receipt: Receipt) -> SafeString:
        """Lead to the words."""
        address = reverse("admin:chats_receipt_words")
        link = '<a href="{}?receipt={}">Read the words, with a reason</a>'
        return format_html(link, address, receipt.pk)

    def read_words(self, request: HttpRequest) -> HttpResponse:
        """Ask for a reason, then show the prompt of a call, or send it as a file.

        Raises PermissionDenied for who may not read receipts and the ledger.
        """
        may_read = request.user.has_perm("contextpolicy.view_auditevent")
        if not self.has_view_permission(request) or not may_read:
            raise PermissionDenied
        call = call_of(request)
        if call is None:
            return self.shown(request, call=None)
        now, actor = timezone.now(), actor_of(request)
        until = reading.open_until(chat_id=call.chat_id, actor=actor, now=now)
        if until is None:
            if request.method == "POST":
                return self.opened(request, chat_id=call.chat_id, actor=actor)
            return self.shown(request, call=call)
        if isinstance(call.row, Compaction):
            return self.summary(request, call=call, until=until)
        return self.prompt(request, call=call, receipt=call.row, until=until)

    def prompt(
        self, request: HttpRequest, *, call: "Call", receipt: Receipt, until: datetime
    ) -> HttpResponse:
        """Show the prompt of a receipt, or send it as a file; the ledger has it first."""
        form = request.POST.get("form", "")
        sent = as_sent(receipt, sees_hidden=True)
        is_file = form in FORMS and not sent.found.fault
        self.note(request, call=call, form=form if is_file else "")
        if is_file:
            name, kind, write = FORMS[form]
            response = HttpResponse(write(sent.found), content_type=kind)
            response["Content-Disposition"] = f'attachment; filename="{name}"'
            response["Cache-Control"] = "no-store"
            return response
        return self.shown(
            request,
            call=call,
            until=until,
            sent=sent,
            lines=sent.lines,
            fault=sent.fault,
            left_out=receipt.left_out,
            earlier=sent.prefix.before if sent.prefix else None,
        )

    def summary(self, request: HttpRequest, *, call: "Call", until: datetime) -> HttpResponse:
        """Show the request for a summary; the ledger has it first."""
        found = summary_request_of(cast(Compaction, call.row), sees_hidden=True)
        self.note(request, call=call)
        lines = [Line("new", wire.role, wire.content) for wire in found.messages]
        fault = SUMMARY_FAULTS.get(found.fault, "")
        return self.shown(request, call=call, until=until, lines=lines, fault=fault)

    def note(self, request: HttpRequest, *, call: "Call", form: str = "") -> None:
        """Write into the ledger that the words of a call are read or sent."""
        reading.note_read(
            chat_id=call.chat_id,
            call={call.name: str(call.row.pk)},
            actor=actor_of(request),
            now=timezone.now(),
            form=form,
        )

    def opened(self, request: HttpRequest, *, chat_id: uuid.UUID, actor: str) -> HttpResponse:
        """Write the reason down and show the page again; a bad one is refused with a sentence."""
        try:
            reading.open_chat(
                chat_id=chat_id,
                actor=actor,
                reason=request.POST.get("reason", ""),
                now=timezone.now(),
            )
        except reading.ReasonNeeded as refusal:
            self.message_user(request, refusal.sentence, messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())

    def shown(self, request: HttpRequest, **context: Any) -> HttpResponse:
        """Show the page; nothing of it is kept by the browser."""
        more = {**self.admin_site.each_context(request), "title": "The words of a call"}
        response = TemplateResponse(request, TEMPLATE, {**more, "opts": self.opts, **context})
        response["Cache-Control"] = "no-store"
        return response


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose words are asked for: `receipt` or `compaction`, its row, its chat."""

    name: str
    row: Receipt | Compaction
    chat_id: uuid.UUID


def call_of(request: HttpRequest) -> Call | None:
    """Return the call that an address names by `?receipt=` or `?compaction=`, or None."""
    receipts = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    summaries = Compaction.objects.select_related("effective_policy", "branch")
    try:
        if key := request.GET.get("receipt"):
            receipt = receipts.filter(pk=uuid.UUID(key)).first()
            return Call("receipt", receipt, receipt.turn.branch.chat_id) if receipt else None
        key = request.GET.get("compaction", "")
        row = summaries.filter(pk=uuid.UUID(key)).first()
    except ValueError:
        return None
    return Call("compaction", row, row.branch.chat_id) if row else None
