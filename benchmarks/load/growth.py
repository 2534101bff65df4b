"""The growth of each process's memory in a soak run, and what ran at its peak."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

# Pairs of samples that are compared for a slope; of more samples, every n-th is used.
MOST_SAMPLES = 400


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: seconds since the start, memory by role in MB, and the activity since the last.

    `anonymous` is `pss` without mapped files; its growth is judged. `peak` is the highest resident
    memory since the last reading. `work` counts finished actions of the load.
    `jobs` counts unfinished jobs of the instance.
    """

    at: float
    pss: Mapping[str, float]
    anonymous: Mapping[str, float]
    peak: Mapping[str, float]
    work: Mapping[str, int] = field(default_factory=dict)
    jobs: Mapping[str, int] = field(default_factory=dict)


def compute_slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope of all pairs of points (Theil–Sen), 0.0 for fewer than two points.

    Short peaks hardly change it.
    """
    step = -(-len(points) // MOST_SAMPLES) or 1
    chosen = points[::step]
    slopes = [
        (later[1] - former[1]) / (later[0] - former[0])
        for place, former in enumerate(chosen)
        for later in chosen[place + 1 :]
        if later[0] > former[0]
    ]
    return median(slopes) if slopes else 0.0


def select_steady(samples: Sequence[Sample], *, warm_up: float) -> list[Sample]:
    """Return the samples after the warm-up: `warm_up` seconds, at most a third of the run."""
    if not samples:
        return []
    begin = min(warm_up, samples[-1].at / 3)
    return [sample for sample in samples if sample.at >= begin]


def compute_growth(samples: Sequence[Sample], *, warm_up: float) -> dict[str, float]:
    """Return the growth of each role's anonymous memory after the warm-up, in MB per hour."""
    steady = select_steady(samples, warm_up=warm_up)
    roles = dict.fromkeys(role for sample in samples for role in sample.pss)
    return {
        role: 3600
        * compute_slope([(one.at, one.anonymous[role]) for one in steady if role in one.anonymous])
        for role in roles
    }


def find_excess(growth: Mapping[str, float], *, limit: float) -> list[str]:
    """Return the roles whose memory grew by more than the limit, in MB per hour."""
    return [role for role, rate in growth.items() if rate > limit]


def describe_run(samples: Sequence[Sample], *, warm_up: float) -> Iterator[str]:
    """Yield a report as lines: growth and range of each role, its peak, and what ran then."""
    growth = compute_growth(samples, warm_up=warm_up)
    steady = select_steady(samples, warm_up=warm_up)
    yield (
        "| process | MB per hour | first | after the warm-up | last | without files | peak |"
        " at the peak |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for role, rate in growth.items():
        own = [sample for sample in samples if role in sample.pss]
        begun = next((each for each in steady if role in each.pss), own[-1])
        top = max(own, key=lambda each: each.peak.get(role, 0.0))
        yield (
            f"| {role} | {rate:+.1f} | {own[0].pss[role]:.0f} MB | {begun.pss[role]:.0f} MB "
            f"| {own[-1].pss[role]:.0f} MB | {own[-1].anonymous.get(role, 0.0):.0f} MB "
            f"| {top.peak.get(role, 0.0):.0f} MB "
            f"| {describe_activity(top)} |"
        )


def describe_activity(sample: Sample) -> str:
    """Return the actions and jobs before a sample, the most frequent action first."""
    work = sorted(sample.work.items(), key=lambda each: -each[1])
    parts = [f"{name} {number}" for name, number in work if number]
    parts += [f"{name} {number} unfinished" for name, number in sample.jobs.items() if number]
    return f"{sample.at / 60:.0f} min: {', '.join(parts) or 'nothing'}"
