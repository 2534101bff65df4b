"""The soak run: growth is computed and judged, and a short run loses no reply."""

import json
import os
import random
from pathlib import Path

import pytest

from benchmarks.load.growth import (
    Sample,
    compute_growth,
    compute_slope,
    describe_run,
    find_excess,
)
from benchmarks.load.meter import find_role
from tests.faults.programs import python, run
from tests.support.repository import ROOT

EVERY = 15.0


def play_run(*, leak: float, minutes: int = 120, peak_at: int = -1) -> list[Sample]:
    """Samples of a process that grows by `leak` MB an hour, with noise, and of a steady one.

    It grows by 40 MB in its first ten minutes, as caches do.
    """
    chance = random.Random(3)  # noqa: S311  # to be repeated
    samples = []
    for number in range(int(minutes * 60 / EVERY)):
        at = number * EVERY
        warm = 40 * min(at / 600, 1)
        pss = 100 + warm + leak * at / 3600 + chance.uniform(-2, 2)
        extra = 400 if number == peak_at else 0
        work = {"export": 7, "page": 2} if extra else {"page": 1}
        jobs = {"summaries": 3 if extra else 0}
        samples.append(
            Sample(at, {"web": pss}, {"web": pss, "broker": 5}, {"web": pss + extra}, work, jobs)
        )
    return samples


def test_a_leak_is_measured_and_exceeds_the_limit() -> None:
    growth = compute_growth(play_run(leak=3), warm_up=1800)
    assert growth["web"] == pytest.approx(3, abs=0.3)
    assert find_excess(growth, limit=1) == ["web"]


def test_growth_of_the_warm_up_and_noise_are_no_leak() -> None:
    growth = compute_growth(play_run(leak=0), warm_up=1800)
    assert growth["web"] == pytest.approx(0, abs=0.3)
    assert find_excess(growth, limit=1) == []


def test_a_short_run_is_judged_after_its_first_third() -> None:
    rising = [Sample(at, {"web": 1}, {"web": 100 + at}, {}) for at in range(0, 31, 10)]
    steady = [Sample(at, {"web": 1}, {"web": 130}, {}) for at in range(40, 100, 10)]
    assert compute_growth([*rising, *steady], warm_up=1800)["web"] == 0


def test_a_peak_does_not_change_the_slope() -> None:
    points = [(float(at), 5.0) for at in range(20)]
    assert compute_slope([*points, (20.0, 900.0)]) == 0


def test_the_report_names_what_ran_at_the_peak() -> None:
    web = next(
        line for line in describe_run(play_run(leak=0, peak_at=200), warm_up=1800) if "web" in line
    )
    assert "50 min: export 7, page 2, summaries 3 unfinished" in web


def test_a_process_that_starts_late_is_reported() -> None:
    early = Sample(0, {"web": 1}, {"web": 1}, {})
    late = Sample(15, {"web": 1, "background": 9}, {"web": 1, "background": 7}, {"background": 9})
    lines = list(describe_run([early, late], warm_up=1800))
    assert any("| background | +0.0 | 9 MB" in line and "7 MB" in line for line in lines)


def test_a_growing_database_file_is_no_leak() -> None:
    samples = [Sample(at, {"web": 100 + at}, {"web": 100}, {}) for at in range(0, 100, 10)]
    assert compute_growth(samples, warm_up=1800)["web"] == 0


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("python -m celery -A project worker -Q replies -n replies@%h", "worker"),
        ("python -m celery -A project worker -Q summaries,upkeep", "background"),
        ("[celeryd: summaries@vm:MainProcess] -active- (--quiet", "background"),
        ("[celeryd: replies@vm:MainProcess] -active- (--quiet", "worker"),
        ("python manage.py web --port 1", "web"),
        ("python manage.py serve", "launcher"),
        ("sleep 1", ""),
    ],
)
def test_processes_are_recognised(command: str, role: str) -> None:
    assert find_role(command) == role


@pytest.mark.slow
@pytest.mark.processes
def test_a_short_run_loses_no_reply(tmp_path: Path) -> None:
    command = python("-m", "benchmarks.soak", "--minutes", "0.4", "--every", "3")
    # Without the environment of the tests, which names a broker that does not exist.
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    said = run([*command, "--rate", "3", "--folder", str(tmp_path)], env=env, seconds=150)
    assert " 0 lost replies" in said, said
    lines = (tmp_path / "soak.jsonl").read_text(encoding="utf-8").splitlines()
    samples = [json.loads(line) for line in lines]
    assert {"launcher", "web", "worker", "background", "broker"} <= set(samples[-1]["pss"])
    assert sum(sample["work"].get("reply", 0) for sample in samples) > 5, said
    assert (tmp_path / "soak.svg").read_text(encoding="utf-8").startswith("<svg")
