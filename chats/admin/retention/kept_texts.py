"""Pages of texts kept under legal holds: the list, and one text after a reason is recorded."""

import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.forms import build_reason_field
from chats.admin.site import get_request_actor
from chats.ground.refusals import NotFound, Refusal
from chats.models import KeptText
from chats.record import kept_texts

TEMPLATE = "admin/chats/kept_text.html"


class KeptTextAdmin(ReadOnlyAdmin):
    """Previous values of texts, for auditors. The list does not show the texts."""

    list_display = ("kind", "owner", "chat_id", "replaced_at", "replaced_by")
    list_filter = ("kind", "replaced_at")
    search_fields = ("owner__username", "=chat__id")
    search_help_text = gettext_lazy("Enter the user name or the chat ID.")
    list_select_related = ("owner",)
    ordering: ClassVar = ("-replaced_at", "-pk")
    exclude = ("text",)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the page that requests a reason, for any spelling of the id.

        Raises PermissionDenied, and Http404 for an erased text or a malformed id.
        """
        try:
            text_id = uuid.UUID(unquote(object_id))
        except ValueError:
            raise Http404 from None
        return self.read_text(request, text_id)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return True if the user may read receipts and the audit log."""
        needed = ("chats.view_receipt", "contextpolicy.view_auditevent")
        return bool(request.user.has_perms(needed))

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may see the list."""
        return self.has_view_permission(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[KeptText]:
        """Defer the texts, so that the list cannot show them by mistake."""
        rows: QuerySet[KeptText] = super().get_queryset(request)
        return rows.defer("text")

    def read_text(self, request: HttpRequest, text_id: uuid.UUID) -> HttpResponse:
        """Request a reason. A POST records it and shows the text.

        Raises PermissionDenied, and Http404 for an erased text.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_queryset(request).filter(pk=text_id).first()
        if row is None:
            raise Http404
        reason = build_reason_field(request)
        context: dict[str, Any] = {"row": row, "text": None, "reason": reason}
        if request.method == "POST":
            try:
                context["text"] = kept_texts.read_kept_text(
                    row.pk,
                    reason=request.POST.get("reason", ""),
                    actor=get_request_actor(request),
                    now=timezone.now(),
                ).text
            except NotFound:
                raise Http404 from None
            except Refusal as refusal:
                self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
        site = self.admin_site.each_context(request)
        more = {**site, "title": row.get_kind_display(), "opts": self.opts}
        more["two_persons"] = settings.TWO_PERSONS
        response = TemplateResponse(request, TEMPLATE, {**more, **context})
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description=gettext_lazy("Chat"), ordering="chat")
    def chat_id(self, row: KeptText) -> str:
        """Return the chat's id; its title is content."""
        return str(row.chat_id) if row.chat_id else "–"
