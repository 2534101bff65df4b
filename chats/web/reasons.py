"""Labels and sentences for codes on pages: one table per vocabulary.

`receipt_labels` contains the labels for receipts. Sentences that the API also uses are in the
packages that define the codes: refusals, skipped compactions (`compaction.report.skip_reasons`) and
provider failures. A test checks that every code has a label. The texts are lazy: `str()` returns
them in the reader's language.
"""

from collections.abc import Mapping
from typing import NamedTuple

from django.utils.translation import gettext, gettext_lazy, pgettext_lazy
from django_stubs_ext import StrOrPromise

from chats.models import ChatState, Compaction
from contextpolicy.wording import join_items


class LeftOutWords(NamedTuple):
    """The reason why a message is not sent: a short label, and the full sentence for receipts."""

    beside: StrOrPromise
    receipt: StrOrPromise


class FactWords(NamedTuple):
    """Localized name of a kind of fact, such as “Date”, singular and plural."""

    one: StrOrPromise
    many: StrOrPromise


# Label of the rail beside a message, by how the message is sent.
SENT: Mapping[str, StrOrPromise] = {
    "full": gettext_lazy("sent in full"),
    "pinned": gettext_lazy("always sent in full"),
    "summary": gettext_lazy("sent as part of the summary"),
    "none": gettext_lazy("not sent"),
    "cut": gettext_lazy("sent"),
    "unknown": "",
}
# Reasons the engine leaves a message out of a prompt.
LEFT_OUT: Mapping[str, LeftOutWords] = {
    "covered": LeftOutWords(SENT["summary"], gettext_lazy("Part of the summary")),
    "window": LeftOutWords(
        gettext_lazy("not sent: outside the window"), gettext_lazy("Outside the window")
    ),
    "budget": LeftOutWords(
        gettext_lazy("not sent: no room left"), gettext_lazy("No room left in the prompt")
    ),
    "excluded": LeftOutWords(
        gettext_lazy("not sent: excluded"), gettext_lazy("Excluded by a user")
    ),
    "incomplete": LeftOutWords(
        gettext_lazy("not sent: incomplete"), gettext_lazy("Incomplete reply that you did not keep")
    ),
    "empty": LeftOutWords(gettext_lazy("not sent: no content"), gettext_lazy("No content to send")),
    "turn_split": LeftOutWords(
        gettext_lazy("not sent: no room left in its turn"),
        gettext_lazy("No room left within this turn"),
    ),
    "tool_parts": LeftOutWords(
        gettext_lazy("not sent: only tool calls"),
        gettext_lazy("Only tool calls and results, which this layout cannot show"),
    ),
    "state": LeftOutWords(
        gettext_lazy("not sent: replaced by the chat state"),
        gettext_lazy("Replaced by the chat state"),
    ),
    "strategy": LeftOutWords(
        gettext_lazy("not sent: left out by the strategy"),
        gettext_lazy("Left out by the policy’s strategy"),
    ),
    "duplicate_of_current": LeftOutWords(
        gettext_lazy("not sent: repeated in the newest message"),
        gettext_lazy("Repeated in the newest message"),
    ),
    "history_provider": LeftOutWords(
        gettext_lazy("not sent: left out by the history provider"),
        gettext_lazy("Left out by the history provider"),
    ),
    "not_seen": LeftOutWords(
        gettext_lazy("not sent: newer than this agent’s turn"),
        gettext_lazy("Added after this agent’s turn started"),
    ),
}
# Reasons a window moved, by the engine's reason.
WINDOW_REASONS: Mapping[str, StrOrPromise] = {
    "messages": gettext_lazy("the chat has more messages than its policy sends"),
    "turns": gettext_lazy("the chat has more turns than its policy sends"),
    "tokens": gettext_lazy("the prompt reached its limit"),
    "unloaded": gettext_lazy("the prompt reached its limit"),
    "widened": gettext_lazy(
        "the policy or the model changed, and the new limit has room for more messages"
    ),
    "cap": gettext_lazy("the chat has more messages than its team keeps in prompts"),
}
# Reasons a summary was not used: failed checks, user actions and errors.
NOT_USED: Mapping[str, StrOrPromise] = {
    "empty": gettext_lazy("the summary was empty"),
    "too_short": gettext_lazy("the summary was too short"),
    "cut_by_length": gettext_lazy("the summary was cut off at its maximum length"),
    "not_finished": gettext_lazy("the summary was incomplete"),
    "reasoning_only": gettext_lazy("the model produced reasoning but no summary"),
    "tool_call": gettext_lazy("the model called a tool instead of writing a summary"),
    "refusal": gettext_lazy("the model refused to write a summary"),
    "error_text": gettext_lazy("the model wrote an error message instead of a summary"),
    "no_content": gettext_lazy("the summary said nothing about the messages"),
    "echo": gettext_lazy("the model repeated its instructions or a single line"),
    "missing_sections": gettext_lazy("the summary lacked some of its sections"),
    "role_headers": gettext_lazy("the model continued the chat instead of summarising it"),
    "not_smaller": gettext_lazy("the summary was not shorter than the messages that it replaces"),
    "too_long": gettext_lazy("the summary was longer than the policy allows"),
    "wrong_language": gettext_lazy("the summary was not in the chat’s language"),
    "unknown_url": gettext_lazy("the summary contained a URL that does not occur in its messages"),
    "cancelled": gettext_lazy("a user cancelled the summary"),
    "rejected_by_person": gettext_lazy("a user rejected the summary"),
    "context_changed": gettext_lazy("the chat had changed before the summary was used"),
    "insufficient": gettext_lazy(
        "even with the summary, the prompt would exceed the policy’s target size"
    ),
    "lost_facts": gettext_lazy("the summary lost required facts"),
    "undone": gettext_lazy("a user undid the previous summary"),
    "redone": gettext_lazy("a user restored another summary"),
    "revised": gettext_lazy("a user edited the previous summary"),
    "asked_again": gettext_lazy("a user requested a new summary"),
    "chat_deleted": gettext_lazy("the chat was deleted"),
    "message_excluded": gettext_lazy("one of the summarised messages was excluded"),
    "message_erased": gettext_lazy("one of the summarised messages was erased"),
    "worker_lost": gettext_lazy("the worker that wrote the summary stopped"),
    "handed_back": gettext_lazy("the worker restarted; another worker writes the summary"),
    "internal_error": gettext_lazy("something went wrong on this server"),
    "provider_auth": gettext_lazy("the provider rejected this server’s API key"),
    "provider_unavailable": gettext_lazy("the model’s provider could not be reached"),
    "provider_rate_limited": gettext_lazy("the model’s provider limited the request rate"),
    "provider_timeout": gettext_lazy("the model did not respond in time"),
    "content_filtered": gettext_lazy("the provider’s content filter stopped the summary"),
    "provider_protocol": gettext_lazy("the model’s provider sent a response in an unknown format"),
    "provider_rejected": gettext_lazy("the model’s provider refused the request"),
    "provider_error": gettext_lazy("the model’s provider reported an error"),
    "context_overflow": gettext_lazy("the messages were too long for the summarising model"),
    "model_unavailable": gettext_lazy("the summarising model cannot be used now"),
}
# Reasons a message did not update the chat state. Some codes are also in `NOT_USED`: the same
# provider error, but in the call that extracts the state.
STATE_KEPT: Mapping[str, StrOrPromise] = {
    "content_filtered": gettext_lazy("the provider’s content filter stopped the response"),
    "model_unavailable": gettext_lazy("the model that extracts the state cannot be used now"),
    "provider_auth": gettext_lazy("the provider rejected the API key"),
    "provider_rate_limited": gettext_lazy("the provider’s rate limit was reached"),
    "provider_timeout": gettext_lazy("the model did not respond in time"),
    "provider_unavailable": gettext_lazy("the provider could not be reached"),
    "state_changed": gettext_lazy("a user corrected the state at the same time"),
    "state_invalid": gettext_lazy("the model’s response does not match the schema"),
    "state_not_an_object": gettext_lazy("the model’s response is not a JSON object"),
    "state_not_finished": gettext_lazy("the model’s response was cut off"),
    "state_not_json": gettext_lazy("the model’s response is not JSON"),
    "state_too_large": gettext_lazy("the model’s response is too large"),
    "stopped": gettext_lazy("the reply was stopped"),
}
# Suggested next step when no summary was created, by code of `skip_reasons.SENTENCES`.
NEXT_STEPS: Mapping[str, StrOrPromise] = {
    "keep_last": gettext_lazy("Wait for newer messages. Then the older ones can be summarised."),
    "nothing_to_fold": gettext_lazy("Wait until two turns have finished since the last summary."),
    "no_gain": gettext_lazy("Try again when the chat is longer."),
    "waits_for_approval": gettext_lazy("Approve or reject the draft first."),
    "in_the_making": gettext_lazy("No second summary was started."),
    "strategy": gettext_lazy("An administrator can choose a strategy with summaries."),
    "no_model": gettext_lazy("An operator can connect a model under Setup."),
    "model_not_allowed": gettext_lazy("Choose another model for this chat."),
    "unknown_summariser": gettext_lazy("Request it again with another model."),
    "policy_impossible": gettext_lazy("Ask your administrator."),
}
# CSS class and label of compactions that are not active on the branch.
COMPACTION_STATES: Mapping[str, tuple[str, StrOrPromise]] = {
    Compaction.Status.PREPARING: ("accent", gettext_lazy("In progress")),
    Compaction.Status.PREPARED: ("layer", gettext_lazy("Ready, not in use yet")),
    Compaction.Status.PUBLISHED: ("", gettext_lazy("In use on another branch")),
    Compaction.Status.UNDONE: ("warn", gettext_lazy("Undone")),
    Compaction.Status.REPLACED: ("", gettext_lazy("Replaced by a newer compaction")),
    Compaction.Status.OVERTAKEN: ("", gettext_lazy("Outdated")),
    Compaction.Status.REJECTED: ("danger", gettext_lazy("Not used")),
    Compaction.Status.FAILED: ("danger", gettext_lazy("Failed")),
}
FACT_KINDS: Mapping[str, FactWords] = {
    "url": FactWords(pgettext_lazy("fact", "Address"), pgettext_lazy("fact", "addresses")),
    "date": FactWords(pgettext_lazy("fact", "Date"), pgettext_lazy("fact", "dates")),
    "identifier": FactWords(
        pgettext_lazy("fact", "Identifier"), pgettext_lazy("fact", "identifiers")
    ),
    "number": FactWords(pgettext_lazy("fact", "Number"), pgettext_lazy("fact", "numbers")),
    "name": FactWords(pgettext_lazy("fact", "Name"), pgettext_lazy("fact", "names")),
}


