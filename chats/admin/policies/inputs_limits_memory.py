"""Fields of the policy form: tools, user limits, retrieved context, and memory."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from chats.admin.policies.choices import (
    list_file_kind_choices,
    list_model_choices,
    list_provider_choices,
)
from chats.admin.policies.form_fields import (
    LOWEST,
    NO_OTHERS,
    UNSET,
    build_choice_field,
    build_integer_field,
    build_lock_field,
    build_multiple_choice_field,
    build_percent_field,
    build_tool_rules_field,
    build_yes_no_field,
)
from chats.admin.policies.labels import REFERENCE_SCOPES, UNMANAGED
from chats.admin.policies.line_formats import NONE, RULE_EXAMPLE
from contextpolicy.wording import join_sentences_lazy


class AroundInputs(forms.Form):
    """Fields for tools, user limits, retrieved context, and memory."""

    tool_output_limit = build_integer_field(
        gettext_lazy("Longest tool result"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum characters of a tool result in a prompt. Longer results are cut; stored "
                "ones do not change."
            ),
            LOWEST,
        ),
        1,
    )
    lock_tool_output_limit = build_lock_field()
    tool_output_rules = build_tool_rules_field(
        gettext_lazy("Rules for tools"),
        format_lazy(
            gettext_lazy(
                "One rule per line: the name of a tool (or * for all others), a colon and the "
                "rule, such as “{example}”. “limit” is the maximum number of characters of a "
                "result in the prompt. “keep newest” replaces older results with a short note. "
                "“no rule” exempts a tool from *. “{none}”: no rules."
            ),
            example=RULE_EXAMPLE,
            none=NONE,
        ),
    )
    lock_tool_output_rules = build_lock_field()
    input_length_limit = build_integer_field(
        gettext_lazy("Longest message"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum characters of a new message. Longer messages are refused, never cut."
            ),
            LOWEST,
        ),
        1,
    )
    lock_input_length_limit = build_lock_field()
    allowed_models = build_multiple_choice_field(
        gettext_lazy("Allowed models"),
        gettext_lazy(
            "Empty: this policy allows all models. If several policies apply, a model must be "
            "allowed by all of them."
        ),
        list_model_choices,
    )
    lock_allowed_models = build_lock_field()
    file_kinds = build_multiple_choice_field(
        gettext_lazy("Allowed kinds of files"),
        gettext_lazy(
            "Files of other kinds cannot be sent with new messages. Empty: this policy allows all "
            "kinds. If several policies apply, a kind must be allowed by all of them."
        ),
        list_file_kind_choices,
    )
    lock_file_kinds = build_lock_field()
    file_mebibytes = build_integer_field(
        gettext_lazy("Largest file (MiB)"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum size of a file that is sent with a new message. The limit of the server "
                "(25 MiB by default) always applies."
            ),
            LOWEST,
            NO_OTHERS,
        ),
    )
    lock_file_mebibytes = build_lock_field()
    files_per_message = build_integer_field(
        gettext_lazy("Files per message"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum number of files of a new message. The limit of the server (20 by default) "
                "always applies."
            ),
            LOWEST,
            NO_OTHERS,
        ),
    )
    lock_files_per_message = build_lock_field()
    references = build_yes_no_field(
        gettext_lazy("Retrieved context"),
        gettext_lazy(
            "Adds excerpts from earlier messages that match keywords of the question, each with "
            "its date and speaker. Greetings add no excerpts."
        ),
    )
    lock_references = build_lock_field()
    reference_count = build_integer_field(
        gettext_lazy("Maximum excerpts"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum number of excerpts in a prompt, at most two from each other chat."
            ),
            LOWEST,
        ),
        1,
    )
    lock_reference_count = build_lock_field()
    reference_tokens = build_integer_field(
        gettext_lazy("Tokens for excerpts"),
        join_sentences_lazy(gettext_lazy("Maximum tokens of all excerpts in a prompt."), LOWEST),
        1,
    )
    lock_reference_tokens = build_lock_field()
    reference_floor = build_integer_field(
        gettext_lazy("Matching keywords"),
        gettext_lazy(
            "Minimum number of keywords that an excerpt shares with the question. A word that is "
            "rare in the chats of the person counts as two. If several policies apply, the "
            "highest value wins."
        ),
        1,
    )
    lock_reference_floor = build_lock_field()
    reference_share = build_percent_field(
        gettext_lazy("Prompt share for excerpts"),
        gettext_lazy(
            "For each question, the best matches among the messages that the prompt leaves out "
            "are added. They use at most this share of the prompt limit, and only free room. 0: "
            "off; the limits above then apply."
        ),
        smallest="0",
    )
    lock_reference_share = build_lock_field()
    reference_scope = build_choice_field(
        gettext_lazy("Sources of excerpts"),
        gettext_lazy("Temporary chats and chats of other people are never used."),
        [UNSET, *REFERENCE_SCOPES.items()],
    )
    lock_reference_scope = build_lock_field()
    temporary_chats = build_yes_no_field(
        gettext_lazy("Temporary chats"),
        gettext_lazy(
            "People can start chats that are erased when they sign out, or 24 hours after the "
            "last message (TEMPORARY_CHAT_HOURS). The audit log keeps only numbers about "
            "these chats."
        ),
    )
    lock_temporary_chats = build_lock_field()
    retention_days = build_integer_field(
        gettext_lazy("Retention period (days)"),
        join_sentences_lazy(
            gettext_lazy(
                "Messages older than this are erased every night, with all copies and "
                "summaries of them. A chat with only older messages is erased "
                "completely. Legal holds prevent erasure."
            ),
            LOWEST,
            gettext_lazy("Empty: this policy erases nothing."),
        ),
        1,
    )
    lock_retention_days = build_lock_field()
    warm_up = build_yes_no_field(
        gettext_lazy("Cache warm-ups"),
        gettext_lazy(
            "After a prompt changes, your own model servers prefill it in the background, so that "
            "the next reply starts sooner. Only models without a price are used. You can exclude a "
            "server in its settings."
        ),
    )
    lock_warm_up = build_lock_field()
    unmanaged = build_choice_field(
        gettext_lazy("Pass-through"),
        gettext_lazy(
            "Decides which requests of API clients go to the model without a chat, a summary or "
            "the text of this policy. No text is stored. The audit log records the key, the "
            "model, the tokens and the time."
        ),
        [UNSET, *UNMANAGED.items()],
    )
    lock_unmanaged = build_lock_field()
    cache_marks = build_yes_no_field(
        gettext_lazy("Cache breakpoints"),
        gettext_lazy(
            "Sends cache breakpoints to servers with Anthropic’s API, so that the next prompt "
            "reads unchanged parts from the cache. Writing to the cache costs a quarter more than "
            "sending uncached tokens. Reading costs a tenth. Other servers cache automatically."
        ),
    )
    lock_cache_marks = build_lock_field()
    own_instructions = build_yes_no_field(
        gettext_lazy("Personal instructions"),
        gettext_lazy(
            "Sends the instructions that a person wrote for all of their chats, as labelled data."
        ),
    )
    lock_own_instructions = build_lock_field()
    preferences = build_yes_no_field(
        gettext_lazy("Preferences"),
        gettext_lazy(
            "Sends the saved preferences of a person, and saves new preferences. Requires the "
            "person’s consent."
        ),
    )
    lock_preferences = build_lock_field()
    inferred_preferences = build_yes_no_field(
        gettext_lazy("Suggested preferences"),
        gettext_lazy(
            "The summarising model reads messages of idle chats and suggests preferences. "
            "Requires the person’s consent. At most 20 calls per person and day. Without a "
            "summarising model, no preferences are suggested."
        ),
    )
    lock_inferred_preferences = build_lock_field()
    recent_by_user = build_integer_field(
        gettext_lazy("Newest messages of other chats"),
        join_sentences_lazy(
            gettext_lazy(
                "Number of newest messages from other chats of the person that are added before "
                "the question. At most 50."
            ),
            LOWEST,
            NO_OTHERS,
        ),
    )
    lock_recent_by_user = build_lock_field()
    memory_providers = build_multiple_choice_field(
        gettext_lazy("Providers for personal data"),
        gettext_lazy(
            "Only these providers receive instructions, preferences and messages of other chats. "
            "Empty: this policy allows all providers. If several policies apply, a provider must "
            "be allowed by all of them."
        ),
        list_provider_choices,
    )
    lock_memory_providers = build_lock_field()
