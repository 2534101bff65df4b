"""The admin pages of tool servers and of their tools."""

import json
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from chats.admin.bases import DomainAdmin
from chats.admin.confirm import apply_to_rows, render_confirmation
from chats.admin.reauthentication import FreshSignInAdmin
from chats.admin.site import get_request_actor
from chats.ground.refusals import Refusal
from chats.ground.sentences import localize_sentence
from chats.providers import account_refusals, accounts
from chats.tool_servers import servers
from chats.tool_servers.approvals import approve_tool
from contextpolicy.models import ToolDefinition, ToolServer
from contextpolicy.tool_servers import set_tool_consent, withdraw_tool

# The session key of the definitions that the confirmation showed.
SHOWN = "shown_tools"


class ToolServerForm(forms.ModelForm[ToolServer]):
    """A server form that never shows the stored credential."""

    command = forms.ChoiceField(
        label=gettext_lazy("Command"),
        required=False,
        choices=lambda: [("", "—"), *((name, name) for name in sorted(settings.TOOL_COMMANDS))],
        help_text=gettext_lazy(
            "For a local process, choose a name from the setting TOOL_COMMANDS. Only an "
            "operator can change this setting."
        ),
    )
    credential = forms.CharField(
        label=gettext_lazy("Credential"),
        required=False,
        max_length=500,
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy(
            "The credential is sent as a bearer token, stored encrypted and never shown. Leave "
            "this field empty to keep the stored credential."
        ),
    )
    forget_credential = forms.BooleanField(
        label=gettext_lazy("Delete the stored credential"), required=False
    )

    class Meta:
        model = ToolServer
        fields = ("slug", "name", "transport", "url", "command", "enabled")

    def clean_credential(self) -> str:
        """Return the credential; raises ValidationError if it is not valid in a header."""
        try:
            return accounts.strip_api_key(self.cleaned_data["credential"])
        except account_refusals.KeyNotPlain as refusal:
            raise forms.ValidationError(refusal.localized) from None

    def clean(self) -> dict[str, Any]:
        """Check that the address or the command is allowed."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        try:
            servers.check_tool_server(
                transport=cleaned.get("transport", ""),
                url=cleaned.get("url", ""),
                command=cleaned.get("command", ""),
            )
        except Refusal as refusal:
            field = "command" if refusal.param == "command" else "url"
            self.add_error(field, forms.ValidationError(refusal.localized, code=refusal.code))
        return cleaned


class ToolServerAdmin(FreshSignInAdmin):
    """Tool servers: address, credential and the state of their definitions."""

    form = ToolServerForm
    refusals = (Refusal,)
    actions = ("read_tools",)
    list_display = ("name", "slug", "transport", "place", "enabled", "reading")
    fieldsets = (
        (None, {"fields": ("name", "slug", "transport", "enabled")}),
        (
            gettext_lazy("Server"),
            {
                "fields": (
                    "url",
                    "command",
                    "credential",
                    "stored_credential",
                    "forget_credential",
                ),
                "description": gettext_lazy(
                    "If you change the transport, the address or the command, all tools of the "
                    "server need approval again. The stored credential is then deleted, unless "
                    "you enter a new one."
                ),
            },
        ),
        (gettext_lazy("Definitions"), {"fields": ("reading",)}),
    )
    readonly_fields = ("stored_credential", "reading")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ToolServer]:
        """Load the tools of all servers of a page with one query."""
        rows: QuerySet[ToolServer] = super().get_queryset(request)
        return rows.prefetch_related("tools")

    def get_readonly_fields(
        self, request: HttpRequest, obj: ToolServer | None = None
    ) -> tuple[str, ...]:
        """Make the slug of a saved server read-only, because policies refer to it."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because policies and audit events refer to the server.

        It can be disabled instead.
        """
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Save the server, and request its definitions if it can be called."""
        now = timezone.now()
        servers.save_tool_server(
            server=obj,
            values={
                name: form.cleaned_data[name]
                for name in servers.FIELDS
                if name in form.cleaned_data
            },
            credential=form.cleaned_data["credential"],
            forget=form.cleaned_data["forget_credential"],
            actor=get_request_actor(request),
            now=now,
        )
        if obj.enabled:
            servers.request_reading(obj, now=now)

    @admin.action(description=gettext_lazy("Read definitions"), permissions=["change"])
    def read_tools(self, request: HttpRequest, queryset: QuerySet[ToolServer]) -> None:
        """Let a worker read the definitions of the selected servers."""
        for server in queryset:
            servers.request_reading(server, now=timezone.now())
        self.message_user(
            request,
            gettext("The definitions are read in the background. Reload the page to see them."),
        )

    @admin.display(description=gettext_lazy("Address"))
    def place(self, server: ToolServer) -> str:
        return server.command if server.transport == "stdio" else server.url

    @admin.display(description=gettext_lazy("Stored credential"))
    def stored_credential(self, server: ToolServer) -> str:
        """Return the last four characters of the credential; none for a short one."""
        if not server.encrypted_key:
            return pgettext("key of a server", "none")
        return f"…{server.key_last_four}" if server.key_last_four else gettext("stored")

    @admin.display(description=gettext_lazy("Definitions"))
    def reading(self, server: ToolServer) -> str:
        """Return the state of the definitions: requested, failed, or their numbers."""
        if not server.pk:
            return gettext("The definitions are read after you save.")
        if server.asked_at is not None:
            return gettext("Reading…")
        if server.failure:
            return localize_sentence(server.failure, server.failure_details)
        rows = [row for row in server.tools.all() if row.is_listed]
        approved = sum(row.is_approved for row in rows)
        words = ngettext(
            "{n} tool. Approved: {approved}.", "{n} tools. Approved: {approved}.", len(rows)
        )
        return words.format(n=len(rows), approved=approved)