# Origin of a version of the state.
STATE_VERSIONS: Mapping[str, StrOrPromise] = {
    ChatState.Kind.EXTRACTED: gettext_lazy("extracted from message {seq}"),
    ChatState.Kind.CORRECTED: gettext_lazy("corrected by you after message {seq}"),
    ChatState.Kind.RESTORED: gettext_lazy("restored by you after message {seq}"),
}
# Use of a chat's own system text. An ignored text is locked, with a sentence.
SYSTEM_TEXT_RULES: Mapping[str, StrOrPromise] = {
    "append": gettext_lazy("This text follows the policy’s system text, if there is one."),
    "replace": gettext_lazy("This text replaces the policy’s system text."),
}
# Counts in a chat's erasure certificate.
ERASED: Mapping[str, StrOrPromise] = {
    "messages": gettext_lazy("Messages"),
    "summaries": gettext_lazy("Summaries"),
    "renderings": gettext_lazy("Stored pages"),
    "prompt_texts": gettext_lazy("Prompt texts"),
    "states": gettext_lazy("States"),
    "receipts": gettext_lazy("Receipts"),
    "requests": gettext_lazy("Stored responses for repeated requests"),
    "frames": gettext_lazy("Replies in the live event stream"),
    "preferences": gettext_lazy("Preferences"),
    "references": gettext_lazy("Excerpts in other chats’ prompts"),
    "gateway_nodes": gettext_lazy("Message hashes from API clients"),
}
# Reasons a webhook's last attempt failed.
DELIVERY_PROBLEMS: Mapping[str, StrOrPromise] = {
    "refused": gettext_lazy("the server returned an error"),
    "redirected": gettext_lazy("the server returned a redirect, which is not followed"),
    "timeout": gettext_lazy("no response within ten seconds"),
    "no_connection": gettext_lazy("no connection to the server"),
    "address_refused": gettext_lazy("the host name resolves to a network that is not allowed"),
    "not_allowed": gettext_lazy("you no longer have access to this event"),
    "queue_full": gettext_lazy("too many deliveries were queued"),
    "secret_unreadable": gettext_lazy("the secret cannot be decrypted: create the webhook again"),
}


def describe_omission_reason(reason: str) -> str:
    """Return the label of an omission reason.

    An unknown reason, from a strategy of another package, is quoted in the label.
    """
    words = LEFT_OUT.get(reason)
    if words is not None:
        return str(words.receipt)
    return gettext("Left out by the strategy: {reason}").format(reason=reason)


def describe_unused_reason(reason: str) -> str:
    """Return the label of the reason why a summary was not used.

    An unknown reason is returned unchanged.
    """
    codes = reason.split(", ")
    if not all(code in NOT_USED for code in codes):
        return reason
    return join_items(NOT_USED[code] for code in codes)
