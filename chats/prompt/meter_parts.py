"""The parts of a prompt in the context meter, with their sizes and descriptions."""

from dataclasses import dataclass

from django.utils.text import get_text_list
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from chats.prompt.next_prompt import (
    SKILL_PARTS,
    Outlook,
    get_segment_disposition,
)
from chats.prompt.tail import measure_excerpt_room
from contextpolicy.engine.policy.budget import compute_compact_mark, compute_prepare_mark
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.wording import join_items

# The parts of a prompt in display order. Optional ones are shown only if present.
ORDER = ("system", "tools", "summary", "pins", "history", "tail", "question")


OPTIONAL = frozenset({"tools", "tail"})


@dataclass(frozen=True, slots=True)
class MeterPart:
    """One line of the context meter: label, tokens, and a note about its contents."""

    key: str
    label: str
    tokens: int
    why: str


def build_meter_parts(outlook: Outlook) -> tuple[MeterPart, ...]:
    """Return the lines of the breakdown, each with its reason."""
    tokens, values = outlook.tokens, outlook.choice.values
    limit = outlook.sent.budget.prompt_limit
    why = {
        "system": (pgettext("part of a prompt", "System"), describe_system_sources(outlook)),
        "tools": (gettext("Tools"), gettext("Definitions of tools that the model can call")),
        "summary": describe_summary_layer(outlook),
        "pins": (gettext("Pins"), describe_pins(outlook)),
        "history": (gettext("History"), describe_history(outlook)),
        "tail": describe_tail(outlook),
        "question": (
            gettext("Your message"),
            gettext("Your text and attached files, counted as you write"),
        ),
    }
    if outlook.kept and not tokens.get("summary"):
        del why["summary"]
    return (
        *(
            MeterPart(key, why[key][0], tokens.get(key, 0), why[key][1])
            for key in ORDER
            if key in why and (tokens.get(key) or key not in OPTIONAL)
        ),
        MeterPart(
            "free",
            pgettext("room", "Free"),
            max(limit - sum(tokens.values()), 0),
            describe_free_room(outlook),
        ),
        MeterPart(
            "reserve",
            gettext("Reply reserve"),
            values.reserve_tokens,
            gettext("Kept free so the reply is not cut off"),
        ),
    )


def describe_system_sources(outlook: Outlook) -> str:
    """Return the sources of the system text, such as the policy and the chat."""
    found = [s.message_id for s in outlook.sent.segments if s.origin == "system"]
    found = [name for name in dict.fromkeys(found) if name not in SKILL_PARTS]
    if not found:
        return describe_skills(outlook) or gettext("None")
    whose = {"policy": gettext("the policy"), "chat": gettext("the chat")}
    named = get_text_list([whose.get(name, name) for name in found], gettext("and"))
    sources = gettext("Instructions from {sources}").format(sources=named)
    return "; ".join(words for words in (sources, describe_skills(outlook)) if words)


def describe_skills(outlook: Outlook) -> str:
    """Describe the size of the skills in the system text, and how many are loaded.

    Empty if there are no skills in the system text.
    """
    tokens = outlook.skill_tokens
    if not tokens:
        return ""
    words = gettext("skills ({loaded:,} loaded): {tokens:,} tokens")
    return words.format(tokens=tokens, loaded=len(outlook.loaded_skills))


def describe_pins(outlook: Outlook) -> str:
    """Describe the number of pinned messages that are sent outside the history."""
    count = sum(1 for s in outlook.sent.segments if s.origin == "pin")
    if not count:
        return gettext("None")
    if outlook.given.summary:
        words = ngettext(
            "{n:,} message covered by the summary", "{n:,} messages covered by the summary", count
        )
    else:
        words = ngettext(
            "{n:,} message before the window", "{n:,} messages before the window", count
        )
    return words.format(n=count)


def describe_summary_layer(outlook: Outlook) -> tuple[str, str]:
    """Describe the part before the history: a summary, a window, both, or neither."""
    summary, left = outlook.given.summary, outlook.sent.left_out
    behind = describe_left_out(outlook, "window")
    label = gettext("Summary")
    if summary is not None and any(out.reason == "covered" for out in left):
        covered = format_seq_range(summary.from_seq, summary.to_seq)
        if behind:
            words = gettext("Covers {covered}; {left} left out")
            return label, words.format(covered=covered, left=behind)
        return label, gettext("Covers {covered}").format(covered=covered)
    if behind:
        return gettext("Window"), gettext("Leaves out {left}").format(left=behind)
    if summary is not None:
        return label, gettext("Does not fit into the prompt")
    writes = outlook.choice.values.strategy == "dynamic_summary"
    return label, gettext("None yet") if writes else gettext("Not used by this policy")


