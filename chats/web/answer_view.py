"""What became of a compaction that a person asked for, in the words of the pages."""

from dataclasses import dataclass

from django.utils import timezone

from chats.compaction.answers import Answer, answer_on
from chats.models import Branch, Compaction
from chats.web.looks import Look, next_look
from chats.web.seams import reason_words
from chats.web.words import counted, short

KINDS = {"done": ("ok", "check"), "failed": ("warn", "alert"), "nothing": ("", "check")}


@dataclass(frozen=True, slots=True)
class AnswerView:
    """A notice: its kind, icon, title and body, the attempt it tells of, and the next look for it.

    `can_retry`: whether asking again may help; `can_do_without`: whether a summary without a model
    has not been tried.
    """

    kind: str
    icon: str
    title: str
    body: str
    row: Compaction | None
    can_retry: bool
    can_do_without: bool
    look: Look | None = None


def view_of_answer(answer: Answer | None, *, look: Look | None = None) -> AnswerView | None:
    """The notice for an answer, if there is one."""
    if answer is None:
        return None
    title, body = words_of(answer)
    failed = answer.row if answer.state == "failed" else None
    kind, icon = KINDS.get(answer.state, ("layer", "clock"))
    return AnswerView(
        kind=kind,
        icon=icon,
        title=title,
        body=body,
        row=answer.row,
        can_retry=failed is not None,
        can_do_without=failed is not None and failed.rung != "extractive",
        look=look,
    )


def answer_beside(branch: Branch, *, number: int) -> AnswerView | None:
    """The notice on a page without a thread, which looks for itself while something is expected.

    `number`: how often it has looked.
    """
    now = timezone.now()
    answer = answer_on(branch, now=now)
    if answer is None:
        return None
    expects = answer.state in {"asked", "begun"}
    look = next_look(number=number, turn=None, is_preparing=expects, now=now)
    return view_of_answer(answer, look=look)


def words_of(answer: Answer) -> tuple[str, str]:
    """The title and the body."""
    row = answer.row
    if answer.state == "nothing":
        return "Nothing was summarised", f"{answer.sentence} {answer.next_step}".strip()
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
    """An attempt that came to nothing, and what happens without it."""
    then = "Try again, or have it written from sentences of the originals, which needs no model."
    if row.rung == "extractive":
        then = "If the prompt gets too long meanwhile, only its newest messages are sent."
    return (
        f"This summary was not used: {reason_words(row.reason)}",
        f"Nothing changed: the messages are sent as before. {then}",
    )


def waiting_words(row: Compaction) -> tuple[str, str]:
    """A summary that is written and not used yet."""
    if row.needs_approval:
        return "The summary waits for approval", "The messages are sent as before until then."
    return "The summary is ready", "It takes the place of its messages when the prompt needs it."


def done_words(row: Compaction) -> tuple[str, str]:
    """A summary that took effect: what it folded, and what became of the prompt."""
    folded = counted(row.source_count, "message")
    what = f"{folded} summarised anew" if row.trigger == "rerun" else f"{folded} summarised"
    sizes = f"prompt ≈ {short(row.tokens_before)} → {short(row.tokens_after)} tokens"
    stands_for = row.to_seq - row.from_seq + 1 - len(row.exceptions)
    return (
        f"Compacted: {what}, {sizes}" if row.tokens_before else f"Compacted: {what}",
        f"The summary stands for {counted(stands_for, 'message')}; the originals stay readable.",
    )
