"""The words of the pages for codes: one table for each vocabulary of codes.

Words that another door says too stand in the rooms that give the codes: sentences of refusals, of
turns without a compaction (`compaction.report.skip_reasons`) and of a provider's failures. A test
walks the vocabularies: a code without words fails it.
"""

from typing import NamedTuple

from chats.models import ChatState, Compaction, Receipt


class LeftOutWords(NamedTuple):
    """The words for why a message is not sent: short beside it, in full on a receipt."""

    beside: str
    receipt: str


class FactWords(NamedTuple):
    """The name of a kind of facts: of one, and of several."""

    one: str
    many: str


# What the line (rail) beside a message says, by the way in which the message is sent.
SENT = {
    "full": "sent in full",
    "pinned": "always sent",
    "summary": "sent as part of the summary",
    "none": "not sent",
    "cut": "sent",
    "unknown": "",
}
# The engine's reasons to leave a message out of a prompt.
LEFT_OUT = {
    "covered": LeftOutWords(SENT["summary"], "Part of the summary"),
    "window": LeftOutWords("not sent: older than the window", "Older than the window"),
    "budget": LeftOutWords("not sent: no room left", "No room left in the prompt"),
    "excluded": LeftOutWords("not sent: excluded", "Excluded by a person"),
    "incomplete": LeftOutWords("not sent: incomplete", "An incomplete reply that nobody kept"),
    "empty": LeftOutWords("not sent: nothing in it", "Nothing in it that could be sent"),
    "turn_split": LeftOutWords(
        "not sent: no room left in its turn", "No room left within this turn"
    ),
    "tool_parts": LeftOutWords(
        "not sent: only tool calls",
        "Only tool calls and results, which this layout cannot show as text",
    ),
    "state": LeftOutWords("not sent: the state stands for it", "The state stands for it"),
    "strategy": LeftOutWords(
        "not sent: left out by the strategy", "The strategy of the policy left it out"
    ),
    "duplicate_of_current": LeftOutWords(
        "not sent: said again by the newest", "The newest message says the same"
    ),
    "history_provider": LeftOutWords(
        "not sent: left out by the history provider", "The history provider left it out"
    ),
    "not_seen": LeftOutWords(
        "not sent: said after this agent was asked", "Said after this agent was asked"
    ),
}
# Why a window moved, by the engine's reason.
WINDOW_REASONS = {
    "messages": "the chat has as many messages as its policy sends",
    "turns": "the chat has as many turns as its policy sends",
    "tokens": "the prompt reached its limit",
    "unloaded": "the prompt reached its limit",
    "cap": "the chat has more messages than its team keeps in prompts",
}
# Why a summary was not used: codes of failed checks, of deeds and of faults.
NOT_USED = {
    "empty": "the summary was empty",
    "too_short": "the summary was too short to stand for anything",
    "cut_by_length": "the summary was cut at its longest length",
    "not_finished": "the summary broke off",
    "reasoning_only": "the model thought but wrote no summary",
    "tool_call": "the model called a tool instead of writing a summary",
    "refusal": "the model refused to write a summary",
    "error_text": "the model wrote an error message instead of a summary",
    "no_content": "the summary had headings and nothing under them",
    "missing_sections": "the summary lacked some of its sections",
    "role_headers": "the summary went on with the chat instead of summing it up",
    "not_smaller": "the summary was no shorter than what it stands for",
    "too_long": "the summary was longer than the policy allows",
    "wrong_language": "the summary was not in the language of the chat",
    "unknown_url": "the summary had an address that stands in none of its messages",
    "cancelled": "somebody stopped it",
    "rejected_by_person": "somebody read it and did not want it",
    "context_changed": "the chat had changed before the summary was used",
    "insufficient": "even with the summary the prompt is larger than its policy aims at",
    "lost_facts": "the summary lost facts that it has to keep",
    "undone": "somebody undid the summary under it",
    "redone": "somebody put another summary back",
    "revised": "somebody edited the summary under it",
    "asked_again": "somebody asked for another one",
    "message_excluded": "one of its messages was excluded",
    "message_erased": "one of its messages was erased",
    "worker_lost": "the worker that wrote it ended",
    "handed_back": "the worker that wrote it was restarted; the next one writes it anew",
    "internal_error": "something went wrong on this server",
    "provider_auth": "the provider refused the key of this server",
    "provider_unavailable": "the model’s provider could not be reached",
    "provider_rate_limited": "the model’s provider asked for a pause",
    "provider_timeout": "the model did not answer in time",
    "content_filtered": "a content filter of the model’s provider stopped it",
    "provider_protocol": "the model’s provider answered in an unknown form",
    "provider_rejected": "the model’s provider refused the request",
    "provider_error": "the model’s provider reported an error",
    "context_overflow": "the messages were too long for the summarising model",
    "model_unavailable": "the summarising model cannot be used now",
}
# Why a message was not taken over into the state. Some codes are those of `NOT_USED`: the same
# fault of a provider, met by the call that reads the state, which no summary depends on.
STATE_KEPT = {
    "content_filtered": "a content filter of the provider stopped the answer",
    "model_unavailable": "the model that reads it cannot be used now",
    "provider_auth": "the provider refused the key",
    "provider_rate_limited": "the provider had too many requests",
    "provider_timeout": "the model did not answer in time",
    "provider_unavailable": "the provider could not be reached",
    "state_changed": "a person corrected it meanwhile",
    "state_invalid": "the model's answer does not fit the schema",
    "state_not_an_object": "the model's answer is no JSON object",
    "state_not_finished": "the model's answer was cut",
    "state_not_json": "the model's answer is no JSON",
    "state_too_large": "the model's answer is too large",
    "stopped": "the reply was stopped",
}
# What a person can do when nothing was summarised, by the code in `skip_reasons.SENTENCES`.
NEXT_STEPS = {
    "keep_last": "Older messages can be summarised once newer ones have come.",
    "nothing_to_fold": "There has to be more than one finished turn after the last summary.",
    "no_gain": "Ask again when the chat has grown.",
    "waits_for_approval": "Approve or reject that draft first.",
    "in_the_making": "It takes the place of this request.",
    "strategy": "Whoever looks after the policy can choose a strategy with summaries.",
    "no_model": "Ask an administrator to set one up.",
    "model_not_allowed": "Choose another model for this chat.",
    "policy_impossible": "Ask whoever looks after the policies.",
}
# The colour and the words of a compaction's status on a branch where it is not in force.
COMPACTION_STATES = {
    Compaction.Status.PREPARING: ("accent", "Being written"),
    Compaction.Status.PREPARED: ("layer", "Ready, not in use yet"),
    Compaction.Status.PUBLISHED: ("", "In use on another branch"),
    Compaction.Status.UNDONE: ("warn", "Undone"),
    Compaction.Status.REPLACED: ("", "Replaced by a later one"),
    Compaction.Status.OVERTAKEN: ("", "Overtaken"),
    Compaction.Status.REJECTED: ("danger", "Not used"),
    Compaction.Status.FAILED: ("danger", "Not finished"),
}
FACT_KINDS = {
    "url": FactWords("Address", "addresses"),
    "date": FactWords("Date", "dates"),
    "identifier": FactWords("Identifier", "identifiers"),
    "number": FactWords("Number", "numbers"),
    "name": FactWords("Name", "names"),
}

