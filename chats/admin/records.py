"""What was done, for auditors and operators: numbers, ranges and hashes, never what people wrote.

No page here prints a message, a summary, a partial reply or a chat's title, to nobody: reading
content needs a reason that is recorded, and these pages ask for none.
"""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from chats.models import Compaction, Receipt, Turn
from contextpolicy.admin.bases import ReadOnlyAdmin


class TurnAdmin(ReadOnlyAdmin):
    """Turns: state, timing, usage, failure."""

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
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        """Without the texts, so that no page can print them by mistake."""
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.defer("partial_text", "partial_reasoning")

    @admin.display(description="Chat")
    def chat(self, turn: Turn) -> str:
        """The chat's id; its title is content."""
        return str(turn.branch.chat_id)


class ReceiptAdmin(ReadOnlyAdmin):
    """Receipts: what each model call was sent, by ids, tokens and hashes."""

    list_display = ("id", "turn_id", "created_at", "model_name", "prompt_tokens", "outcome")
    list_filter = ("outcome", "created_at")
    search_fields = ("=id", "=turn__id", "=turn__branch__chat__id")
    ordering = ("-created_at",)
    fields = (
        "id",
        "turn_id",
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
        "last_seq",
        "sent",
        "not_sent",
        "arithmetic",
        "used",
    )

    @admin.display(description="Sent")
    def sent(self, receipt: Receipt) -> SafeString:
        """The segments, in the order of the prompt."""
        return _table(
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
        """The ranges that were left out, with reasons."""
        return _table(["From", "To", "Why"], receipt.left_out)

    @admin.display(description="Budget")
    def arithmetic(self, receipt: Receipt) -> SafeString:
        """The budget's numbers."""
        return _json(receipt.budget)

    @admin.display(description="Usage")
    def used(self, receipt: Receipt) -> SafeString:
        """The provider's own numbers."""
        return _json(receipt.usage)


class CompactionAdmin(ReadOnlyAdmin):
    """Compactions: range, state, numbers and hashes; never the summary."""

    list_display = (
        "id",
        "chat",
        "kind",
        "status",
        "trigger",
        "from_seq",
        "to_seq",
        "tokens_before",
        "tokens_after",
        "created_at",
    )
    list_filter = ("kind", "status", "trigger", "created_at")
    search_fields = ("=id", "=branch__chat__id")
    list_select_related = ("branch",)
    ordering = ("-created_at",)
    fields = (
        "id",
        "chat",
        "kind",
        "status",
        "trigger",
        "reason",
        "from_seq",
        "to_seq",
        "exceptions",
        "source_count",
        "source_digest",
        "tokens_before",
        "tokens_after",
        "model_name",
        "prompt_version",
        "effective_policy",
        "usage",
        "text_sha256",
        "created_at",
        "finished_at",
        "published_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Compaction]:
        """Without the texts, so that no page can print them by mistake."""
        rows: QuerySet[Compaction] = super().get_queryset(request)
        return rows.defer("text", "sections", "retention")

    @admin.display(description="Chat")
    def chat(self, compaction: Compaction) -> str:
        """The chat's id; its title is content."""
        return str(compaction.branch.chat_id)


def _table(heads: list[str], rows: list[list[Any]]) -> SafeString:
    return render_to_string("admin/chats/_table.html", {"heads": heads, "rows": rows})


def _json(value: object) -> SafeString:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return render_to_string("admin/contextpolicy/_json.html", {"text": text})
