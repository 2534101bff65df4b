"""Admin pages of compactions: numbers, hashes and actions.

No page here shows a summary, a focus or a rejection reason. Approvers read a summary on the review
page after giving a reason.
"""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.admin.audit.records import DASHBOARD_LOOKUPS
from chats.admin.compactions.actions import DEEDS, OPERATES, format_chat_name, get_request_user
from chats.admin.compactions.summary_review import SummaryReviewAdmin
from chats.admin.confirm import apply_confirmed
from chats.admin.forms import RejectionForm
from chats.admin.site import get_request_actor
from chats.admin.words import RUNGS, render_balance_table, render_table
from chats.compaction import pauses
from chats.compaction.cursor import get_summary_cursor
from chats.compaction.people import approve
from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.compaction.report.skip_reasons import TRIGGERS
from chats.counts import balances
from chats.models import Chat, Compaction
from contextpolicy.engine.text.fact_scanner import KINDS
from contextpolicy.wording import join_items


class CompactionAdmin(SummaryReviewAdmin):
    """Compactions: range, state, numbers and hashes. The review page shows the summary."""

    actions = ("reset_breaker", "approve_waiting", "reject_waiting", *DEEDS)
    list_display = (
        "id",
        "chat",
        "kind",
        "status",
        "needs_approval",
        "began",
        "from_seq",
        "to_seq",
        "tokens_before",
        "tokens_after",
        "created_at",
    )
    list_filter = ("kind", "status", "needs_approval", "trigger", "rung", "created_at")
    linked_lookups = DASHBOARD_LOOKUPS
    search_fields = ("=id", "=branch__chat__id")
    list_select_related = ("branch",)
    ordering = ("-created_at",)
    fields = (
        "review",
        "words",
        "id",
        "chat",
        "kind",
        "status",
        "needs_approval",
        "began",
        "asked_by",
        "way",
        "attempt",
        "reason",
        "from_seq",
        "to_seq",
        "exceptions",
        "source_count",
        "source_digest",
        "base",
        "previous",
        "displaced",
        "revises",
        "context_revision",
        "summarised_to",
        "last_summary",
        "version",
        "tokens_before",
        "tokens_after",
        "summary_tokens",
        "facts",
        "provenance",
        "model_name",
        "prompt_version",
        "calls_made",
        "effective_policy",
        "usage",
        "balance",
        "took",
        "text_commitment",
        "created_at",
        "finished_at",
        "published_at",
        "erased_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Compaction]:
        """Defer the texts, so that no page can show them by mistake."""
        rows: QuerySet[Compaction] = super().get_queryset(request)
        return rows.defer("text", "sections", "retention", "focus", "remark")

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Return True for operators, because they also handle failures of model servers."""
        return get_request_user(request).has_perm(OPERATES)

    def has_approve_permission(self, request: HttpRequest) -> bool:
        """Return True for policy administrators. The chat's policy may still refuse."""
        return get_request_user(request).has_perm(EDITS_POLICIES)

    @admin.action(
        description=gettext_lazy("Retry summaries of these chats"), permissions=["operate"]
    )
    def reset_breaker(
        self, request: HttpRequest, queryset: QuerySet[Compaction]
    ) -> HttpResponse | None:
        """Reset the failure count of these compactions' chats, after confirmation."""
        actor, now = get_request_actor(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Retry summaries"),
            sentence=gettext(
                "Resets the failure count of these chats. The next attempt starts shortly and "
                "uses the policy’s model."
            ),
            action=lambda chat: pauses.reset_breaker(chat=chat, actor=actor, now=now),
            done=gettext("Failure count reset. The next attempt starts shortly."),
            name=format_chat_name,
            targets=Chat.objects.filter(branches__compactions__in=queryset).only("pk").distinct(),
        )

    @admin.action(description=gettext_lazy("Approve pending summaries"), permissions=["approve"])
    def approve_waiting(
        self, request: HttpRequest, queryset: QuerySet[Compaction]
    ) -> HttpResponse | None:
        """Publish pending summaries, after confirmation."""
        rows = queryset.filter(needs_approval=True)
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            rows,
            title=gettext("Approve pending summaries"),
            sentence=gettext(
                "Starting with the next prompt, these summaries replace their messages. Selected "
                "summaries that are not pending are skipped."
            ),
            action=lambda row: approve.approve_summary(user=user, compaction=row, now=now),
            done=gettext("approved."),
        )

    @admin.action(description=gettext_lazy("Reject pending summaries"), permissions=["approve"])
    def reject_waiting(
        self, request: HttpRequest, queryset: QuerySet[Compaction]
    ) -> HttpResponse | None:
        """Reject pending summaries with a reason, after confirmation."""
        rows = queryset.filter(needs_approval=True)
        user, now, reason = (
            get_request_user(request),
            timezone.now(),
            request.POST.get("reason", ""),
        )
        return apply_confirmed(
            self,
            request,
            rows,
            title=gettext("Reject pending summaries"),
            sentence=gettext(
                "Rejects these summaries. They are never sent, and prompts do not change."
            ),
            form=RejectionForm,
            action=lambda row: approve.reject_summary(
                user=user, compaction=row, reason=reason, now=now
            ),
            done=gettext("rejected."),
        )

    @admin.display(description=gettext_lazy("Request"))
    def words(self, row: Compaction) -> SafeString:
        """Link to the summary request, which auditors can read after giving a reason."""
        label = gettext("Read the request (auditors only, requires a reason)")
        address = reverse("admin:chats_receipt_words")
        return format_html('<a href="{}?compaction={}">{}</a>', address, row.pk, label)

    @admin.display(description=gettext_lazy("Chat"))
    def chat(self, compaction: Compaction) -> str:
        """Return the chat's ID. Its title is content."""
        return str(compaction.branch.chat_id)

    @admin.display(description=gettext_lazy("Summarised up to message"))
    def summarised_to(self, compaction: Compaction) -> int:
        """Return the seq up to which summaries cover the branch; 0 without an active summary."""
        return get_summary_cursor(compaction.branch).position

    @admin.display(description=gettext_lazy("Last summary published"))
    def last_summary(self, compaction: Compaction) -> str:
        """Return the time at which the branch's newest summary was published."""
        at = get_summary_cursor(compaction.branch).compacted_at
        return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else gettext("none")

    @admin.display(description=gettext_lazy("Branch context version"))
    def version(self, compaction: Compaction) -> int:
        """Return the context version, which increases with each change of the active summary."""
        return get_summary_cursor(compaction.branch).version

    @admin.display(description=gettext_lazy("Trigger"), ordering="trigger")
    def began(self, compaction: Compaction) -> str:
        return str(TRIGGERS.get(compaction.trigger, compaction.trigger))

    @admin.display(description=gettext_lazy("Method"))
    def way(self, compaction: Compaction) -> str:
        """Return the name of the method that wrote the summary (see `engine.summaries.ladder`)."""
        return str(RUNGS.get(compaction.rung, compaction.rung))

    @admin.display(description=gettext_lazy("Duration"))
    def took(self, compaction: Compaction) -> str:
        if compaction.duration_ms is None:
            return ""
        return gettext("{seconds:,.1f} s").format(seconds=compaction.duration_ms / 1000)

    @admin.display(description=gettext_lazy("Balance"))
    def balance(self, compaction: Compaction) -> SafeString:
        """Return a table of the compaction's cost, savings and cache losses."""
        return render_balance_table(
            [
                (
                    gettext("All prompts since publication"),
                    balances.load_compaction_balance(compaction),
                )
            ]
        )

    @admin.display(description=gettext_lazy("Facts in the original messages"))
    def facts(self, compaction: Compaction) -> SafeString:
        """Return a table of kept and lost facts by kind."""
        kept, lost = (count_facts_by_kind(compaction.retention, side) for side in ("kept", "lost"))
        rows = [[kind, kept[kind], lost[kind]] for kind in KINDS if kept[kind] + lost[kind]]
        return render_table([gettext("Kind"), gettext("Kept"), gettext("Lost")], rows)

    @admin.display(description=gettext_lazy("Commitments to the model calls"))
    def calls_made(self, compaction: Compaction) -> str:
        """Return one commitment per call, in order, as recorded in the ledger."""
        return join_items(compaction.calls) or gettext("none")

    @admin.display(description=gettext_lazy("Line sources"))
    def provenance(self, compaction: Compaction) -> str:
        """Return the number of the summary's lines, and how many lack a source message."""
        bullets = [bullet for part in compaction.sections for bullet in part["bullets"]]
        unsupported = sum(bool(bullet.get("unsupported")) for bullet in bullets)
        text = gettext("Lines: {lines}. Without a source: {unsupported}.")
        return text.format(lines=len(bullets), unsupported=unsupported)


def count_facts_by_kind(retention: Mapping[str, Any], side: str) -> dict[str, int]:
    return {kind: len(retention.get(side, {}).get(kind, ())) for kind in KINDS}