# A receipt: the colour and the words of how its call ended.
CALL_OUTCOMES = {
    Receipt.Outcome.OPEN: ("accent", "being answered"),
    Receipt.Outcome.OK: ("ok", "answered"),
    Receipt.Outcome.FAILED: ("danger", "failed"),
    Receipt.Outcome.STOPPED: ("warn", "stopped"),
    Receipt.Outcome.LOST: ("warn", "worker lost"),
}
# The origins of the pieces of a prompt.
ORIGINS = {
    "system": "System",
    "tools": "Tools",
    "opening": "Opening",
    "summary": "Summary",
    "pin": "Pin",
    "day": "Date",
    "history": "History",
    "tail": "Beside the chat",
    "question": "Your message",
    "continue": "Instruction to go on",
    "step": "Step of this reply",
}
# The parts of the system text and of the tail, by the label of their segment.
PARTS = {
    "runtime": "Of this server",
    "profile": "Of your profile",
    "policy": "Of the policy",
    "agent": "Of the agent",
    "team": "Rules of the team",
    "task": "The team's task",
    "chat": "Of this chat",
    "skills": "Of the skills",
    "budget": "The limits, as a sentence",
    "preferences": "Preferences",
    "recent": "Your other chats",
    "state": "State",
    "schema": "Schema of the state",
    "references": "References",
    "date": "Date",
    "tail": "Further text",
}
LAYOUTS = {
    "A": "Layout A: the history goes along as text, with your message in one user message. "
    "The chat's own system text replaces the policy's.",
    "B": "Layout B: the history goes along as text in a user message before yours.",
    "C": "Layout C: the history goes along as text, with your message in one user message. "
    "The chat's own system text stands behind the policy's.",
}
# Repairs of one message for the wire; what was stored stays as it is.
REPAIRS = {
    "no_result": "a tool call had no result, so one that says so was put in",
    "stray_result": "a tool result without its call was left out",
    "call_id_renamed": "two tool calls had the same id, so one was renamed",
    "tool_part_in_user_message": "tool parts in a user message were left out",
    "results_left_out": "tool results were left out, as the policy's rules for tools say",
    "tool_parts_left_out": "its tool calls and results cannot be shown as text",
}
# Changes of a whole prompt.
CHANGES = {
    "history_provider:missing": "The policy’s history provider is not installed; the built-in one "
    "was used.",
    "history_provider:failed": "The policy’s history provider failed; the built-in one was used.",
    "prompt_form:claude-code": "The agent’s prompt is one text in the Claude form.",
    "prompt_form:openai-codex": "The agent’s prompt is one text in the Codex form.",
    "prompt_form:google-gemini": "The agent’s prompt is one text in the Gemini form.",
    "prompt_form:plain": "The agent’s prompt is one plain text.",
    "opening_added": "The chat begins with a reply, so a line that says so was put before it.",
    "messages_joined": "Neighbouring messages of one role were joined, as the provider demands.",
    "strategy": "The strategy of the policy could not decide; the sliding window stood in.",
    "memory_withheld": "What is kept of you was not sent: the policy does not let this model’s "
    "provider have it.",
    "references:none": "No earlier message shares words with the question.",
    "references:below_floor": "What was found elsewhere shares too few telling words with the "
    "question to go along.",
    "references:late": "Not searched: the server was busy, so the reply has no retrieved context.",
    "references:breaker": "Not searched: the searches before took too long.",
    "references:temporary": "No references were looked up: a temporary chat gets "
    "nothing of others.",
    "references:without_memory": "No references were looked up: this chat is left without memory.",
    "references:folder_without_memory": "No references were looked up: the chat's folder is left "
    "without memory.",
    "references:provider": "No references were looked up: the policy does not let this model’s "
    "provider have them.",
    "vectors:late": "References were found by words alone: comparing by meaning took too long.",
    "vectors:down": "References were found by words alone: the model that compares by meaning "
    "could not be asked.",
    "vectors:breaker": "References were found by words alone: the model that compares by meaning "
    "came too late several times, and is asked again in a minute.",
    "vectors:other_dimensions": "References were found by words alone: the model that compares by "
    "meaning answers otherwise than before. An operator has to have its vectors built anew.",
    "vectors:not_installed": "References were found by words alone: what compares vectors is not "
    "installed.",
    "vectors:provider": "References were found by words alone: the policy does not let the model "
    "that compares by meaning have the question.",
    "references:failed": "The search for references failed; the reply went on without any.",
    "round_opening": "The message that began the round went along, though the agent's window had "
    "moved past it.",
}
# Why the fallback stood in for a strategy.
FALLBACKS = {
    "missing": "Its package is not installed.",
    "failed": "It failed with {detail}.",
    "changed_tools": "It changed the tools.",
    "unsound": "Its choice did not fit the prompt or did not name each message once.",
}

