"""The administration's pages of turns and receipts: numbers, ranges and hashes, never words.

No page here prints a message, a summary, a partial reply or a chat's title, to anybody: reading
content needs a reason that is recorded, and these pages ask for none.
"""

from typing import ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from chats.admin.words import as_json, as_table
from chats.compaction.report.skip_reasons import why_not
from chats.models import Receipt, Turn
from contextpolicy.admin.bases import ReadOnlyAdmin

# The slug of the policy that chose the strategy, as a lookup.
STRATEGY_FROM = "effective_policy__sources__strategy__1"
# The rows behind a number of the dashboard: those of some days, of a model, of a policy.
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


class TurnAdmin(ReadOnlyAdmin):
    """The pages of turns: state, timing, usage, failure."""

    list_display = ("id", "chat", "status", "model_name", "queued_at", "finished_at", "error_code")
    list_filter = ("status", "queued_at", "error_code")
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
        "error_sentence",
        "after_it",
    )

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow what the dashboard leads here with."""
        return lookup in DASHBOARD_LOOKUPS or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        """Leave the texts out, so that no page can print them by mistake."""
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.defer("partial_text", "partial_reasoning")

    @admin.display(description="Chat")
    def chat(self, turn: Turn) -> str:
        """Return the chat's id; its title is content."""
        return str(turn.branch.chat_id)

    @admin.display(description="Compaction after it")
    def after_it(self, turn: Turn) -> str:
        """Say why the turn was followed by a summary, or by none."""
        return why_not(turn).sentence


class ReceiptAdmin(ReadOnlyAdmin):
    """The pages of receipts: what each model call was sent, by ids, tokens and hashes."""

    list_display = (
        "id",
        "turn_id",
        "purpose",
        "created_at",
        "model_name",
        "prompt_tokens",
        "outcome",
    )
    list_filter = ("outcome", "created_at")
    search_fields = ("=id", "=turn__id", "=turn__branch__chat__id")
    ordering = ("-created_at",)
    fields: ClassVar[tuple[str, ...]] = (
        "id",
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

    @admin.display(description="Sent")
    def sent(self, receipt: Receipt) -> SafeString:
        """List the segments, in the order of the prompt."""
        return as_table(
            [
                "Part",
                "Message",
                "Seq",
                "Tokens",
                "Cut to",
                "Text by hash",
                "Results cut to",
            ],
            receipt.segments,
        )

    @admin.display(description="Left out")
    def not_sent(self, receipt: Receipt) -> SafeString:
        """List the ranges that were left out, with reasons."""
        return as_table(["From", "To", "Why"], receipt.left_out)

    @admin.display(description="Rebuildable")
    def rebuildable(self, receipt: Receipt) -> str:
        """Say whether the prompt can be built again from its parts."""
        if receipt.erased_at is None:
            return "Yes"
        return f"Not rebuildable since {receipt.erased_at:%d %b %Y %H:%M:%S} UTC: a part was erased"

    @admin.display(description="Budget")
    def arithmetic(self, receipt: Receipt) -> SafeString:
        """Show the budget's numbers."""
        return as_json(receipt.budget)

    @admin.display(description="Summary due")
    def due(self, receipt: Receipt) -> SafeString:
        """Say whether a summary was due when this was composed, with the numbers."""
        return as_json(receipt.compaction_need)

    @admin.display(description="Usage")
    def used(self, receipt: Receipt) -> SafeString:
        """Show the provider's own numbers."""
        return as_json(receipt.usage)
