"""The context meter: the size of the next message's prompt, shown before it is sent.

It has the lines and reasons of an outlook, in the provider's tokens: our count times the model's
calibration (≈). The receipt of the next message says the same of every part.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from chats.models import Branch, Chat, Compaction
from chats.prompt import model_choice
from chats.prompt.outlook import Outlook, fate_of, outlook_on
from chats.prompt.tail import excerpt_room
from chats.record import states
from contextpolicy.engine.assembly import need
from contextpolicy.engine.budget import compact_mark, prepare_mark
from contextpolicy.engine.policy import PolicyValues

IN_THE_MAKING = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]
# A compaction that is further away than so many turns is not announced.
FORESEEN = 20
# The parts of a prompt in the order of the meter; the optional ones are shown only if they exist.
ORDER = ("system", "tools", "summary", "pins", "history", "tail", "question")
OPTIONAL = frozenset({"tools", "tail"})


@dataclass(frozen=True, slots=True)
class MeterPart:
    """One line of the meter: what it is, how many tokens, and why so many."""

    key: str
    label: str
    tokens: int
    why: str


@dataclass(frozen=True, slots=True)
class Meter:
    """The content of the meter, in estimates (≈) of the provider's tokens."""

    used: int
    prompt_limit: int
    token_budget: int
    reserve: int
    parts: tuple[MeterPart, ...]
    approximate: bool
    policy_label: str
    next_compaction: str
    prepare_mark: int
    limit: int
    system_hidden: bool
    kept: states.Kept | None
    writes_summaries: bool
    # Some policy says how old messages may become.
    limits_age: bool
    # What it was made of.
    outlook: Outlook


def meter(
    *,
    chat: Chat,
    now: datetime,
    outlook: Outlook | None = None,
    branch: Branch | None = None,
    making: str | None = None,
) -> Meter:
    """Return the meter of a chat.

    `outlook`, `branch` and `making`, the status of a summary that is being written or waits, are
    given if they were read already. Raises the refusals of `model_choice.choose`, and
    `composition.PromptRefused`.
    """
    if branch is None:
        rows = Branch.objects.select_related("active_compaction__base", "parent")
        branch = rows.get(pk=cast(uuid.UUID, chat.active_branch_id))
        branch.chat = chat
        making = making_on(branch)
    outlook = outlook or outlook_on(branch, choice=model_choice.choose(chat=chat), now=now)
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    return Meter(
        used=sum(outlook.tokens.values()),
        prompt_limit=limit,
        token_budget=limit + values.reserve_tokens,
        reserve=values.reserve_tokens,
        parts=parts_of(outlook),
        approximate=True,
        policy_label=outlook.choice.effective.label,
        next_compaction=forecast(branch, outlook=outlook, making=making),
        prepare_mark=prepare_mark(values, prompt_limit=limit),
        limit=values.input_length_limit,
        system_hidden=values.hide_system_text,
        kept=outlook.kept,
        writes_summaries=values.strategy == "dynamic_summary",
        limits_age=values.retention_days is not None,
        outlook=outlook,
    )


def parts_of(outlook: Outlook) -> tuple[MeterPart, ...]:
    """Return the lines of the breakdown, each with its reason."""
    tokens, values = outlook.tokens, outlook.choice.values
    limit = outlook.sent.budget.prompt_limit
    why = {
        "system": ("System", system_words(outlook)),
        "tools": ("Tools", "What the model may call, with how"),
        "summary": layer_words(outlook),
        "pins": ("Pins", pin_words(outlook)),
        "history": ("History", history_words(outlook)),
        "tail": tail_words(outlook),
        "question": ("Your message", "Its frame; the words you write come on top"),
    }
    if outlook.kept and not tokens.get("summary"):
        del why["summary"]
    return (
        *(
            MeterPart(key, why[key][0], tokens.get(key, 0), why[key][1])
            for key in ORDER
            if key in why and (tokens.get(key) or key not in OPTIONAL)
        ),
        MeterPart("free", "Free", max(limit - sum(tokens.values()), 0), room_words(outlook)),
        MeterPart(
            "reserve",
            "Reply reserve",
            values.reserve_tokens,
            "Kept free so the reply is not cut off",
        ),
    )


def system_words(outlook: Outlook) -> str:
    """Say whose instructions the system text is."""
    whose = {"policy": "the policy", "chat": "the chat"}
    found = [s.message_id for s in outlook.sent.segments if s.origin == "system"]
    named = [whose.get(name, name) for name in found]
    return f"Instructions of {' and '.join(named)}" if named else "None"


def pin_words(outlook: Outlook) -> str:
    """Count the pinned messages that are sent although their neighbours are not."""
    count = sum(1 for s in outlook.sent.segments if s.origin == "pin")
    where = "under the summary" if outlook.given.summary else "before the window"
    return f"{messages(count)} {where}" if count else "None"


