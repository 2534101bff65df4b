"""The page with a user's usage of models, and the limits of their policy."""

from collections.abc import Mapping
from datetime import date, timedelta

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import formats, timezone
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.http import require_GET

from chats.actions.usage import load_usage_overview
from chats.record.usage import GroupUsage
from chats.web.auth import PersonRequest, signed_in
from chats.web.forms import PageForm

PERIODS = (7, 30, 90, 365)
USUAL = {"by": "day", "days": "30"}
PURPOSES: Mapping[str, str | Promise] = {
    "reply": gettext_lazy("Replies"),
    "summary": gettext_lazy("Summaries"),
    "title": gettext_lazy("Titles"),
    "state": gettext_lazy("States"),
    "preferences": gettext_lazy("Preferences"),
    "warm_up": gettext_lazy("Cache warm-ups"),
    "passed_on_chat.completions": gettext_lazy("Pass-through: chat completions"),
    "passed_on_responses": gettext_lazy("Pass-through: responses"),
    "passed_on_embeddings": gettext_lazy("Embeddings"),
    "passed_on_summary": gettext_lazy("Test summaries"),
}


def list_periods() -> list[tuple[str, str]]:
    """Return the offered periods: the number of days, and its label."""
    return [
        (str(days), ngettext("Last {n} day", "Last {n} days", days).format(n=days))
        for days in PERIODS
    ]


class UsageForm(PageForm):
    """The time range of the usage, and the grouping of its rows."""

    days = forms.ChoiceField(
        label=gettext_lazy("Period"),
        choices=list_periods,
    )
    by = forms.ChoiceField(
        label=gettext_lazy("Group by"),
        choices=[
            ("day", gettext_lazy("Day (UTC)")),
            ("model", gettext_lazy("Model")),
            ("purpose", gettext_lazy("Purpose")),
            ("key", gettext_lazy("API key")),
        ],
    )


@require_GET
@signed_in
def usage_page(request: PersonRequest) -> HttpResponse:
    """Show the user's calls and tokens, and their quotas. Invalid parameters use the defaults."""
    form = UsageForm({**USUAL, **request.GET.dict()})
    if not form.is_valid():
        form = UsageForm(USUAL)
        form.full_clean()
    chosen = form.cleaned_data
    now = timezone.now()
    overview = load_usage_overview(
        user=request.user,
        since=now - timedelta(days=int(chosen["days"])),
        until=now,
        by=chosen["by"],
        now=now,
    )
    rows = [(label_group(row, by=chosen["by"]), row) for row in overview.rows]
    if chosen["by"] == "day":
        rows.reverse()
    context = {
        "form": form,
        "by": chosen["by"],
        "rows": rows,
        "quotas": overview.quotas,
        "totals": {
            name: sum(getattr(row, name) for row in overview.rows)
            for name in ("calls", "input", "output", "summaries", "summary_tokens")
        },
        "unreported": sum(row.unreported + row.summaries_unreported for row in overview.rows),
    }
    return render(request, "usage.html", context)


def label_group(row: GroupUsage, *, by: str) -> str:
    """Return the name of a group of calls, as shown on the page."""
    if by == "day":
        return formats.date_format(date.fromisoformat(row.group[:10]), gettext("j M Y"))
    if by == "purpose":
        return str(PURPOSES.get(row.group, row.group))
    if by == "key":
        return row.group or gettext("No API key")
    return row.group
