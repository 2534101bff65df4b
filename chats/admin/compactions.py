"""The administration's pages of compactions: numbers and hashes of each, and actions.

No page here prints a summary, a focus or a remark. Approvers read a summary on the review page,
after they gave a reason.
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

from chats.admin.compaction_deeds import DEEDS, OPERATES, person
from chats.admin.confirm import confirmation, each
from chats.admin.records import DASHBOARD_LOOKUPS
from chats.admin.summary_review import SummaryReviewAdmin
from chats.admin.words import RUNGS, as_table, balance_table
from chats.compaction import pauses
from chats.compaction.cursor import cursor_of
from chats.compaction.people import approve
from chats.compaction.people.rights import EDITS_POLICIES
from chats.compaction.report.skip_reasons import TRIGGERS
from chats.counts import balances
from chats.models import Chat, Compaction
from contextpolicy.admin.site import actor_of
from contextpolicy.engine.factscan import KINDS


class CompactionAdmin(SummaryReviewAdmin):
    """Compactions: range, state, numbers and hashes. A summary is on the page of its review."""

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

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow what the dashboard leads here with."""
        return lookup in DASHBOARD_LOOKUPS or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Compaction]:
        """Leave the texts out, so that no page can print them by mistake."""
        rows: QuerySet[Compaction] = super().get_queryset(request)
        return rows.defer("text", "sections", "retention", "focus", "remark")

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Allow operators.

        Whoever looks after the model servers looks after their failures.
        """
        return person(request).has_perm(OPERATES)

    def has_approve_permission(self, request: HttpRequest) -> bool:
        """Allow policy administrators.

        The chat's policy says whether they may here.
        """
        return person(request).has_perm(EDITS_POLICIES)

    @admin.action(
        description="Let summaries of these chats be tried again", permissions=["operate"]
    )
    def reset_breaker(
        self, request: HttpRequest, queryset: QuerySet[Compaction]
    ) -> HttpResponse | None:
        """Forget the failures of these compactions' chats, after asking."""
        asked = confirmation(
            self,
            request,
            queryset,
            title="Try summaries again",
            sentence="The failures so far no longer count in the chats of these compactions. The "
            "next attempt begins at once, and by the model.",
        )
        if asked is not None:
            return asked
        actor, now = actor_of(request), timezone.now()
        each(
            self,
            request,
            Chat.objects.filter(branches__compactions__in=queryset).only("pk").distinct(),
            deed=lambda chat: pauses.reset_breaker(chat=chat, actor=actor, now=now),
            done="failures so far no longer count.",
            name=lambda chat: f"Chat {chat.pk}",
        )
        return None

    @admin.action(description="Approve what waits", permissions=["approve"])
    def approve_waiting(
        self, request: HttpRequest, queryset: QuerySet[Compaction]
    ) -> HttpResponse | None:
        """Put waiting summaries in force, after asking."""
        rows = queryset.filter(needs_approval=True)
        asked = confirmation(
            self,
            request,
            rows,
            title="Approve",
            sentence="These summaries are sent instead of their messages from the next prompt on. "
            "Summaries that do not wait for approval are not among them.",
        )
        if asked is not None:
            return asked
        user, now = person(request), timezone.now()
        each(
            self,
            request,
            rows,
            deed=lambda row: approve.approve(user=user, compaction=row, now=now),
            done="approved.",
        )
        return None

    @admin.action(description="Reject what waits", permissions=["approve"])
    def reject_waiting(
        self, request: HttpRequest, queryset: QuerySet[Compaction]
    ) -> HttpResponse | None:
        """Refuse waiting summaries, after asking, with a reason."""
        rows = queryset.filter(needs_approval=True)
        asked = confirmation(
            self,
            request,
            rows,
            title="Reject",
            sentence="These summaries are never sent. Nothing that is sent now changes.",
            asks_reason=True,
        )
        if asked is not None:
            return asked
        user, now, reason = person(request), timezone.now(), request.POST.get("reason", "")
        each(
            self,
            request,
            rows,
            deed=lambda row: approve.reject(user=user, compaction=row, reason=reason, now=now),
            done="rejected.",
        )
        return None

    @admin.display(description="Words")
    def words(self, row: Compaction) -> SafeString:
        """Lead to the request for the summary, which auditors read after a reason."""
        link = '<a href="{}?compaction={}">Read the request, with a reason (auditors)</a>'
        return format_html(link, reverse("admin:chats_receipt_words"), row.pk)

    @admin.display(description="Chat")
    def chat(self, compaction: Compaction) -> str:
        """Return the chat's id; its title is content."""
        return str(compaction.branch.chat_id)

    @admin.display(description="Branch is summarised up to message")
    def summarised_to(self, compaction: Compaction) -> int:
        """Return the cursor of its branch as it stands now; 0 when no summary is in force."""
        return cursor_of(compaction.branch).position

    @admin.display(description="Last summary took effect")
    def last_summary(self, compaction: Compaction) -> str:
        """Return the newest time at which a summary took effect on its branch."""
        at = cursor_of(compaction.branch).compacted_at
        return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "none has"

    @admin.display(description="Version of the branch's context")
    def version(self, compaction: Compaction) -> int:
        """Return the version, which grows with each change of what stands in place of messages."""
        return cursor_of(compaction.branch).version

    @admin.display(description="Began because", ordering="trigger")
    def began(self, compaction: Compaction) -> str:
        """Say what began it."""
        return TRIGGERS.get(compaction.trigger, compaction.trigger)

    @admin.display(description="Written")
    def way(self, compaction: Compaction) -> str:
        """Say by whom or what it was written."""
        return RUNGS.get(compaction.rung, compaction.rung)

    @admin.display(description="Duration")
    def took(self, compaction: Compaction) -> str:
        """Return its duration in seconds."""
        if compaction.duration_ms is None:
            return ""
        return f"{compaction.duration_ms / 1000:,.1f} s"

    @admin.display(description="Balance")
    def balance(self, compaction: Compaction) -> SafeString:
        """Say what it cost, what it saved, and what the cache lost by it."""
        return balance_table([("All prompts since", balances.of_compaction(compaction))])

    @admin.display(description="Facts of the originals")
    def facts(self, compaction: Compaction) -> SafeString:
        """Count the facts of each kind that it kept and lost."""
        kept, lost = (counts(compaction.retention, side) for side in ("kept", "lost"))
        rows = [[kind, kept[kind], lost[kind]] for kind in KINDS if kept[kind] + lost[kind]]
        return as_table(["Kind", "Kept", "Lost"], rows)

    @admin.display(description="Commitments to its calls")
    def calls_made(self, compaction: Compaction) -> str:
        """List one commitment for each call, in order, as the ledger has them."""
        return ", ".join(compaction.calls) or "none"

    @admin.display(description="Sources of its lines")
    def provenance(self, compaction: Compaction) -> str:
        """Count the lines that name no message that it was made of."""
        bullets = [bullet for part in compaction.sections for bullet in part["bullets"]]
        unsupported = sum(bool(bullet.get("unsupported")) for bullet in bullets)
        return f"Lines: {len(bullets)}. Without a source: {unsupported}."


def counts(retention: Mapping[str, Any], side: str) -> dict[str, int]:
    """Count the facts of each kind on one side."""
    return {kind: len(retention.get(side, {}).get(kind, ())) for kind in KINDS}
