"""The numbers of the dashboard, with labels and links to the rows they sum up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.http import HttpRequest
from django.utils import dateformat
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext
from django_stubs_ext import StrOrPromise

from chats.admin.audit.records import STRATEGY_FROM
from chats.admin.dashboard.state_numbers import COMPACTIONS, TURNS, NumberInWords, build_rows_url
from chats.admin.policies.charts import Bars, build_bar_chart
from chats.counts import balances
from chats.counts.dashboard import Range, Totals, format_bucket_seconds
from chats.counts.searches import LateSearches
from contextpolicy.engine.policy.costs import Money

# Compaction outcomes: label, filter of its rows (status or kind), and time column.
OUTCOMES: Mapping[str, tuple[StrOrPromise, dict[str, str], str]] = {
    "published": (gettext_lazy("Summary published"), {"kind__exact": "summary"}, "published_at"),
    "window": (
        gettext_lazy("Messages left out without a summary"),
        {"kind__exact": "window"},
        "published_at",
    ),
    "rejected": (gettext_lazy("Rejected"), {"status__exact": "rejected"}, "finished_at"),
    "failed": (gettext_lazy("Failed"), {"status__exact": "failed"}, "finished_at"),
    "overtaken": (
        gettext_lazy("Outdated"),
        {"status__exact": "overtaken"},
        "finished_at",
    ),
    "undone": (gettext_lazy("Undone"), {"status__exact": "undone"}, "published_at"),
    "redone": (gettext_lazy("Published again"), {"kind__exact": "summary"}, "published_at"),
    "revised": (
        gettext_lazy("Corrected by a user"),
        {"trigger__exact": "revision"},
        "published_at",
    ),
}


@dataclass(frozen=True, slots=True)
class DashboardLine:
    """A table row: a day, model or policy, and its numbers."""

    name: str
    cells: Sequence[NumberInWords]


class Rows:
    """Links to the rows behind a number. Empty without the permission to view them."""

    def __init__(self, request: HttpRequest) -> None:
        self.turns = request.user.has_perm("chats.view_turn")
        self.compactions = request.user.has_perm("chats.view_compaction")

    def of_turns(self, wanted: Range, **found_by: str) -> str:
        if not self.turns:
            return ""
        more = {
            "model__slug": wanted.model,
            "effective_policy__sources__strategy__1": wanted.policy,
        }
        return build_rows_url(TURNS, wanted, "finished_at", {**found_by, **more})

    def of_compactions(self, wanted: Range, outcome: str) -> str:
        if not self.compactions:
            return ""
        _, found_by, at = OUTCOMES[outcome]
        more = {STRATEGY_FROM: wanted.policy}
        return build_rows_url(COMPACTIONS, wanted, at, {**found_by, **more})


def build_headline_numbers(whole: Totals, *, wanted: Range, rows: Rows) -> list[NumberInWords]:
    n = whole.numbers
    share, slow = whole.cache_share, format_bucket_seconds(whole.first_token(0.95))
    took_effect = whole.named["compactions"]["published"]
    replies = rows.of_turns(wanted, status__exact="completed")
    summaries = rows.of_compactions(wanted, "published")
    return [
        NumberInWords(
            gettext("Replies"),
            f"{n['replies']:,}",
            "",
            replies,
            key="replies",
        ),
        NumberInWords(
            gettext("Failed"),
            f"{n['failed']:,}",
            "",
            rows.of_turns(wanted, status__exact="failed"),
            key="failed",
        ),
        NumberInWords(
            gettext("Stopped"),
            f"{n['stopped']:,}",
            pgettext("stopped replies", "by a user"),
            rows.of_turns(wanted, status__exact="stopped"),
            key="stopped",
        ),
        NumberInWords(
            gettext("Time to first token"),
            format_bucket_seconds(whole.first_token(0.5)),
            gettext("median; 95th percentile: {time}").format(time=slow),
            replies,
            key="first-token",
        ),
        NumberInWords(
            gettext("Published summaries"),
            f"{took_effect:,}",
            gettext("in the selected days"),
            summaries,
            key="active-summaries",
        ),
        NumberInWords(
            gettext("Tokens saved"),
            f"≈ {n['saved_tokens']:,}",
            ngettext("in {n:,} prompt", "in {n:,} prompts", n["governed"]).format(n=n["governed"]),
            summaries,
            key="tokens-saved",
        ),
        format_money_number(
            gettext("Summary cost"), whole, "summary_cost", of=n["summaries"], rows=summaries
        ),
        NumberInWords(
            gettext("Net effect"),
            balances.format_money(whole.net),
            format_unknown_costs(whole.net, of=n["governed"] + n["summaries"])
            or gettext("Savings minus the cost of summaries and cache losses"),
            summaries,
            key="net-effect",
        ),
        NumberInWords(
            gettext("From the cache"),
            "–" if share is None else f"{share:.1%}",
            gettext("of {tokens:,} input tokens; {calls:,} calls without reported usage").format(
                tokens=n["input"], calls=n["unreported"]
            ),
            replies,
            key="from-cache",
        ),
        format_money_number(gettext("Cost of calls"), whole, "cost", of=n["calls"], rows=replies),
    ]


def format_late_searches(count: LateSearches, *, wanted: Range, rows: Rows) -> NumberInWords:
    """Return the number of late searches for retrieved context in the last hour."""
    note = ngettext(
        "{share} of {n:,} search in the last hour",
        "{share} of {n:,} searches in the last hour",
        count.total,
    ).format(n=count.total, share=f"{count.share:.1%}")
    replies = rows.of_turns(wanted, status__exact="completed")
    label = gettext("Retrieved context missing")
    return NumberInWords(label, f"{count.late:,}", note, replies, key="late-searches")


def format_money_number(
    label: str, whole: Totals, name: str, *, of: int, rows: str
) -> NumberInWords:
    """Return an amount. Its note gives the number of calls with unknown cost."""
    money = whole.money(name)
    if name == "summary_cost":
        words = ngettext("of {n:,} summary", "of {n:,} summaries", of)
    else:
        words = ngettext("of {n:,} call", "of {n:,} calls", of)
    note = format_unknown_costs(money, of=of) or words.format(n=of)
    return NumberInWords(label, balances.format_money(money), note, rows, key=name)


def format_unknown_costs(money: Money, *, of: int) -> str:
    """Return a note about calls with unknown cost; empty if all costs are known."""
    if not money.unknown:
        return ""
    known = balances.format_known_money(money)
    form = (
        gettext("{n:,} of {all:,} have no price or no reported usage; {known} for the others")
        if known
        else gettext("{n:,} of {all:,} have no price or no reported usage")
    )
    return form.format(n=money.unknown, all=max(of, money.unknown), known=known)


def build_daily_charts(groups: Mapping[str, Totals], *, wanted: Range) -> list[Bars]:
    """Return the charts by day: replies with failures, and input tokens by cache use."""
    days = [(day, groups.get(day.isoformat(), Totals())) for day in wanted.days]
    form = gettext("d M")
    labels = [dateformat.format(day, form) for day, _ in days]
    return [
        build_bar_chart(
            gettext("Replies per day. The red part below the axis shows failed replies."),
            labels,
            [
                [total.numbers["failed"] for _, total in days],
                [total.numbers["replies"] for _, total in days],
            ],
            names=[
                lambda n: gettext("{n:,} failed").format(n=n),
                lambda n: ngettext("{n:,} reply", "{n:,} replies", n).format(n=n),
            ],
            kinds=["bad", "good"],
        ),
        build_bar_chart(
            gettext(
                "Input tokens per day. The part below the axis shows tokens not read from the "
                "cache."
            ),
            labels,
            [
                [total.numbers["input"] - total.numbers["cached"] for _, total in days],
                [total.numbers["cached"] for _, total in days],
            ],
            names=[
                lambda n: gettext("{n:,} not cached").format(n=n),
                lambda n: gettext("{n:,} from the cache").format(n=n),
            ],
        ),
    ]


def build_dashboard_lines(
    groups: Mapping[str, Totals], *, wanted: Range, by: str, rows: Rows
) -> list[DashboardLine]:
    """Return the table rows; days are listed newest first."""
    names = sorted(groups, reverse=by == "day")
    return [
        build_dashboard_line(
            name, groups[name], within=narrow_range(wanted, by=by, name=name), rows=rows
        )
        for name in names
    ]


def narrow_range(wanted: Range, *, by: str, name: str) -> Range:
    """Return the range narrowed to one table row."""
    if by == "day":
        day = date.fromisoformat(name)
        return Range(day, day, wanted.model, wanted.policy)
    if by == "model":
        return Range(wanted.since, wanted.until, name, wanted.policy)
    return Range(wanted.since, wanted.until, wanted.model, name)


def build_dashboard_line(name: str, total: Totals, *, within: Range, rows: Rows) -> DashboardLine:
    n, share = total.numbers, total.cache_share
    effect = total.named["compactions"]["published"]
    ended = rows.of_turns(within, status__exact="completed")
    summaries = rows.of_compactions(within, "published")
    failed = rows.of_turns(within, status__exact="failed")
    cells = [
        NumberInWords(gettext("Replies"), f"{n['replies']:,}", "", ended),
        NumberInWords(gettext("Failed"), f"{n['failed']:,}", "", failed),
        NumberInWords(
            gettext("Time to first token, median"),
            format_bucket_seconds(total.first_token(0.5)),
            "",
            ended,
        ),
        NumberInWords(
            gettext("95th percentile"), format_bucket_seconds(total.first_token(0.95)), "", ended
        ),
        NumberInWords(gettext("Input"), f"{n['input']:,}", "", ended),
        NumberInWords(gettext("Cache"), "–" if share is None else f"{share:.1%}", "", ended),
        NumberInWords(gettext("Cost"), balances.format_money(total.money("cost")), "", ended),
        NumberInWords(gettext("Summaries"), f"{effect:,}", "", summaries),
        NumberInWords(
            pgettext("tokens and money", "Saved"), f"≈ {n['saved_tokens']:,}", "", summaries
        ),
        NumberInWords(
            gettext("Summary cost"),
            balances.format_money(total.money("summary_cost")),
            "",
            summaries,
        ),
        NumberInWords(gettext("Net effect"), balances.format_money(total.net), "", summaries),
    ]
    return DashboardLine(name or gettext("none"), cells)


def build_failure_numbers(whole: Totals, *, wanted: Range, rows: Rows) -> list[NumberInWords]:
    """Return the failures by code, most frequent first."""
    return [
        NumberInWords(code, f"{count:,}", "", rows.of_turns(wanted, error_code=code))
        for code, count in whole.named["failures"].most_common()
    ]


def build_outcome_numbers(whole: Totals, *, wanted: Range, rows: Rows) -> list[NumberInWords]:
    counted = whole.named["compactions"]
    return [
        NumberInWords(str(words), f"{counted[outcome]:,}", "", rows.of_compactions(wanted, outcome))
        for outcome, (words, _, _) in OUTCOMES.items()
    ]