class ToolDefinitionAdmin(DomainAdmin):
    """Tools as their servers describe them. Only approved tools can be called."""

    actions = ("approve", "withdraw")
    list_display = ("label", "server", "state", "asks", "description", "tokens", "changed_at")
    list_filter = ("server", "is_listed")
    list_select_related = ("server",)
    search_fields = ("name", "description")
    fields = (
        "server",
        "name",
        "wire_name",
        "state",
        "description",
        "shown_schema",
        "annotations",
        "asks",
        "tokens",
        "changed_at",
    )
    readonly_fields = tuple(name for name in fields if name != "asks")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False, because definitions come from their servers."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because the ledger and policies refer to the tool.

        Its approval can be withdrawn.
        """
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Save whether calls require consent, the only field of the form."""
        set_tool_consent(
            obj,
            asks=form.cleaned_data["asks"],
            actor=get_request_actor(request),
            now=timezone.now(),
        )

    @admin.display(description=gettext_lazy("Tool"), ordering="wire_name")
    def label(self, row: ToolDefinition) -> str:
        return str(row)

    @admin.display(description=gettext_lazy("State"))
    def state(self, row: ToolDefinition) -> str:
        """Return whether the tool can be called and, if not, the reason."""
        if not row.is_listed:
            return gettext("No longer listed by its server")
        if row.is_approved:
            return pgettext("state of a tool", "Approved")
        if row.approved_digest:
            return gettext("Changed since approval")
        return gettext("Not approved")

    @admin.display(description=gettext_lazy("Schema"))
    def shown_schema(self, row: ToolDefinition) -> str:
        return format_html("<pre>{}</pre>", json.dumps(row.schema, indent=2, ensure_ascii=False))

    @admin.action(description=gettext_lazy("Approve tools"), permissions=["change"])
    def approve(
        self, request: HttpRequest, queryset: QuerySet[ToolDefinition]
    ) -> HttpResponse | None:
        """Approve the selected tools with the definitions that the confirmation shows."""
        rows = queryset.filter(is_listed=True)
        asked = render_confirmation(
            self,
            request,
            rows,
            title=gettext("Approve tools"),
            sentence=gettext(
                "Models can then call these tools in chats whose policies allow them. Their "
                "descriptions become part of prompts. Read the descriptions and schemas first."
            ),
        )
        if asked is not None:
            request.session[SHOWN] = {str(row.pk): row.digest for row in rows}
            return asked
        shown = request.session.pop(SHOWN, {})
        actor, now = get_request_actor(request), timezone.now()
        apply_to_rows(
            self,
            request,
            rows,
            action=lambda row: approve_tool(
                row, digest=shown.get(str(row.pk), ""), actor=actor, now=now
            ),
            done=gettext("approved."),
        )
        return None

    @admin.action(description=gettext_lazy("Withdraw approval"), permissions=["change"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[ToolDefinition]) -> None:
        """Withdraw the approval of the selected tools."""
        actor, now = get_request_actor(request), timezone.now()
        apply_to_rows(
            self,
            request,
            queryset,
            action=lambda row: withdraw_tool(row, actor=actor, now=now),
            done=gettext("approval withdrawn."),
        )
