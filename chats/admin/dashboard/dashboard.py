"""The dashboard: statistics by day, model and policy, and the current state.

It reads the daily totals. Each number links to the rows that it sums up.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.dashboard.rows import (
    Rows,
    build_daily_charts,
    build_dashboard_lines,
    build_failure_numbers,
    build_headline_numbers,
    build_outcome_numbers,
    format_late_searches,
)
from chats.admin.dashboard.state_numbers import build_state_numbers
from chats.checkpoints.upkeep import LedgerWarning, list_check_warnings
from chats.counts import dashboard
from chats.counts.dashboard import BY, Range
from chats.counts.keeping import get_statistics_time
from chats.counts.searches import count_searches
from chats.models import SkippedRow

TEMPLATE = "admin/chats/dailycount/change_list.html"
DAYS = {
    "7": gettext_lazy("7 days"),
    "30": gettext_lazy("30 days"),
    "90": gettext_lazy("90 days"),
}
GROUPINGS = {
    "day": gettext_lazy("day"),
    "model": gettext_lazy("model"),
    "policy": gettext_lazy("policy"),
}
TITLES = {
    "day": gettext_lazy("By day"),
    "model": gettext_lazy("By model"),
    "policy": gettext_lazy("By policy"),
}
USUAL_DAYS = "30"


class RangeForm(forms.Form):
    """Form for the date range, grouping and filters."""

    days = forms.ChoiceField(choices=list(DAYS.items()), required=False)
    by = forms.ChoiceField(choices=[(by, GROUPINGS[by]) for by in BY], required=False)
    model = forms.ChoiceField(required=False)
    policy = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("model", "policy"):
            field = self.fields[name]
            if isinstance(field, forms.ChoiceField):
                counted = [(each, each) for each in dashboard.list_counted_names(name)]
                field.choices = [("", gettext("all")), *counted]


class DashboardAdmin(ReadOnlyAdmin):
    """The page with the daily totals of the instance."""

    list_display = ("day", "model", "policy", "replies")
    fields: ClassVar[tuple[str, ...]] = ("day", "model", "policy", "version", "currency", "replies")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the totals of a date range. Raises PermissionDenied without the view permission."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        now = timezone.now()
        form = RangeForm({"days": USUAL_DAYS, "by": "day", **request.GET.dict()})
        # An invalid filter has no effect and an error below it; the others apply.
        form.is_valid()
        asked = form.cleaned_data
        wanted = build_dashboard_range(asked, today=now.date())
        by = asked.get("by") or "day"
        groups, whole = dashboard.sum_daily_counts(wanted, by=by)
        rows = Rows(request)
        context = {
            **self.admin_site.each_context(request),
            **(extra_context or {}),
            "title": gettext("Dashboard"),
            "opts": self.opts,
            "form": form,
            "wanted": wanted,
            "by_title": TITLES[by],
            "by_head": capfirst(GROUPINGS[by]),
            "days": asked.get("days") or USUAL_DAYS,
            "figures": [
                *build_headline_numbers(whole, wanted=wanted, rows=rows),
                format_late_searches(count_searches(now=timezone.now()), wanted=wanted, rows=rows),
            ],
            "charts": build_daily_charts(groups, wanted=wanted) if by == "day" else [],
            "lines": build_dashboard_lines(groups, wanted=wanted, by=by, rows=rows),
            "failures": build_failure_numbers(whole, wanted=wanted, rows=rows),
            "outcomes": build_outcome_numbers(whole, wanted=wanted, rows=rows),
            "state": build_state_numbers(request, now=now),
            "counted_to": get_statistics_time(),
            "warnings": [
                *list_check_warnings(now=now),
                *(LedgerWarning("rows_skipped", each) for each in SkippedRow.warnings(now=now)),
            ],
        }
        return TemplateResponse(request, TEMPLATE, context)


def build_dashboard_range(asked: Mapping[str, str], *, today: date) -> Range:
    length = int(asked.get("days") or USUAL_DAYS)
    since = today - timedelta(days=length - 1)
    return Range(since, today, asked.get("model", ""), asked.get("policy", ""))