def describe_left_out(outlook: Outlook, reason: str) -> str:
    """Describe the range of the messages left out for a reason.

    If there are several ranges, returns the number of messages instead. Empty if no messages are
    left out.
    """
    found = [out for out in outlook.sent.left_out if out.reason == reason]
    if len(found) == 1:
        return format_seq_range(found[0].from_seq, found[0].to_seq)
    return (
        format_meter_messages(sum(out.to_seq - out.from_seq + 1 for out in found)) if found else ""
    )


# The parts of the tail by segment label.
TAIL_PARTS = {
    "preferences": gettext_lazy("preferences"),
    "profile": gettext_lazy("your instructions"),
    "recent": gettext_lazy("messages from other chats"),
    "references": gettext_lazy("retrieved context"),
    "date": gettext_lazy("the question’s date"),
}


def describe_tail(outlook: Outlook) -> tuple[str, str]:
    """Return the label of the tail and the names of its parts."""
    if outlook.kept is not None:
        left = describe_left_out(outlook, "state") or gettext("none yet")
        return gettext("State"), gettext("Replaces the dialogue: {left}").format(left=left)
    names = {s.message_id for s in outlook.sent.segments if s.origin == "tail"}
    found = [str(words) for name, words in TAIL_PARTS.items() if name in names]
    words = join_items(found) or gettext("other text")
    label = gettext("Date") if names == {"date"} else gettext("Background")
    return label, f"{words[0].upper()}{words[1:]}"


HISTORY_REPLACED = gettext_lazy("None: the chat state is sent instead")


def describe_history(outlook: Outlook) -> str:
    """Return a sentence about the messages that are sent unchanged."""
    found = [s for s in outlook.sent.segments if s.origin == "history"]
    if not found:
        return str(HISTORY_REPLACED) if outlook.kept else gettext("Nothing yet")
    cut = sum(1 for s in found if get_segment_disposition(s).sent == "cut")
    if cut:
        words = ngettext(
            "{n:,} message, number {first:,}, cut",
            "{n:,} messages, starting with message {first:,}, {cut:,} of them cut",
            len(found),
        )
    else:
        words = ngettext(
            "{n:,} message, number {first:,}",
            "{n:,} messages, starting with message {first:,}",
            len(found),
        )
    return words.format(n=len(found), first=found[0].seq, cut=cut)


def describe_free_room(outlook: Outlook) -> str:
    """Return a sentence about the prompt limit and about excerpts that a question may add."""
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    words = describe_full_room(values, limit=limit)
    if outlook.given.background.references or not measure_excerpt_room(outlook.given, outlook.sent):
        return words
    share = int(values.reference_share * limit)
    added = gettext(
        "{words}. A question adds up to {share:,} tokens of excerpts from earlier messages"
    )
    return added.format(words=words, share=share)


def describe_full_room(values: PolicyValues, *, limit: int) -> str:
    """Return a sentence about the prompt limit and its effect on the history."""
    if values.strategy == "entity_state":
        return gettext("Prompt limit: {limit:,}; the state does not grow with the chat").format(
            limit=limit
        )
    if values.strategy == "simple":
        return gettext("Prompt limit: {limit:,}; only the newest messages are sent").format(
            limit=limit
        )
    if values.strategy == "dynamic_summary":
        mark = compute_prepare_mark(values, prompt_limit=limit)
        # xgettext:no-python-format, a percent sign
        words = gettext("Compaction starts at {mark:,} ({share} % of {limit:,})")
    else:
        mark = compute_compact_mark(values, prompt_limit=limit)
        # xgettext:no-python-format, a percent sign
        words = gettext("The window moves at {mark:,} ({share} % of {limit:,})")
    share = round(100 * mark / limit) if limit else 0
    return words.format(mark=mark, share=share, limit=limit)


def format_seq_range(first: int, last: int) -> str:
    """Return “message 5” or “messages 5 to 9”, localized."""
    if first == last:
        return gettext("message {first:,}").format(first=first)
    return gettext("messages {first:,} to {last:,}").format(first=first, last=last)


def format_meter_messages(count: int) -> str:
    """Format a number of messages: 1 message, 2 messages."""
    return ngettext("{n:,} message", "{n:,} messages", count).format(n=count)
