"""Admin pages of turns and receipts: numbers, ranges and hashes, never message text.

No page here shows a message, a summary, a partial reply or a chat's title. Reading content requires
a recorded reason, and these pages do not ask for one.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import dateformat
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, pgettext

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.words import render_json, render_table
from chats.compaction.report.skip_reasons import explain_skipped_compaction
from chats.models import Receipt, Turn

# Lookup of the slug of the policy that chose the strategy.
STRATEGY_FROM = "effective_policy__sources__strategy__1"
# Lookups used in dashboard links.
DASHBOARD_LOOKUPS = frozenset(
    {
        "finished_at__gte",
        "finished_at__lt",
        "published_at__gte",
        "published_at__lt",
        "model__slug",
        STRATEGY_FROM,
        "error_code",
    }
)


class CodeFilter(admin.AllValuesFieldListFilter):
    """A filter by code. Rows without a code have their own label."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": choice["display"] or gettext("No error")}


class TurnAdmin(ReadOnlyAdmin):
    """Admin pages of turns: state, timing, usage and errors."""

    list_display = ("id", "chat", "status", "model_name", "queued_at", "finished_at", "error_code")
    list_filter = ("status", "queued_at", ("error_code", CodeFilter))
    linked_lookups = DASHBOARD_LOOKUPS
    search_fields = ("=id", "=branch__chat__id")
    list_select_related = ("branch",)
    ordering = ("-queued_at",)
    fields = (
        "id",
        "chat",
        "status",
        "attempt",
        "step",
        "handed_back",
        "queued_at",
        "started_at",
        "first_token_at",
        "finished_at",
        "stop_requested_at",
        "waiting_until",
        "worker",
        "model_name",
        "effective_policy",
        "usage",
        "error_code",
        "sentence",
        "after_it",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        """Defer the texts, so that no page can show them by mistake."""
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.defer("partial_text", "partial_reasoning")

    @admin.display(description=gettext_lazy("Chat"))
    def chat(self, turn: Turn) -> str:
        """Return the chat's ID. Its title is content."""
        return str(turn.branch.chat_id)

    @admin.display(description=gettext_lazy("Error message"))
    def sentence(self, turn: Turn) -> str:
        return turn.localized_error

    @admin.display(description=gettext_lazy("Compaction due after this turn"))
    def after_it(self, turn: Turn) -> str:
        """Return the reason why the turn was or was not followed by a summary."""
        return explain_skipped_compaction(turn).sentence


class ReceiptAdmin(ReadOnlyAdmin):
    """Admin pages of receipts: the prompt of each model call by IDs, tokens and hashes."""

    list_display = (
        "id",
        "created_at",
        "person",
        "chat",
        "purpose",
        "model_name",
        "prompt_tokens",
        "outcome",
    )
    list_filter = ("outcome", "created_at")
    list_select_related = ("turn__branch__chat__owner",)
    search_fields = (
        "=id",
        "=turn__id",
        "=turn__branch__chat__id",
        "=turn__branch__chat__owner__username",
    )
    search_help_text = gettext_lazy(
        "Enter the ID of a receipt, turn or chat, or the user name of the chat’s owner."
    )
    ordering = ("-created_at",)
    fields: ClassVar[tuple[str, ...]] = (
        "id",
        "person",
        "chat",
        "turn_id",
        "purpose",
        "attempt",
        "step",
        "call",
        "created_at",
        "finished_at",
        "outcome",
        "error_code",
        "model_name",
        "effective_policy",
        "prompt_tokens",
        "prompt_sha256",
        "rebuildable",
        "commitment",
        "last_seq",
        "sent",
        "not_sent",
        "arithmetic",
        "due",
        "used",
    )

    @admin.display(description=gettext_lazy("User"), ordering="turn__branch__chat__owner__username")
    def person(self, receipt: Receipt) -> str:
        """Return the user name of the chat's owner."""
        return receipt.turn.branch.chat.owner.get_username()

    @admin.display(description=gettext_lazy("Chat"))
    def chat(self, receipt: Receipt) -> SafeString:
        """Return the chat's ID, linked to its receipts. Its title is content."""
        chat_id = receipt.turn.branch.chat_id
        address = reverse("admin:chats_receipt_changelist")
        return format_html('<a href="{}?q={}">{}</a>', address, chat_id, chat_id)

    @admin.display(description=gettext_lazy("Purpose"))
    def purpose(self, receipt: Receipt) -> str:
        """Return the code of the call's purpose, such as `reply` or `title`."""
        return receipt.purpose

    @admin.display(description=gettext_lazy("Sent"))
    def sent(self, receipt: Receipt) -> SafeString:
        """Return a table of the segments in prompt order."""
        return render_table(
            [
                gettext("Part"),
                gettext("Message"),
                gettext("Seq"),
                gettext("Tokens"),
                gettext("Cut to"),
                gettext("Text hash"),
                gettext("Results cut to"),
            ],
            receipt.segments,
        )

    @admin.display(description=gettext_lazy("Left out"))
    def not_sent(self, receipt: Receipt) -> SafeString:
        """Return a table of the ranges left out, with reasons."""
        first = pgettext("first number of a range", "From")
        last = pgettext("last number of a range", "To")
        return render_table([first, last, gettext("Reason")], receipt.left_out)

    @admin.display(description=gettext_lazy("Rebuildable"))
    def rebuildable(self, receipt: Receipt) -> SafeString | str:
        """Return "Yes", or the time at which a part of the prompt was erased."""
        if receipt.erased_at is None:
            return gettext("Yes")
        at = dateformat.format(receipt.erased_at, gettext("d M Y H:i:s"))
        text = gettext("Cannot be rebuilt: part of the prompt was erased on {time} UTC").format(
            time=at
        )
        return format_html('<span data-note="not-rebuildable">{}</span>', text)

    @admin.display(description=gettext_lazy("Budget"))
    def arithmetic(self, receipt: Receipt) -> SafeString:
        return render_json(receipt.budget)

    @admin.display(description=gettext_lazy("Summary due"))
    def due(self, receipt: Receipt) -> SafeString:
        """Return the compaction check at this prompt as JSON."""
        return render_json(receipt.compaction_need)

    @admin.display(description=gettext_lazy("Usage"))
    def used(self, receipt: Receipt) -> SafeString:
        """Return the usage reported by the provider as JSON."""
        return render_json(receipt.usage)
