"""Notices about a compaction that the user requested."""

from dataclasses import dataclass

from django.utils import timezone
from django.utils.translation import gettext, ngettext

from chats.compaction.report.request_status import LATE, RequestStatus, get_request_status
from chats.models import Branch, Compaction
from chats.web.reasons import NEXT_STEPS, describe_unused_reason
from chats.web.words import abbreviate_number
from contextpolicy.wording import join_sentences

KINDS = {"done": ("ok", "check"), "failed": ("warn", "alert"), "nothing": ("", "check")}


@dataclass(frozen=True, slots=True)
class RequestNotice:
    """A notice: kind, icon, title, body, and the attempt that it refers to.

    `status`: the code of the title. `reason`: the underlying code, if any. `can_retry`: a retry may
    help. `can_do_without`: a summary without a model has not been tried yet. `late_in`: seconds
    after which a request that no worker started is late; 0 otherwise.
    """

    kind: str
    status: str
    reason: str
    icon: str
    title: str
    body: str
    row: Compaction | None
    can_retry: bool
    can_do_without: bool
    late_in: int


def build_request_notice(answer: RequestStatus | None) -> RequestNotice | None:
    if answer is None:
        return None
    title, body = describe_request_status(answer)
    failed = answer.row if answer.state == "failed" else None
    kind, icon = KINDS.get(answer.state, ("layer", "clock"))
    return RequestNotice(
        kind=kind,
        status=get_notice_status(answer),
        reason=answer.reason,
        icon=icon,
        title=title,
        body=body,
        row=answer.row,
        can_retry=failed is not None,
        can_do_without=failed is not None and failed.rung != "extractive",
        late_in=LATE.seconds + 1 if answer.state == "asked" and not answer.is_late else 0,
    )


def get_notice_status(answer: RequestStatus) -> str:
    """Return the code of the title: the state, or `late`, `pending_approval` or `done_again`."""
    if answer.is_late:
        return "late"
    if answer.row and answer.state == "waits" and answer.row.needs_approval:
        return "pending_approval"
    if answer.row and answer.state == "done" and answer.row.trigger == "rerun":
        return "done_again"
    return answer.state


def load_request_notice(branch: Branch) -> RequestNotice | None:
    """Return the notice for a page without a thread, or None if there is nothing to report."""
    return build_request_notice(get_request_status(branch, now=timezone.now()))


def describe_request_status(answer: RequestStatus) -> tuple[str, str]:
    """Return the title and the body of the notice about a requested compaction."""
    row = answer.row
    if answer.state == "nothing":
        next_step = NEXT_STEPS.get(answer.reason, "")
        return gettext("No messages were summarised"), join_sentences(answer.sentence, next_step)
    if row is None and answer.is_late:
        return (
            gettext("Compaction requested, but not started yet"),
            gettext("It starts when a worker is free. You can keep writing, or close this page."),
        )
    if row is None:
        return (
            gettext("Compaction requested"),
            gettext("It starts shortly. You can keep writing."),
        )
    if answer.state == "begun":
        body = ngettext(
            "It covers {n:,} message. Prompts change only after the summary passes its checks.",
            "It covers {n:,} messages. Prompts change only after the summary passes its checks.",
            row.source_count,
        )
        return gettext("A summary is being written"), body.format(n=row.source_count)
    if answer.state == "waits":
        return describe_waiting_summary(row)
    if answer.state == "failed":
        return describe_failed_attempt(row)
    return describe_published_summary(row)


def describe_failed_attempt(row: Compaction) -> tuple[str, str]:
    title = gettext("This summary was not used: {reason}")
    if row.rung == "extractive":
        then = gettext("If the prompt gets too long, only the newest messages are sent.")
    else:
        then = gettext("Try again, or use extracted sentences, which require no model.")
    return (
        title.format(reason=describe_unused_reason(row.reason)),
        join_sentences(gettext("Prompts did not change. The messages are still sent."), then),
    )


def describe_waiting_summary(row: Compaction) -> tuple[str, str]:
    """Return the notice for a finished summary that is not used yet."""
    if row.needs_approval:
        return (
            gettext("The summary is pending approval"),
            gettext("Until it is approved, the messages are still sent."),
        )
    return (
        gettext("The summary is ready"),
        gettext("The summary replaces its messages when the prompt needs the space."),
    )


def describe_published_summary(row: Compaction) -> tuple[str, str]:
    """Return the notice for a published summary: messages, and prompt size before and after."""
    replaced = row.source_count
    if row.trigger == "rerun":
        what = ngettext(
            "{n:,} message summarised again", "{n:,} messages summarised again", replaced
        )
    else:
        what = ngettext("{n:,} message summarised", "{n:,} messages summarised", replaced)
    if row.tokens_before:
        title = gettext("Compacted: {what}, prompt ≈ {before} → {after} tokens")
    else:
        title = gettext("Compacted: {what}")
    stands_for = row.to_seq - row.from_seq + 1 - len(row.exceptions)
    body = ngettext(
        "The summary covers {n:,} message; the originals stay readable.",
        "The summary covers {n:,} messages; the originals stay readable.",
        stands_for,
    )
    sizes = {
        "before": abbreviate_number(row.tokens_before),
        "after": abbreviate_number(row.tokens_after),
    }
    return title.format(what=what.format(n=replaced), **sizes), body.format(n=stands_for)
