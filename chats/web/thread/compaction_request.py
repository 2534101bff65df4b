"""The status of a compaction that a person asked for, in the words of the pages."""

from dataclasses import dataclass

from django.utils import timezone

from chats.compaction.report.request_status import LATE, RequestStatus, status_on
from chats.models import Branch, Compaction
from chats.web.reasons import NEXT_STEPS, not_used_words
from chats.web.words import counted, short

KINDS = {"done": ("ok", "check"), "failed": ("warn", "alert"), "nothing": ("", "check")}


@dataclass(frozen=True, slots=True)
class RequestNotice:
    """A notice: its kind, icon, title and body, and the attempt it is about.

    `can_retry`: whether asking again may help; `can_do_without`: whether a summary without a model
    has not been tried; `late_in`: the seconds after which a request that nobody took up is late,
    0 for any other.
    """

    kind: str
    icon: str
    title: str
    body: str
    row: Compaction | None
    can_retry: bool
    can_do_without: bool
    late_in: int


def notice_of(answer: RequestStatus | None) -> RequestNotice | None:
    """Return the notice for a request's status, if there is one."""
    if answer is None:
        return None
    title, body = words_of(answer)
    failed = answer.row if answer.state == "failed" else None
    kind, icon = KINDS.get(answer.state, ("layer", "clock"))
    return RequestNotice(
        kind=kind,
        icon=icon,
        title=title,
        body=body,
        row=answer.row,
        can_retry=failed is not None,
        can_do_without=failed is not None and failed.rung != "extractive",
        late_in=LATE.seconds + 1 if answer.state == "asked" and not answer.is_late else 0,
    )


def notice_beside(branch: Branch) -> RequestNotice | None:
    """Return the notice on a page without a thread."""
    return notice_of(status_on(branch, now=timezone.now()))


def words_of(answer: RequestStatus) -> tuple[str, str]:
    """Return the title and the body."""
    row = answer.row
    if answer.state == "nothing":
        next_step = NEXT_STEPS.get(answer.reason, "")
        return "Nothing was summarised", f"{answer.sentence} {next_step}".strip()
    if row is None and answer.is_late:
        return (
            "A compaction is asked for, and no worker has taken it up yet",
            "It starts by itself when one is free. You can keep writing, or close this page.",
        )
    if row is None:
        return (
            "A compaction is asked for",
            "A worker takes it up in a moment. You can keep writing.",
        )
    if answer.state == "begun":
        return (
            "A summary is being written",
            f"It reads {counted(row.source_count, 'message')}. Nothing changes until it passes"
            " its checks.",
        )
    if answer.state == "waits":
        return waiting_words(row)
    if answer.state == "failed":
        return failed_words(row)
    return done_words(row)


def failed_words(row: Compaction) -> tuple[str, str]:
    """Describe an attempt that failed, and what happens without it."""
    then = "Try again, or have it written from sentences of the originals, which needs no model."
    if row.rung == "extractive":
        then = "If the prompt gets too long meanwhile, only its newest messages are sent."
    return (
        f"This summary was not used: {not_used_words(row.reason)}",
        f"Nothing changed: the messages are sent as before. {then}",
    )


def waiting_words(row: Compaction) -> tuple[str, str]:
    """Describe a summary that is written and not used yet."""
    if row.needs_approval:
        return "The summary waits for approval", "The messages are sent as before until then."
    return "The summary is ready", "It takes the place of its messages when the prompt needs it."


def done_words(row: Compaction) -> tuple[str, str]:
    """Describe a summary that took effect: what it folded, and the prompt before and after."""
    folded = counted(row.source_count, "message")
    what = f"{folded} summarised anew" if row.trigger == "rerun" else f"{folded} summarised"
    sizes = f"prompt ≈ {short(row.tokens_before)} → {short(row.tokens_after)} tokens"
    stands_for = row.to_seq - row.from_seq + 1 - len(row.exceptions)
    return (
        f"Compacted: {what}, {sizes}" if row.tokens_before else f"Compacted: {what}",
        f"The summary stands for {counted(stands_for, 'message')}; the originals stay readable.",
    )
