"""Labels and sentences for the codes of receipts: one table per vocabulary."""

from collections.abc import Mapping

from django.utils.translation import gettext_lazy, pgettext_lazy
from django_stubs_ext import StrOrPromise

from chats.models import Receipt

# CSS class and label of a call's outcome on a receipt.
CALL_OUTCOMES: Mapping[str, tuple[str, StrOrPromise]] = {
    Receipt.Outcome.OPEN: ("accent", gettext_lazy("in progress")),
    Receipt.Outcome.OK: ("ok", gettext_lazy("completed")),
    Receipt.Outcome.FAILED: ("danger", gettext_lazy("failed")),
    Receipt.Outcome.STOPPED: ("warn", gettext_lazy("stopped")),
    Receipt.Outcome.LOST: ("warn", gettext_lazy("worker lost")),
}
# Origins of prompt segments.
ORIGINS: Mapping[str, StrOrPromise] = {
    "system": gettext_lazy("System"),
    "tools": gettext_lazy("Tools"),
    "opening": gettext_lazy("Opening message (added by the server)"),
    "summary": gettext_lazy("Summary"),
    "pin": pgettext_lazy("part of a prompt", "Pin"),
    "day": gettext_lazy("Date"),
    "history": gettext_lazy("History"),
    "tail": gettext_lazy("Background"),
    "question": gettext_lazy("Your message"),
    "continue": gettext_lazy("Instruction to continue"),
    "step": gettext_lazy("Reply step"),
    "prefill": gettext_lazy("Beginning of the reply"),
}
# Parts of the system text and of the prompt's end, by segment label.
PARTS: Mapping[str, StrOrPromise] = {
    "runtime": gettext_lazy("This server"),
    "profile": gettext_lazy("Your profile"),
    "policy": gettext_lazy("Policy text"),
    "agent": gettext_lazy("Agent instructions"),
    "team": gettext_lazy("Team rules"),
    "task": gettext_lazy("The team’s task"),
    "chat": gettext_lazy("Chat text"),
    "skills": gettext_lazy("Skills"),
    "team_skills": gettext_lazy("Team skills"),
    "budget": gettext_lazy("Reply and tool limits"),
    "preferences": gettext_lazy("Preferences"),
    "recent": gettext_lazy("Your other chats"),
    "state": gettext_lazy("State"),
    "schema": gettext_lazy("State schema"),
    "references": gettext_lazy("Retrieved context"),
    "date": gettext_lazy("Date"),
    "tail": gettext_lazy("Other text"),
}
LAYOUTS: Mapping[str, StrOrPromise] = {
    "A": gettext_lazy(
        "Layout A: one user message contains the history and your message as text. The chat’s "
        "system text replaces the policy’s system text."
    ),
    "B": gettext_lazy("Layout B: the history is sent as text in a user message before yours."),
    "C": gettext_lazy(
        "Layout C: one user message contains the history and your message as text. The chat’s "
        "system text follows the policy’s system text."
    ),
}
# Repairs of a message in the request. The stored message does not change.
REPAIRS: Mapping[str, StrOrPromise] = {
    "no_result": gettext_lazy(
        "a tool call had no result, so a placeholder was added as its result"
    ),
    "stray_result": gettext_lazy("a tool result without its call was removed"),
    "call_id_renamed": gettext_lazy("two tool calls had the same ID, so one got a new ID"),
    "tool_part_in_user_message": gettext_lazy("tool parts in a user message were removed"),
    "results_left_out": gettext_lazy("tool results were left out by the policy’s rules for tools"),
    "tool_parts_left_out": gettext_lazy("its tool calls and results cannot be shown as text"),
}
# Changes of a whole prompt.
CHANGES: Mapping[str, StrOrPromise] = {
    "history_provider:missing": gettext_lazy(
        "The policy’s history provider is not installed. The built-in history provider was used."
    ),
    "history_provider:failed": gettext_lazy(
        "The policy’s history provider failed. The built-in history provider was used."
    ),
    "prompt_form:claude-code": gettext_lazy(
        "The agent’s prompt is one block of text in the Claude format."
    ),
    "prompt_form:openai-codex": gettext_lazy(
        "The agent’s prompt is one block of text in the Codex format."
    ),
    "prompt_form:google-gemini": gettext_lazy(
        "The agent’s prompt is one block of text in the Gemini format."
    ),
    "prompt_form:plain": gettext_lazy("The agent’s prompt is one block of plain text."),
    "opening_added": gettext_lazy(
        "The chat starts with a reply, so a user message that explains this was added."
    ),
    "messages_joined": gettext_lazy(
        "Adjacent messages with the same role were joined, because the provider requires it."
    ),
    "strategy": gettext_lazy("The policy’s strategy failed. The sliding window was used instead."),
    "memory_withheld": gettext_lazy(
        "Your instructions, preferences and messages from other chats were not sent, because the "
        "policy does not allow it for this model’s provider."
    ),
    "references:none": gettext_lazy(
        "No retrieved context: the search found no earlier message for the question."
    ),
    "references:below_floor": gettext_lazy(
        "No retrieved context: no earlier message matches the question well enough and fits "
        "into the prompt."
    ),
    "references:late": gettext_lazy(
        "No retrieved context: the search took too long. Ask again to repeat it."
    ),
    "references:breaker": gettext_lazy(
        "No retrieved context: the search was skipped because previous searches took too long."
    ),
    "references:temporary": gettext_lazy(
        "No retrieved context: temporary chats do not use other chats."
    ),
    "references:without_memory": gettext_lazy("No retrieved context: memory is off in this chat."),
    "references:folder_without_memory": gettext_lazy(
        "No retrieved context: memory is off in the chat’s folder."
    ),
    "references:provider": gettext_lazy(
        "No retrieved context: the policy does not allow it for this model’s provider."
    ),
    "vectors:late": gettext_lazy(
        "Retrieved context was found by keywords only: the embedding search took too long."
    ),
    "vectors:down": gettext_lazy(
        "Retrieved context was found by keywords only: the embedding model could not be reached."
    ),
    "vectors:breaker": gettext_lazy(
        "Retrieved context was found by keywords only: the embedding model timed out several "
        "times. It is retried in a minute."
    ),
    "vectors:other_dimensions": gettext_lazy(
        "Retrieved context was found by keywords only: the embedding model now returns "
        "vectors of a different length. An operator must rebuild the index."
    ),
    "vectors:not_installed": gettext_lazy(
        "Retrieved context was found by keywords only: semantic search is not installed."
    ),
    "vectors:provider": gettext_lazy(
        "Retrieved context was found by keywords only: the policy does not allow "
        "sending the question to the embedding model."
    ),
    "references:failed": gettext_lazy(
        "The search for retrieved context failed; the reply continued without it."
    ),
    "skills:complete": gettext_lazy(
        "The full text of all skills on demand was sent, because the model does not support tools."
    ),
    "skills:left_out": gettext_lazy(
        "Skills on demand were left out, because the API client uses its own tools."
    ),
    "skill_files:left_out": gettext_lazy(
        "Skill files were left out, because the model or the API client cannot load them."
    ),
    "round_opening": gettext_lazy(
        "The message that started the round was sent, although it is outside the agent’s window."
    ),
}
# Reasons the fallback replaced a strategy.
FALLBACKS: Mapping[str, StrOrPromise] = {
    "missing": gettext_lazy("The plugin’s package is not installed."),
    "failed": gettext_lazy("The plugin failed with {detail}."),
    "changed_tools": gettext_lazy("The plugin changed the list of tools."),
    "unsound": gettext_lazy(
        "The plugin’s selection did not fit into the prompt, or did not list each message "
        "exactly once."
    ),
}
