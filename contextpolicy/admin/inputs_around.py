"""Inputs of the policy form: tools, limits of people, references, and what is known of a person."""

from django import forms

from contextpolicy.admin.fields import (
    LOWEST,
    NO_OTHERS,
    UNSET,
    choice,
    lock,
    number,
    percent,
    rules,
    several,
    yes_or_no,
)
from contextpolicy.admin.offered import models, providers
from contextpolicy.admin.words import REFERENCE_SCOPES, UNMANAGED
from contextpolicy.admin.written import NONE, RULE_EXAMPLE


class AroundInputs(forms.Form):
    """Tools, limits of people, references, and what is known of a person."""

    tool_output_limit = number(
        "Longest tool result",
        f"In characters of the prompt. {LOWEST}",
        1,
    )
    lock_tool_output_limit = lock()
    tool_output_rules = rules(
        "Rules for tools",
        "One on each line: a tool's name (or * for all others), a colon, and its rule, such as "
        f"“{RULE_EXAMPLE}”. “limit” is in characters of a result in the prompt; “keep newest” "
        "replaces older results by a line that says so. “no rule” exempts a tool from *. "
        f"“{NONE}”: no rules.",
    )
    lock_tool_output_rules = lock()
    input_length_limit = number(
        "Longest message",
        f"In characters; longer ones are refused. {LOWEST}",
        1,
    )
    lock_input_length_limit = lock()
    allowed_models = several(
        "Allowed models",
        "Nothing ticked: this policy says nothing. Of several policies all must allow it.",
        models,
    )
    lock_allowed_models = lock()
    references = yes_or_no(
        "References",
        "Whether what was said elsewhere goes along with a question that shares telling words "
        "with it: each passage with its day and who said it. A greeting brings nothing.",
    )
    lock_references = lock()
    reference_count = number(
        "Most passages", f"Of a chat other than this one two at most. {LOWEST}", 1
    )
    lock_reference_count = lock()
    reference_tokens = number("Tokens of all passages", f"In each prompt. {LOWEST}", 1)
    lock_reference_tokens = lock()
    reference_floor = number(
        "Words to share",
        "So many telling words a passage must share with the question; a word that is rare in the "
        "person's chats counts as two. Of several policies the highest value counts.",
        1,
    )
    lock_reference_floor = lock()
    reference_share = percent(
        "Share for excerpts of the chat",
        "Earlier messages of the chat that the prompt leaves out are looked up for each question. "
        "The best ones, each with its day, fill up to this share of the prompt limit, as far as it "
        "is free. 0: off; then the limits above apply.",
        smallest="0",
    )
    lock_reference_share = lock()
    reference_scope = choice(
        "Taken from",
        "Temporary chats give and take nothing; nobody is ever shown another person's words.",
        [UNSET, *REFERENCE_SCOPES.items()],
    )
    lock_reference_scope = lock()
    temporary_chats = yes_or_no(
        "Temporary chats",
        "Whether people may begin chats that are erased when they sign out, or some time after "
        "the last message. The audit ledger keeps their numbers.",
    )
    lock_temporary_chats = lock()
    retention_days = number(
        "Days until messages are erased",
        "Messages older than this are erased each night with every copy of their words, and so "
        "are summaries made of them; a chat whose messages are all older goes as a whole. Nothing "
        f"under a legal hold is erased. {LOWEST} Empty: this policy erases nothing.",
        1,
    )
    lock_retention_days = lock()
    warm_up = yes_or_no(
        "Warm-ups",
        "Whether a model server that costs nothing reads a changed prompt in the background, so "
        "that the next message does not wait for it. A server can be left out in its settings.",
    )
    lock_warm_up = lock()
    unmanaged = choice(
        "Passed on as it came",
        "Which requests of programs go to the model without a chat, a summary or this policy's "
        "text. Of their words nothing is stored; key, model, tokens and time stand in the ledger.",
        [UNSET, *UNMANAGED.items()],
    )
    lock_unmanaged = lock()
    cache_marks = yes_or_no(
        "Cache marks",
        "Whether servers with Anthropic’s interface are told which parts of a prompt stay the "
        "same, so that the next one reads them from the cache. Keeping a part costs a quarter "
        "more than sending it once, reading it a tenth. Other servers keep prompts unasked.",
    )
    lock_cache_marks = lock()
    own_instructions = yes_or_no(
        "A person's own instructions",
        "Whether the text that a person wrote for all of their chats goes along, as data.",
    )
    lock_own_instructions = lock()
    preferences = yes_or_no(
        "Preferences",
        "Whether what is kept of a person beyond one chat goes along, and whether more is noted. "
        "Nothing is kept of anybody who did not agree to it.",
    )
    lock_preferences = lock()
    inferred_preferences = yes_or_no(
        "Proposed preferences",
        "Whether the model that writes summaries reads what people said, once their chat rests, "
        "and proposes preferences. Only for those who agreed to that, at most 20 calls a day each; "
        "without such a model none.",
    )
    lock_inferred_preferences = lock()
    recent_by_user = number(
        "Newest messages of other chats",
        "So many of the newest messages of the person's other chats go along before the question, "
        "50 at most. "
        f"{LOWEST} {NO_OTHERS}",
    )
    lock_recent_by_user = lock()
    memory_providers = several(
        "Providers that may get them",
        "Instructions, preferences and messages of other chats go to these providers alone. "
        "Nothing ticked: this policy says nothing. Of several policies all must allow it.",
        providers,
    )
    lock_memory_providers = lock()
