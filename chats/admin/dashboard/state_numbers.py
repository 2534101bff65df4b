"""The numbers of the dashboard about the current state: queues, workers, stores."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count, Min, Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import dateformat
from django.utils.translation import gettext, ngettext

from chats.background import ledger_export_lines
from chats.checkpoints import signing
from chats.checkpoints.upkeep import find_verification_time
from chats.counts.dashboard import Range
from chats.models import Compaction, ProviderAccount, Turn
from chats.models.turns import UNFINISHED
from contextpolicy.wording import join_items

TURNS = "admin:chats_turn_changelist"


COMPACTIONS = "admin:chats_compaction_changelist"


@dataclass(frozen=True, slots=True)
class NumberInWords:
    """A formatted number with a label, a note and a link to the rows it sums up."""

    label: str
    value: str
    note: str = ""
    rows: str = ""
    # Identifies a figure on the page.
    key: str = ""


def build_rows_url(page: str, wanted: Range, at: str, found_by: Mapping[str, str]) -> str:
    """Return the URL of a filtered list of rows, for a range of days in UTC."""
    query = {
        f"{at}__gte": f"{wanted.since} 00:00:00Z",
        f"{at}__lt": f"{wanted.until + timedelta(days=1)} 00:00:00Z",
        **{name: value for name, value in found_by.items() if value},
    }
    return f"{reverse(page)}?{urlencode(query)}"


def build_state_numbers(request: HttpRequest, *, now: datetime) -> list[NumberInWords]:
    """Return the current state: queues, workers, breakers, checkpoint, verification."""
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
    waits = gettext("the queue is empty")
    if found["oldest"]:
        waits = gettext("the oldest has waited for {time}").format(
            time=format_waiting_age(now, found["oldest"])
        )
    may_see = request.user.has_perm("chats.view_turn")
    turns = reverse(TURNS) if may_see else ""
    summaries = request.user.has_perm("chats.view_compaction")
    providers = "chats.view_provideraccount"
    accounts = reverse("admin:chats_provideraccount_changelist")
    last, whole = signing.find_newest_checkpoint(), find_verification_time(whole=True)
    reads_ledger = request.user.has_perm("contextpolicy.view_auditevent")

    def of_ledger(page: str) -> str:
        return reverse(f"admin:contextpolicy_{page}") if reads_ledger else ""

    shipped = (
        [
            NumberInWords(
                gettext("Audit log lines pending export"),
                f"{ledger_export_lines.count_unshipped_events():,}",
                gettext("These lines are written to standard output."),
                of_ledger("auditevent_changelist"),
                key="ledger-lines",
            )
        ]
        if settings.LEDGER_LINES
        else []
    )
    return [
        *shipped,
        NumberInWords(
            gettext("Waiting for a free worker"),
            f"{found['queued']:,}",
            waits,
            f"{turns}?status__exact=queued" if turns else "",
            key="waiting-turns",
        ),
        NumberInWords(
            gettext("Replies in progress"),
            f"{found['running']:,}",
            format_worker_count(found["workers"]),
            f"{turns}?status__exact=running" if turns else "",
            key="running-turns",
        ),
        NumberInWords(
            gettext("Summaries in progress"),
            f"{made['count']:,}",
            format_worker_count(made["workers"]),
            f"{reverse(COMPACTIONS)}?status__exact=preparing" if summaries else "",
            key="running-summaries",
        ),
        NumberInWords(
            gettext("Paused providers"),
            f"{len(paused):,}",
            join_items(str(account) for account in paused) or gettext("no provider is paused"),
            accounts if request.user.has_perm(providers) else "",
            key="paused-providers",
        ),
        NumberInWords(
            gettext("Last checkpoint"),
            format_dashboard_time(last.signed_at if last else None),
            "",
            of_ledger("ledger_checkpoints"),
            key="last-checkpoint",
        ),
        NumberInWords(
            gettext("Last full verification"),
            format_dashboard_time(whole),
            "",
            of_ledger("ledger_verify"),
            key="last-verification",
        ),
    ]


def format_waiting_age(now: datetime, since: datetime) -> str:
    seconds = max(int((now - since).total_seconds()), 0)
    if seconds < 120:
        return gettext("{seconds:,} s").format(seconds=seconds)
    return gettext("{minutes:,} min").format(minutes=seconds // 60)


def format_worker_count(number: int) -> str:
    return ngettext("by {n:,} worker", "by {n:,} workers", number).format(n=number)


def format_dashboard_time(at: datetime | None) -> str:
    if at is None:
        return gettext("none yet")
    return gettext("{time} UTC").format(time=dateformat.format(at, gettext("d M Y H:i")))
