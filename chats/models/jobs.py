"""Rows that background jobs could not deal with and passed over."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import DatabaseError, models, transaction
from django.db.models import F

from contextpolicy.models.base import Stored

logger = logging.getLogger(__name__)
# More rows of one job are not listed: something is wrong with the job then, not with a row.
MOST_OF_A_JOB = 1_000
# Operators are told of a row for so long, by name of so many of a job.
SHOWN_FOR = timedelta(days=7)
NAMED = 3


class SkippedRow(Stored):
    """A row that a background job skipped, so that the rows behind it are dealt with.

    Operators see it for some days (dashboard, `/readyz`). It never has the error's text, which can
    contain the row's.
    """

    job = models.CharField(max_length=40)
    row = models.CharField(max_length=100, help_text="The row's table and id, or a part of a job.")
    problem = models.CharField(max_length=60, help_text="The kind of error.")
    times = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "row"], name="skipped_once")
        ]
        ordering = ("-last_at",)

    def __str__(self) -> str:
        return f"{self.job}: {self.row}"

    @classmethod
    def note(cls, *, job: str, row: str, error: BaseException, now: datetime) -> None:
        """Note that a job skips a row. Never raises: the job goes on in any case."""
        job, problem = job[:40], type(error).__name__[:60]
        logger.error("%s skips %s: %s", job, row, problem)
        try:
            with transaction.atomic():
                cls.objects.filter(last_at__lt=now - SHOWN_FOR).delete()
                known = cls.objects.filter(job=job, row=row[:100])
                if known.update(times=F("times") + 1, last_at=now, problem=problem):
                    return
                if cls.objects.filter(job=job).count() < MOST_OF_A_JOB:
                    cls.objects.create(
                        job=job, row=row[:100], problem=problem, first_at=now, last_at=now
                    )
        except DatabaseError as broken:
            logger.error("not noted: %s", type(broken).__name__)  # noqa: TRY400  # never its text

    @classmethod
    def warnings(cls, *, now: datetime) -> list[str]:
        """Return one sentence for each job that skipped rows lately, with the newest of them."""
        rows: dict[str, list[SkippedRow]] = {}
        for row in cls.objects.filter(last_at__gte=now - SHOWN_FOR).order_by("-last_at"):
            rows.setdefault(row.job, []).append(row)
        return [warning(job, rows[job]) for job in sorted(rows)]


def warning(job: str, rows: Sequence[SkippedRow]) -> str:
    """Return the sentence about the rows that a job skipped."""
    named = ", ".join(f"{row.row} ({row.problem})" for row in rows[:NAMED])
    more = f" and {len(rows) - NAMED:,} more" if len(rows) > NAMED else ""
    return f"The job “{job}” skipped in the last {SHOWN_FOR.days} days: {named}{more}."
