"""Rows that background jobs skipped because of an error."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import DatabaseError, models, transaction
from django.db.models import F
from django.utils.translation import gettext, gettext_lazy

from contextpolicy.models.base import Stored

logger = logging.getLogger(__name__)
# Maximum number of listed rows per job. With more, the job itself is faulty, not a row.
MOST_OF_A_JOB = 1_000
# Operators see a row for this long, and at most this many rows of a job by name.
SHOWN_FOR = timedelta(days=7)
NAMED = 3


class SkippedRow(Stored):
    """A row that a background job skipped so that later rows are processed.

    Operators see it for seven days (dashboard, `/readyz`). The error's text is never stored because
    it can contain the row's text.
    """

    job = models.CharField(max_length=40)
    row = models.CharField(
        max_length=100,
        help_text=gettext_lazy("Kind and ID of the skipped row, or the skipped step of the job."),
    )
    problem = models.CharField(max_length=60, help_text=gettext_lazy("Class name of the error."))
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
        """Record that a job skips a row because of an error. Never raises, so the job continues.

        Also deletes the records that operators no longer see.
        """
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
            logger.error("cannot record: %s", type(broken).__name__)  # noqa: TRY400  # never its text

    @classmethod
    def warnings(cls, *, now: datetime) -> list[str]:
        """Return one sentence per job that skipped rows recently, naming the newest rows."""
        rows: dict[str, list[SkippedRow]] = {}
        for row in cls.objects.filter(last_at__gte=now - SHOWN_FOR).order_by("-last_at"):
            rows.setdefault(row.job, []).append(row)
        return [format_skip_warning(job, rows[job]) for job in sorted(rows)]


def format_skip_warning(job: str, rows: Sequence[SkippedRow]) -> str:
    """Return the warning about the rows that a job skipped, in the active language."""
    named = ", ".join(f"{row.row} ({row.problem})" for row in rows[:NAMED])
    if len(rows) > NAMED:
        form = gettext("In the last {days} days, the job “{job}” skipped {rows} and {more:,} more.")
    else:
        form = gettext("In the last {days} days, the job “{job}” skipped {rows}.")
    return form.format(job=job, days=SHOWN_FOR.days, rows=named, more=len(rows) - NAMED)
