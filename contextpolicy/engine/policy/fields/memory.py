"""Policy fields about retrieved context and the memory of a user."""

from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.policy.fields.declaration import declare
from contextpolicy.engine.text.phrases import Phrase, gettext_noop, ngettext_noop

# The source of retrieved context: the chat alone, the chats of its folder (without a folder: those
# in none), or all chats of its owner.
ReferenceScope = Literal["chat", "folder", "person"]


@dataclass(frozen=True, kw_only=True)
class MemoryFields:
    """Retrieved context, instructions, preferences and messages from other chats."""

    references: bool = declare(
        default=False,
        group="retrieved",
        label=gettext_noop("Retrieved context"),
        help_text=gettext_noop(
            "Adds excerpts from earlier messages that match the question, each with its date "
            "and speaker. They match by keywords, and also by meaning if there is an embedding "
            "model. Greetings add no excerpts."
        ),
    )
    reference_count: int = declare(
        default=6,
        group="retrieved",
        label=gettext_noop("Maximum excerpts"),
        help_text=gettext_noop(
            "Limits the excerpts in a prompt to this number. If other chats are sources too, at "
            "most two excerpts come from the same chat, each with the previous or the next message."
        ),
        combine="min",
        largest=300,
        too_large="too_many_references",
    )
    reference_tokens: int = declare(
        default=1_200,
        group="retrieved",
        label=gettext_noop("Tokens for excerpts"),
        help_text=gettext_noop(
            "Limits all excerpts in a prompt to this many tokens in total, if the prompt share "
            "for excerpts is 0."
        ),
        combine="min",
    )
    reference_floor: int = declare(
        default=2,
        group="retrieved",
        label=gettext_noop("Matching keywords"),
        help_text=gettext_noop(
            "An excerpt must share at least this many keywords with the question. A word that is "
            "rare in the user’s chats counts as two. So does a similar meaning, if there is an "
            "embedding model."
        ),
        combine="max",
    )
    # Above 0, the excerpts are whole messages of the chat itself where they fit, best first. They
    # use free room below the compaction mark, up to this share instead of `reference_tokens`.
    reference_share: float = declare(
        default=0.0,
        group="retrieved",
        label=gettext_noop("Prompt share for excerpts"),
        help_text=gettext_noop(
            "For each question, adds the best matches among the messages that are left out of the "
            "prompt. They use at most this share of the prompt limit, and only unused space. 0: "
            "off; “Tokens for excerpts” then applies."
        ),
        smallest=0,
        largest=0.9,
    )
    reference_scope: ReferenceScope = declare(
        default="folder",
        group="retrieved",
        label=gettext_noop("Sources of excerpts"),
        help_text=gettext_noop(
            "Applies if the prompt share for excerpts is 0; otherwise only messages from the "
            "chat are used. Temporary chats and other users’ chats are never used."
        ),
        labels={
            "chat": gettext_noop("Messages of this chat that are left out of the prompt"),
            "folder": gettext_noop("Chats in the same folder, or without a folder"),
            "person": gettext_noop("All the user’s chats"),
        },
    )
    own_instructions: bool = declare(
        default=True,
        group="memory",
        label=gettext_noop("Personal instructions"),
        help_text=gettext_noop(
            "Sends the instructions that a user wrote for all their chats, in a user message and "
            "not as system text."
        ),
        sentence=gettext_noop("Personal instructions are [not sent]."),
    )
    preferences: bool = declare(
        default=True,
        group="memory",
        label=gettext_noop("Preferences"),
        help_text=gettext_noop(
            "Sends a user’s saved preferences, and saves new preferences. Requires the user’s "
            "consent."
        ),
        sentence=gettext_noop("Preferences are [not saved or sent]."),
    )
    inferred_preferences: bool = declare(
        default=True,
        group="memory",
        label=gettext_noop("Suggested preferences"),
        help_text=gettext_noop(
            "The summarising model reads messages of idle chats and suggests preferences. "
            "Requires the user’s consent. At most 20 calls per user per day. Without a "
            "summarising model, no preferences are suggested."
        ),
        sentence=gettext_noop("Preferences are [not suggested] by a model."),
        described_if=lambda values: values.preferences,
    )
    recent_by_user: int | None = declare(
        default=None,
        group="memory",
        label=gettext_noop("Newest messages from other chats"),
        help_text=gettext_noop(
            "Before the question, adds this many of the newest messages from the user’s "
            "other chats in the same folder. At most 50 messages with 1,200 tokens in "
            "total."
        ),
        combine="min",
        empty=gettext_noop("0: this policy adds no text."),
        sentence=ngettext_noop(
            "Sends the newest {n} message from the user’s other chats.",
            "Sends the newest {n} messages from the user’s other chats.",
        ),
    )
    # The providers that may get preferences, instructions and content of other chats.
    memory_providers: tuple[str, ...] | None = declare(
        default=None,
        group="memory",
        label=gettext_noop("Providers for personal data"),
        help_text=gettext_noop(
            "Only these providers receive instructions, preferences and messages from other "
            "chats. Empty: this policy allows all providers. If several policies apply, a "
            "provider must be allowed by all of them."
        ),
        combine="intersection",
        choices="providers",
        wanted=Phrase(gettext_noop("a list of provider names")),
        sentence=gettext_noop("Sends personal data only to {providers}."),
        nothing=gettext_noop("no provider"),
    )
