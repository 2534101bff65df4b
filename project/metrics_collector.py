"""The metrics of the whole instance for `/metrics`.

All values come from the database and the broker, so each web process returns the same,
and processing a message updates no counter. The daily counts follow the audit log
within seconds.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache

from django.conf import settings
from django.db.models import Count, Min
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from redis.exceptions import RedisError

from chats.counts.dashboard import Totals, list_counted_rows
from chats.counts.sums import BUCKETS, MORE
from chats.ground import broker_facts, heartbeats, queues, shared_figures
from chats.models import Compaction, Turn
from chats.models.turns import UNFINISHED

PREFIX = "palimpsest"
ENDED = {"replies": "completed", "stopped": "stopped", "failed": "failed"}
TOKENS = {
    "input": "all input tokens",
    "cached": "input tokens read from a provider's cache",
    "written": "input tokens written to a provider's cache",
    "output": "output tokens",
}
# Counts of the last days still change; those of earlier days are cached.
OPEN_DAYS = 2
UNDER_WAY = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]


def format_metrics(now: datetime) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(InstanceCollector(now))
    return generate_latest(registry)


class InstanceCollector:
    """Collects all metrics once, for one scrape."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples.

        If the broker or the data folder is unavailable, its metrics are omitted.
        """
        info = GaugeMetricFamily(f"{PREFIX}_info", "Version of the product", labels=["version"])
        info.add_metric([settings.VERSION], 1)
        yield info
        yield from self.collect_turns()
        yield from collect_totals(self.now.date())
        yield self.collect_summaries()
        with suppress(RedisError, OSError):
            yield from list(self.collect_broker())
        with suppress(OSError):
            disk = os.statvfs(settings.DATA_DIR)
            free = disk.f_bavail * disk.f_frsize
            yield GaugeMetricFamily(f"{PREFIX}_disk_free_bytes", "Data folder", value=free)

    def collect_turns(self) -> Iterator[Metric]:
        """Yield the unfinished turns by state, and the waiting time of the oldest one."""
        turns = GaugeMetricFamily(f"{PREFIX}_turns", "Unfinished turns", labels=["state"])
        rows = Turn.objects.filter(status__in=UNFINISHED).order_by().values_list("status")
        found = {
            status: (n, since) for status, n, since in rows.annotate(Count("pk"), Min("queued_at"))
        }
        for status in UNFINISHED:
            turns.add_metric([status], found.get(status, (0, None))[0])
        yield turns
        since = found.get(Turn.Status.QUEUED, (0, None))[1]
        lag = max((self.now - since).total_seconds(), 0.0) if since else 0.0
        yield GaugeMetricFamily(
            f"{PREFIX}_queue_lag_seconds", "Time that the oldest queued turn waits", value=lag
        )

    def collect_summaries(self) -> Metric:
        """Return the summaries that are being written or wait for their publication."""
        family = GaugeMetricFamily(
            f"{PREFIX}_summaries_under_way", "Summaries not yet published", labels=["state"]
        )
        rows = Compaction.objects.filter(status__in=UNDER_WAY).order_by().values_list("status")
        found = dict(rows.annotate(Count("pk")))
        for status in UNDER_WAY:
            family.add_metric([status], found.get(status, 0))
        return family

    def collect_broker(self) -> Iterator[Metric]:
        """Yield queue lengths, heartbeats, streams and lease losses.

        Raises RedisError or OSError.
        """
        waiting = GaugeMetricFamily(f"{PREFIX}_tasks_waiting", "In the broker", labels=["queue"])
        streams = GaugeMetricFamily(
            f"{PREFIX}_open_streams", "Event streams of a web process", labels=["process"]
        )
        with broker_facts.connect_to_broker(settings.REDIS_URL) as client:
            for name in queues.EVERY:
                waiting.add_metric([name], client.llen(name))
            for process, count in shared_figures.load_open_streams(client).items():
                streams.add_metric([process], count)
            losses = shared_figures.load_lease_losses(client)
        yield waiting
        yield streams
        yield CounterMetricFamily(f"{PREFIX}_lease_losses", "Turns whose worker died", value=losses)
        ages = GaugeMetricFamily(
            f"{PREFIX}_heartbeat_age_seconds", "Since the last heartbeat", labels=["process"]
        )
        for one in heartbeats.list_heartbeats():
            ages.add_metric([one.name], one.age)
        yield ages


def collect_totals(today: date) -> Iterator[Metric]:
    """Yield the counters that the daily counts add up to."""
    models = sum_counts(today)
    tokens = CounterMetricFamily(
        f"{PREFIX}_tokens",
        "; ".join(f"{k}: {v}" for k, v in TOKENS.items()),
        labels=["kind", "model"],
    )
    calls = CounterMetricFamily(f"{PREFIX}_model_calls", "Calls of models", labels=["model"])
    ended = CounterMetricFamily(f"{PREFIX}_turns_ended", "Ended turns", labels=["state"])
    whole = Totals()
    for model, totals in models.items():
        for kind in TOKENS:
            tokens.add_metric([kind, model], totals.numbers[kind])
        calls.add_metric([model], totals.numbers["calls"])
        whole.merge(totals)
    for column, state in ENDED.items():
        ended.add_metric([state], whole.numbers[column])
    yield from (tokens, calls, ended)
    for column, label, name in (
        ("failures", "code", "turn_failures"),
        ("compactions", "outcome", "compactions"),
    ):
        family = CounterMetricFamily(f"{PREFIX}_{name}", f"By {label}", labels=[label])
        for value, count in sorted(whole.named[column].items()):
            family.add_metric([value], count)
        yield family
    yield build_first_token_histogram(whole.named["first_tokens"])


def build_first_token_histogram(counted: Counter[str]) -> Metric:
    """Return the times from the acceptance of a message to its first token."""
    family = HistogramMetricFamily(
        f"{PREFIX}_first_token_seconds", "From the acceptance of a message to its first token"
    )
    seen = 0
    buckets: list[tuple[str, float]] = []
    for border in BUCKETS:
        seen += counted[str(border)]
        buckets.append((str(border / 1000), seen))
    # The sum of the times is not stored.
    family.add_metric([], [*buckets, ("+Inf", seen + counted[MORE])], sum_value=None)
    return family


def sum_counts(today: date) -> dict[str, Totals]:
    """Return the totals of each model since the beginning."""
    first_open = today - timedelta(days=OPEN_DAYS)
    found: dict[str, Totals] = {}
    for model, totals in sum_closed_counts(first_open).items():
        found.setdefault(model, Totals()).merge(totals)
    for row in list_counted_rows(since=first_open):
        found.setdefault(row["model"], Totals()).add(row)
    return found


@lru_cache(maxsize=1)
def sum_closed_counts(before: date) -> dict[str, Totals]:
    """Return the totals of each model before a day; computed once a day."""
    found: dict[str, Totals] = {}
    for row in list_counted_rows(before=before):
        found.setdefault(row["model"], Totals()).add(row)
    return found