# How a version of the state came about.
STATE_VERSIONS = {
    ChatState.Kind.EXTRACTED: "read from message {seq}",
    ChatState.Kind.CORRECTED: "corrected by you after message {seq}",
    ChatState.Kind.RESTORED: "restored by you after message {seq}",
}
# What is done with a chat's own system text; a text that is ignored is locked, with a sentence.
SYSTEM_TEXT_RULES = {
    "append": "It stands behind the system text of the policy, if that has one.",
    "replace": "It stands in place of the system text of the policy.",
}
# The counts of a chat's certificate of erasure.
ERASED = {
    "messages": "messages",
    "summaries": "summaries",
    "renderings": "stored pages",
    "prompt_texts": "texts of prompts",
    "states": "states",
    "receipts": "receipts",
    "requests": "requests that could be repeated",
    "frames": "replies on the live bus",
    "preferences": "preferences",
    "references": "prompts of other chats",
    "gateway_nodes": "marks by which programs are recognised",
}
# Why a webhook's last try failed, for its log.
DELIVERY_PROBLEMS = {
    "refused": "the server refused it",
    "redirected": "the server answered with a redirect, which is not followed",
    "timeout": "no answer within ten seconds",
    "no_connection": "no connection to the server",
    "address_refused": "the name leads into a network that is not allowed",
    "not_allowed": "you may not see this event any more",
    "queue_full": "too many deliveries waited",
    "secret_unreadable": "the secret cannot be decrypted: make the webhook anew",
}


def left_out_words(reason: str) -> str:
    """Say why messages stayed out; a reason of a package's strategy is named as it is."""
    words = LEFT_OUT.get(reason)
    return words.receipt if words else f"Left out by the strategy: {reason}"


def not_used_words(reason: str) -> str:
    """Say why a summary was not used; a reason without a code of ours stands as it is."""
    codes = reason.split(", ")
    if not all(code in NOT_USED for code in codes):
        return reason
    return ", ".join(NOT_USED[code] for code in codes)
