"""Policy fields about tools, new messages and files, models, retention and API clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.messages.files import FILE_KINDS
from contextpolicy.engine.policy.fields.declaration import declare
from contextpolicy.engine.text.phrases import Phrase, gettext_noop, ngettext_noop

# The share of the prompt limit for the texts of a message's files, if no policy sets it.
FILE_PERCENT = 25
# The largest number of tokens of a quota: ten thousand million.
LARGEST_QUOTA = 10_000_000_000
# The client requests that are passed through without a chat: none, those of API keys with that
# setting, also those that ask for it, or all.
PassthroughMode = Literal["none", "keys", "asked", "all"]


def is_tool_rules(value: object) -> bool:
    """Return True for a mapping of tool names to tool rules.

    A tool rule has the whole numbers `limit` and `keep_newest`. Both are optional.
    """
    return isinstance(value, Mapping) and all(_is_rule(rule) for rule in value.values())


def _is_rule(rule: object) -> bool:
    return (
        isinstance(rule, Mapping)
        and rule.keys() <= {"limit", "keep_newest"}
        and all(isinstance(n, int) and not isinstance(n, bool) for n in rule.values())
    )


@dataclass(frozen=True, kw_only=True)
class LimitFields:
    """The limits of tools and of people, and the treatment of servers and API clients."""

    # Names as "server/tool", or "server/*" for all of a server. Without a value in any policy, no
    # tool of a server is allowed.
    tools: tuple[str, ...] = declare(
        default=(),
        group="tools",
        label=gettext_noop("Allowed MCP tools"),
        help_text=gettext_noop(
            "The model can call these MCP tools, after an administrator has approved them. If no "
            "policy sets this field, no MCP tool is allowed. If several policies apply, a tool "
            "must be allowed by all of them."
        ),
        combine="intersection",
        choices="tools",
        wanted=Phrase(gettext_noop("a list of names such as server/tool or server/*")),
        sentence=gettext_noop("Allowed MCP tools: {tools}."),
    )
    tool_output_limit: int = declare(
        default=8_000,
        group="tools",
        label=gettext_noop("Longest tool result"),
        help_text=gettext_noop(
            "Cuts each tool result to this many characters in prompts. Stored results do not "
            "change."
        ),
        combine="min",
    )
    # By the name of a tool or `*`: `limit` is the number of characters of a result, `keep_newest`
    # the number of results of the tool that stay. Older ones become a stub.
    tool_output_rules: Mapping[str, Mapping[str, int]] = declare(
        default={},
        group="tools",
        label=gettext_noop("Rules for tools"),
        help_text=gettext_noop(
            "Enter one rule per line: the name of a tool (or * for all others), a colon and "
            "the rule, such as “{example}”. “limit” is the maximum number of characters of a "
            "result in the prompt. “keep newest” replaces older results with a short note. “no "
            "rule” exempts a tool from *. “{none}”: no rules."
        ),
        widget="tool_rules",
        accepts=is_tool_rules,
        wanted=Phrase(
            gettext_noop(
                "an object that maps tool names to objects with the optional whole numbers "
                "“limit” and “keep_newest”"
            )
        ),
    )
    input_length_limit: int = declare(
        default=32_000,
        group="limits",
        label=gettext_noop("Longest message"),
        help_text=gettext_noop(
            "Limits new messages to this many characters. Longer messages are refused, never cut."
        ),
        combine="min",
        sentence=ngettext_noop(
            "New messages over {n} character are refused.",
            "New messages over {n} characters are refused.",
        ),
    )
    allowed_models: tuple[str, ...] | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Allowed models"),
        help_text=gettext_noop(
            "Chats can use only these models. Empty: this policy allows all models. If several "
            "policies apply, a model must be allowed by all of them."
        ),
        combine="intersection",
        choices="models",
        wanted=Phrase(gettext_noop("a list of model names")),
        sentence=gettext_noop("Allowed models: {models}."),
    )
    # The limits of the server for files apply in any case.
    file_kinds: tuple[str, ...] | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Allowed kinds of files"),
        help_text=gettext_noop(
            "Other kinds of files cannot be sent with new messages. Empty: this policy allows "
            "all kinds. If several policies apply, a kind must be allowed by all of them."
        ),
        combine="intersection",
        values=FILE_KINDS,
        choices="file_kinds",
        sentence=gettext_noop("Allowed kinds of files: {kinds}."),
    )
    file_models: tuple[str, ...] | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Models for files"),
        help_text=gettext_noop(
            "Only these models get files and images. Other models cannot reply in chats that "
            "contain files. Empty: this policy allows all models. If several policies apply, a "
            "model must be allowed by all of them."
        ),
        combine="intersection",
        choices="models",
        wanted=Phrase(gettext_noop("a list of model names")),
        sentence=gettext_noop("Files are sent only to these models: {models}."),
    )
    file_mebibytes: int | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Largest file (MiB)"),
        help_text=gettext_noop(
            "Limits each file in a new message to this size. The server’s limit (25 MiB by "
            "default) always applies."
        ),
        combine="min",
        sentence=gettext_noop("A file has at most {n} MiB."),
    )
    files_per_message: int | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Files per message"),
        help_text=gettext_noop(
            "Limits new messages to this many files. The server’s limit (20 by default) always "
            "applies."
        ),
        combine="min",
        sentence=ngettext_noop(
            "A message has at most {n} file.", "A message has at most {n} files."
        ),
    )
    file_percent: int = declare(
        default=FILE_PERCENT,
        group="limits",
        label=gettext_noop("Prompt share for files (%)"),
        help_text=gettext_noop(
            "Limits the text of all files in a new message to this share of the prompt "
            "limit. Longer text is cut; the parts that match a question are sent with it."
        ),
        combine="min",
        largest=90,
        # xgettext:no-python-format, a percent sign
        sentence=gettext_noop("A message’s files use at most {n} % of the prompt limit."),
        described_if=lambda values: values.file_percent != FILE_PERCENT,
    )
    # Summed over all chats and API keys of a user, see `chats.record.quotas`.
    tokens_per_day: int | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Tokens per user and day"),
        help_text=gettext_noop(
            "Refuses new messages once a user’s model calls have used this many tokens since "
            "midnight UTC. Prompts, replies and summaries count, in all chats and for all API keys "
            "of the user. A reply that has begun is completed."
        ),
        combine="min",
        largest=LARGEST_QUOTA,
        sentence=ngettext_noop(
            "Each user can use {n} token per day.", "Each user can use {n} tokens per day."
        ),
    )
    tokens_per_month: int | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Tokens per user and month"),
        help_text=gettext_noop("The same limit for a calendar month in UTC."),
        combine="min",
        largest=LARGEST_QUOTA,
        sentence=ngettext_noop(
            "Each user can use {n} token per month.", "Each user can use {n} tokens per month."
        ),
    )
    cost_per_month: int | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Cost per user and month"),
        help_text=gettext_noop(
            "Refuses new messages once a user’s model calls have cost this much in a calendar "
            "month in UTC. The amount is in the currency of the chat’s model. Calls of models "
            "without a price or with another currency do not count."
        ),
        combine="min",
        sentence=gettext_noop("The model calls of each user cost at most {n} per month."),
    )
    temporary_chats: bool = declare(
        default=True,
        group="limits",
        label=gettext_noop("Temporary chats"),
        help_text=gettext_noop(
            "Users can start chats that are erased when they sign out, or 24 hours after the "
            "last message (TEMPORARY_CHAT_HOURS). The audit log keeps only numbers about "
            "these chats."
        ),
        sentence=gettext_noop("Users cannot start [temporary chats]."),
    )
    retention_days: int | None = declare(
        default=None,
        group="limits",
        label=gettext_noop("Retention period (days)"),
        help_text=gettext_noop(
            "Messages older than this are erased every night, with all copies and "
            "summaries of them. A chat with only older messages is erased "
            "completely. Legal holds prevent erasure."
        ),
        combine="min",
        # A hundred years, in days.
        largest=36_500,
        too_large="retention_too_long",
        empty=gettext_noop("Empty: this policy erases nothing."),
        refuses_zero=True,
    )
    # Only a model without a price prefills a changed prompt.
    warm_up: bool = declare(
        default=True,
        group="limits",
        label=gettext_noop("Cache warm-ups"),
        help_text=gettext_noop(
            "After a prompt changes, model servers with a private address prefill it in the "
            "background, so that the next reply starts sooner. Only models without a price are "
            "used. You can exclude a server in its settings."
        ),
        sentence=gettext_noop("Cache warm-ups are [off]."),
    )
    # Some servers cache prompts only up to breakpoints.
    cache_marks: bool = declare(
        default=True,
        group="limits",
        label=gettext_noop("Cache breakpoints"),
        help_text=gettext_noop(
            "Sends cache breakpoints to servers with Anthropic’s API, so that the next prompt "
            "reads unchanged parts from the cache. Writing to the cache costs a quarter more than "
            "sending uncached tokens. Reading costs a tenth. Other servers cache automatically."
        ),
        sentence=gettext_noop("Sends [no cache breakpoints] to servers with Anthropic’s API."),
    )
    # The texts of requests that are passed through are not stored.
    unmanaged: PassthroughMode = declare(
        default="keys",
        group="limits",
        label=gettext_noop("Pass-through"),
        help_text=gettext_noop(
            "Selects which requests from API clients go directly to the model, without a chat, a "
            "summary or this policy’s text. No text is stored. The audit log records the key, "
            "the model, the tokens and the time."
        ),
        labels={
            "none": gettext_noop("None"),
            "keys": gettext_noop("Requests with API keys that have this setting"),
            "asked": gettext_noop(
                "Requests with API keys that have this setting, and requests that ask for "
                "pass-through"
            ),
            "all": gettext_noop("All"),
        },
        sentence=gettext_noop("Pass-through requests from API clients: {which}."),
    )
