"""The numbers of the dashboard in words, each with the address of the rows behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count, Min, Q
from django.http import HttpRequest
from django.urls import reverse

from chats import shipping
from chats.admin.charts import Bars, bars_of
from chats.admin.records import STRATEGY_FROM
from chats.checkpoints import signing
from chats.checkpoints.upkeep import asked_at
from chats.counts import balances
from chats.counts.dashboard import Range, Totals, seconds_words
from chats.counts.searches import LateSearches
from chats.models import Compaction, ProviderAccount, Turn
from chats.models.turns import UNFINISHED
from contextpolicy.engine.costs import Money

TURNS = "admin:chats_turn_changelist"
COMPACTIONS = "admin:chats_compaction_changelist"
# What became of compactions, in words, and how its rows are found: status or kind, and its time.
OUTCOMES: Mapping[str, tuple[str, dict[str, str], str]] = {
    "published": ("Summary took effect", {"kind__exact": "summary"}, "published_at"),
    "window": ("Left out without a summary", {"kind__exact": "window"}, "published_at"),
    "rejected": ("Rejected", {"status__exact": "rejected"}, "finished_at"),
    "failed": ("Failed", {"status__exact": "failed"}, "finished_at"),
    "overtaken": ("Overtaken", {"status__exact": "overtaken"}, "finished_at"),
    "undone": ("Undone", {"status__exact": "undone"}, "published_at"),
    "redone": ("Put in force again", {"kind__exact": "summary"}, "published_at"),
    "revised": ("Corrected by a person", {"trigger__exact": "revision"}, "published_at"),
}


@dataclass(frozen=True, slots=True)
class NumberInWords:
    """A number in words, with a note, and the address of the rows behind it."""

    label: str
    value: str
    note: str = ""
    rows: str = ""


@dataclass(frozen=True, slots=True)
class DashboardLine:
    """One line of the table: a day, a model or a policy, and its numbers."""

    name: str
    cells: Sequence[NumberInWords]


class Rows:
    """The addresses of the rows behind numbers, for who may see them."""

    def __init__(self, request: HttpRequest) -> None:
        self.turns = request.user.has_perm("chats.view_turn")
        self.compactions = request.user.has_perm("chats.view_compaction")

    def of_turns(self, wanted: Range, **found_by: str) -> str:
        """Lead to the turns that ended in a range."""
        if not self.turns:
            return ""
        more = {
            "model__slug": wanted.model,
            "effective_policy__sources__strategy__1": wanted.policy,
        }
        return address(TURNS, wanted, "finished_at", {**found_by, **more})

    def of_compactions(self, wanted: Range, outcome: str) -> str:
        """Lead to the compactions of one outcome."""
        if not self.compactions:
            return ""
        _, found_by, at = OUTCOMES[outcome]
        more = {STRATEGY_FROM: wanted.policy}
        return address(COMPACTIONS, wanted, at, {**found_by, **more})


def address(page: str, wanted: Range, at: str, found_by: Mapping[str, str]) -> str:
    """Return the address of a list of rows of these days (UTC)."""
    query = {
        f"{at}__gte": f"{wanted.since} 00:00:00Z",
        f"{at}__lt": f"{wanted.until + timedelta(days=1)} 00:00:00Z",
        **{name: value for name, value in found_by.items() if value},
    }
    return f"{reverse(page)}?{urlencode(query)}"


def figures_of(whole: Totals, *, wanted: Range, rows: Rows) -> list[NumberInWords]:
    """Return the headline numbers."""
    n = whole.numbers
    share, slow = whole.cache_share, seconds_words(whole.first_token(0.95))
    took_effect = whole.named["compactions"]["published"]
    replies = rows.of_turns(wanted, status__exact="completed")
    summaries = rows.of_compactions(wanted, "published")
    return [
        NumberInWords("Replies", f"{n['replies']:,}", "", replies),
        NumberInWords(
            "Failed",
            f"{n['failed']:,}",
            "",
            rows.of_turns(wanted, status__exact="failed"),
        ),
        NumberInWords(
            "Stopped",
            f"{n['stopped']:,}",
            "by a person",
            rows.of_turns(wanted, status__exact="stopped"),
        ),
        NumberInWords(
            "First token",
            seconds_words(whole.first_token(0.5)),
            f"for half of the replies; {slow} for 95 of 100",
            replies,
        ),
        NumberInWords(
            "Summaries in force",
            f"{took_effect:,}",
            "took effect",
            summaries,
        ),
        NumberInWords(
            "Tokens saved",
            f"≈ {n['saved_tokens']:,}",
            f"in {n['governed']:,} prompts",
            summaries,
        ),
        money_told("Summary cost", whole, "summary_cost", of=n["summaries"], rows=summaries),
        NumberInWords(
            "Net effect",
            balances.words(whole.net),
            unknown_words(whole.net, of=n["governed"] + n["summaries"])
            or "saved, less summaries and what the cache lost",
            summaries,
        ),
        NumberInWords(
            "From the cache",
            "–" if share is None else f"{share:.1%}",
            f"of {n['input']:,} input tokens; {n['unreported']:,} calls not reported",
            replies,
        ),
        money_told("Cost of calls", whole, "cost", of=n["calls"], rows=replies),
    ]


def searches_told(count: LateSearches, *, wanted: Range, rows: Rows) -> NumberInWords:
    """Return the number of late searches for retrieved context in the last hour."""
    note = f"of {count.total:,} searches in the last hour"
    replies = rows.of_turns(wanted, status__exact="completed")
    return NumberInWords("Retrieved context missing", f"{count.late:,}", note, replies)


def money_told(label: str, whole: Totals, name: str, *, of: int, rows: str) -> NumberInWords:
    """Return a sum of money; the calls that have no price stand apart, with their share."""
    money = whole.money(name)
    return NumberInWords(
        label, balances.words(money), unknown_words(money, of=of) or f"of {of:,}", rows
    )


def unknown_words(money: Money, *, of: int) -> str:
    """Say for how many the worth is unknown, and what is known of the others."""
    if not money.unknown:
        return ""
    known = balances.known_words(money)
    share = f"no price for {money.unknown:,} of {max(of, money.unknown):,}"
    return f"{share}; {known} of the others" if known else share


def charts_of(groups: Mapping[str, Totals], *, wanted: Range) -> list[Bars]:
    """Draw the days: replies with failures, and the share from the cache."""
    days = [(day, groups.get(day.isoformat(), Totals())) for day in wanted.days]
    labels = [f"{day:%d %b}" for day, _ in days]
    return [
        bars_of(
            "Replies a day; below, in red: failed",
            labels,
            [
                [total.numbers["failed"] for _, total in days],
                [total.numbers["replies"] for _, total in days],
            ],
            names=["failed", "replies"],
            kinds=["bad", "good"],
        ),
        bars_of(
            "Input tokens a day; below, in another colour: read anew",
            labels,
            [
                [total.numbers["input"] - total.numbers["cached"] for _, total in days],
                [total.numbers["cached"] for _, total in days],
            ],
            names=["read anew", "from the cache"],
        ),
    ]


def lines_of(
    groups: Mapping[str, Totals], *, wanted: Range, by: str, rows: Rows
) -> list[DashboardLine]:
    """Return the table, newest day first."""
    names = sorted(groups, reverse=by == "day")
    return [
        line_of(name, groups[name], within=narrowed(wanted, by=by, name=name), rows=rows)
        for name in names
    ]


def narrowed(wanted: Range, *, by: str, name: str) -> Range:
    """Return the part of a range that a line is about."""
    if by == "day":
        day = date.fromisoformat(name)
        return Range(day, day, wanted.model, wanted.policy)
    if by == "model":
        return Range(wanted.since, wanted.until, name, wanted.policy)
    return Range(wanted.since, wanted.until, wanted.model, name)


def line_of(name: str, total: Totals, *, within: Range, rows: Rows) -> DashboardLine:
    """Return one line of the table."""
    n, share = total.numbers, total.cache_share
    effect = total.named["compactions"]["published"]
    ended = rows.of_turns(within, status__exact="completed")
    summaries = rows.of_compactions(within, "published")
    failed = rows.of_turns(within, status__exact="failed")
    cells = [
        NumberInWords("Replies", f"{n['replies']:,}", "", ended),
        NumberInWords("Failed", f"{n['failed']:,}", "", failed),
        NumberInWords("First token, half", seconds_words(total.first_token(0.5)), "", ended),
        NumberInWords("95 of 100", seconds_words(total.first_token(0.95)), "", ended),
        NumberInWords("Input", f"{n['input']:,}", "", ended),
        NumberInWords("Cache", "–" if share is None else f"{share:.1%}", "", ended),
        NumberInWords("Cost", balances.words(total.money("cost")), "", ended),
        NumberInWords("Summaries", f"{effect:,}", "", summaries),
        NumberInWords("Saved", f"≈ {n['saved_tokens']:,}", "", summaries),
        NumberInWords("Summary cost", balances.words(total.money("summary_cost")), "", summaries),
        NumberInWords("Net effect", balances.words(total.net), "", summaries),
    ]
    return DashboardLine(name or "none", cells)


def failures_of(whole: Totals, *, wanted: Range, rows: Rows) -> list[NumberInWords]:
    """Return the failures by code, the most frequent first."""
    return [
        NumberInWords(code, f"{count:,}", "", rows.of_turns(wanted, error_code=code))
        for code, count in whole.named["failures"].most_common()
    ]


def outcomes_of(whole: Totals, *, wanted: Range, rows: Rows) -> list[NumberInWords]:
    """Return what became of compactions."""
    counted = whole.named["compactions"]
    return [
        NumberInWords(words, f"{counted[outcome]:,}", "", rows.of_compactions(wanted, outcome))
        for outcome, (words, _, _) in OUTCOMES.items()
    ]


def state_of(request: HttpRequest, *, now: datetime) -> list[NumberInWords]:
    """Return how the instance is now: queues, workers, breakers, checkpoint, verification."""
    rows = Turn.objects.filter(status__in=UNFINISHED)
    found = rows.aggregate(
        queued=Count("pk", Q(status=Turn.Status.QUEUED)),
        running=Count("pk", Q(status=Turn.Status.RUNNING)),
        workers=Count("worker", Q(status=Turn.Status.RUNNING), distinct=True),
        oldest=Min("queued_at", filter=Q(status=Turn.Status.QUEUED)),
    )
    writing = Compaction.objects.filter(lease_until__isnull=False)
    made = writing.aggregate(count=Count("pk"), workers=Count("worker", distinct=True))
    paused = list(ProviderAccount.objects.filter(paused_until__gt=now).order_by("name"))
    waits = f"the oldest for {age(now, found['oldest'])}" if found["oldest"] else "nothing waits"
    may_see = request.user.has_perm("chats.view_turn")
    turns = reverse(TURNS) if may_see else ""
    summaries = request.user.has_perm("chats.view_compaction")
    providers = "chats.view_provideraccount"
    accounts = reverse("admin:chats_provideraccount_changelist")
    last, whole = signing.newest(), asked_at(whole=True)
    reads_ledger = request.user.has_perm("contextpolicy.view_auditevent")

    def of_ledger(page: str) -> str:
        return reverse(f"admin:contextpolicy_{page}") if reads_ledger else ""

    shipped = (
        [
            NumberInWords(
                "Ledger lines that wait",
                f"{shipping.lag():,}",
                "for the standard output",
                of_ledger("auditevent_changelist"),
            )
        ]
        if settings.LEDGER_LINES
        else []
    )
    return [
        *shipped,
        NumberInWords(
            "Waiting for a worker",
            f"{found['queued']:,}",
            waits,
            f"{turns}?status__exact=queued" if turns else "",
        ),
        NumberInWords(
            "Replies being written",
            f"{found['running']:,}",
            f"by {found['workers']:,} workers",
            f"{turns}?status__exact=running" if turns else "",
        ),
        NumberInWords(
            "Summaries being written",
            f"{made['count']:,}",
            f"by {made['workers']:,} workers",
            f"{reverse(COMPACTIONS)}?status__exact=preparing" if summaries else "",
        ),
        NumberInWords(
            "Providers that rest",
            f"{len(paused):,}",
            ", ".join(str(account) for account in paused) or "every breaker is closed",
            accounts if request.user.has_perm(providers) else "",
        ),
        NumberInWords(
            "Last checkpoint",
            said_at(last.signed_at if last else None),
            "",
            of_ledger("ledger_checkpoints"),
        ),
        NumberInWords("Last full verification", said_at(whole), "", of_ledger("ledger_verify")),
    ]


def age(now: datetime, since: datetime) -> str:
    """Say for how long something has waited."""
    seconds = max(int((now - since).total_seconds()), 0)
    return f"{seconds:,} s" if seconds < 120 else f"{seconds // 60:,} min"


def said_at(at: datetime | None) -> str:
    """Say a time."""
    return f"{at:%d %b %Y %H:%M} UTC" if at else "none yet"