def layer_words(outlook: Outlook) -> tuple[str, str]:
    """Describe what lies before the history: a summary, a window, one over the other, nothing."""
    summary, left = outlook.given.summary, outlook.sent.left_out
    behind = ranges_words(outlook, "window")
    if summary is not None and any(out.reason == "covered" for out in left):
        stands = f"Stands for {span_words(summary.from_seq, summary.to_seq)}"
        return "Summary", f"{stands}; {behind} left out" if behind else stands
    if behind:
        return "Window", f"Leaves out {behind}"
    if summary is not None:
        return "Summary", "No room for it in the prompt"
    writes = outlook.choice.values.strategy == "dynamic_summary"
    return "Summary", "None yet" if writes else "This policy writes none"


def ranges_words(outlook: Outlook, reason: str) -> str:
    """Name the messages left out for a reason: their range, or how many in several ranges."""
    found = [out for out in outlook.sent.left_out if out.reason == reason]
    if len(found) == 1:
        return span_words(found[0].from_seq, found[0].to_seq)
    return messages(sum(out.to_seq - out.from_seq + 1 for out in found)) if found else ""


# The parts of the tail, by the label of their segment.
TAIL_PARTS = {
    "preferences": "preferences",
    "profile": "your instructions",
    "recent": "messages of other chats",
    "references": "retrieved context",
    "date": "the day of the question",
}


def tail_words(outlook: Outlook) -> tuple[str, str]:
    """Return the label and the parts of the tail: a state, or background."""
    if outlook.kept is not None:
        left = ranges_words(outlook, "state") or "none yet"
        return "State", f"In place of dialogue: {left}"
    names = {s.message_id for s in outlook.sent.segments if s.origin == "tail"}
    found = [words for name, words in TAIL_PARTS.items() if name in names]
    words = ", ".join(found) or "further text"
    return "Date" if names == {"date"} else "Background", f"{words[0].upper()}{words[1:]}"


def history_words(outlook: Outlook) -> str:
    """Say which messages are sent as they are."""
    found = [s for s in outlook.sent.segments if s.origin == "history"]
    if not found:
        return "None: the state stands for it" if outlook.kept else "Nothing yet"
    cut = sum(1 for s in found if fate_of(s).sent == "cut")
    words = f"{messages(len(found))}, from message {found[0].seq:,} on"
    return f"{words}, {cut:,} of them cut" if cut else words


def room_words(outlook: Outlook) -> str:
    """Describe the use of the free room, and the effect once it is used up."""
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    words = free_words(values, limit=limit)
    if not excerpt_room(outlook.given, outlook.sent):
        return words
    share = int(values.reference_share * limit)
    return f"{words}. A question uses up to {share:,} for excerpts of earlier messages"


def free_words(values: PolicyValues, *, limit: int) -> str:
    """Say what happens when the free room is used up."""
    if values.strategy == "entity_state":
        return f"Of {limit:,}; the state does not grow with the chat"
    if values.strategy == "simple":
        return f"Of {limit:,}; only the newest messages are sent"
    if values.strategy == "dynamic_summary":
        mark, what = prepare_mark(values, prompt_limit=limit), "Compaction starts"
    else:
        mark, what = compact_mark(values, prompt_limit=limit), "The window moves"
    share = round(100 * mark / limit) if limit else 0
    return f"{what} at {mark:,} ({share} % of {limit:,})"


def span_words(first: int, last: int) -> str:
    """Put a range of messages into words."""
    return f"message {first:,}" if first == last else f"messages {first:,} to {last:,}"


def messages(count: int) -> str:
    """Write a number with its noun: 1 message, 2 messages."""
    return f"{count:,} message" if count == 1 else f"{count:,} messages"


def making_on(branch: Branch) -> str | None:
    """Return the status of the summary that is being written or waits on a branch."""
    rows = branch.compactions.filter(status__in=IN_THE_MAKING)
    return rows.values_list("status", flat=True).first()


def forecast(branch: Branch, *, outlook: Outlook, making: str | None) -> str:
    """Say when older messages leave the prompt next; empty when it is far away or unknown."""
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    used = sum(outlook.tokens.values())
    if values.strategy == "sliding_window":
        due = used >= compact_mark(values, prompt_limit=limit)
        return "the window moves with the next message" if due else ""
    if values.strategy != "dynamic_summary":
        return ""
    if branch.compaction_paused:
        return "automatic compaction paused"
    if making is not None:
        running = making == Compaction.Status.PREPARING
        return "compaction running" if running else "a summary is ready"
    return turns_words(turns_left(outlook))


def turns_left(outlook: Outlook) -> int | None:
    """Estimate how many replies it takes to the next compaction, at least 1; None if unknown."""
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    found = []
    if values.turn_threshold:
        found.append(values.turn_threshold + 1 - need(outlook.given, outlook.sent).turns)
    mark = prepare_mark(values, prompt_limit=limit)
    used = sum(outlook.tokens.values())
    count = sum(1 for s in outlook.sent.segments if s.origin == "history")
    # A turn is a question and its reply: two messages of the size seen so far.
    each = 2 * outlook.tokens.get("history", 0) // count if count else 0
    if used >= mark:
        found.append(1)
    elif each:
        found.append(-(-(mark - used) // each))
    return max(min(found), 1) if found else None


def turns_words(left: int | None) -> str:
    """Put the forecast into words; empty when it is unknown or far away."""
    if left is None or left >= FORESEEN:
        return ""
    if left == 1:
        return "compaction after the next reply"
    return f"next compaction in about {left:,} turns"
