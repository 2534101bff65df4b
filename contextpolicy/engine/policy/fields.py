"""The fields of an effective policy and their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

CutStyle = Literal["head", "head_tail"]
Layout = Literal["multi_turn", "A", "B", "C"]
ChatSystem = Literal["layout", "append", "replace", "ignore"]
# A permission on the summaries of a chat: for its owner, for people who edit policies, or for none.
Right = Literal["owner", "admins", "nobody"]
# The source of retrieved context: the chat alone, the chats of its folder (without a folder: those
# in none), or all chats of its owner.
ReferenceScope = Literal["chat", "folder", "person"]
# Which client requests are passed through without a chat: none, those of API keys with that
# setting, also those that ask for it, or all.
Unmanaged = Literal["none", "keys", "asked", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFields:
    """Every field of an effective policy.

    Lengths are characters (code points). `*_tokens` and `token_budget` are tokens. Marks are shares
    of the prompt limit, each with an optional absolute value; the lower one applies. None means no
    limit, no mark, no trigger. `strategy_config` is JSON-ready and is not merged: it belongs to the
    strategy. `state_schema` is the JSON Schema of the state of `entity_state`.

    `history_provider`: the package provider that selects the messages of history; empty: the newest
    ones. `window_size`, `window_turns` and `window_tokens` are ceilings of history; the first one
    reached moves the window. `pins_tokens` is the room for pinned messages. `compact_every_turns`
    replaces `compact_to`: the low mark is set so that about this number of turns fits until the
    next compaction. `tool_output_rules` maps a tool's name or `*` to `limit` (characters of a
    result) and `keep_newest` (number of results of the tool that stay; older ones become a stub).
    `pinned_kinds` names the kinds of facts that a summary must keep. `summary_instruction`:
    additional instructions for the model that writes summaries. `summary_sections`: the headings of
    a summary; empty: the built-in ones. `chat_system`: how a chat's own system text is treated;
    `layout` leaves it to the layout (A replaces the policy's text by it, the others append it).
    `show_date` puts the day of the question into the prompt's tail. `dates` puts a line with the
    day before the first message of each day, and days into summaries (text layouts have none).
    `plain_sections` writes preferences and retrieved context as their text alone: without
    introduction, names of preferences, dates, or names of speakers.

    `approval`: who approves a summary before it is used; `nobody` means that it needs no approval.
    `undo_right` and `edit_right`: who may undo a compaction and edit a summary. An undo pauses
    automatic compaction for `undo_pause_hours`; by default until it is resumed manually.
    `references`: whether earlier messages that share words with a question are added to it: at most
    `reference_count` chunks and `reference_tokens`, each sharing `reference_floor` keywords (a rare
    one counts as two), out of `reference_scope`. With a `reference_share` above 0 they are excerpts
    of the chat itself that its prompt omits: whole messages where they fit, best first. They use
    that share of the prompt limit (not `reference_tokens`), as far as it is free below the
    compaction mark. `temporary_chats`: whether users may start chats that are erased automatically.
    `retention_days`: messages are erased after this number of days. `warm_up`: whether a free model
    prefills a changed prompt in the background. `unmanaged`: the client requests that are passed
    through; their texts are not stored. `cache_marks`: whether cache breakpoints are sent to a
    server that caches prompts only up to breakpoints.

    `file_kinds`, `file_mebibytes` and `files_per_message`: the kinds, the size and the number of
    the files of a new message; the limits of the server apply in any case.

    `preferences` and `own_instructions`: whether saved preferences and the user's instructions for
    every chat are added. `inferred_preferences`: whether the light model suggests preferences, to
    users who agreed to that. `memory_providers` names the providers that may get these and content
    of other chats. `recent_by_user`: the number of newest messages from the user's other chats that
    are added. `runtime_note`, `budget_note` and `skills` are parts of the system text: the model
    that serves the chat, the fixed limits, and named texts of administrators.
    """

    history_provider: str = ""
    strategy: str = "dynamic_summary"
    strategy_config: Mapping[str, object] = field(default_factory=dict)
    state_schema: Mapping[str, object] = field(default_factory=dict)
    layout: Layout = "multi_turn"
    question_prefix: str = "用户提问: "
    chat_system: ChatSystem = "layout"
    window_size: int | None = None
    window_turns: int | None = None
    window_tokens: int | None = None
    max_chars_per_message: int | None = None
    cut_style: CutStyle = "head"
    token_budget: int = 16_000
    reserve_tokens: int = 4_000
    max_bytes: int | None = None
    pins_tokens: int | None = None
    keep_last_messages: int = 30
    prepare_at: float = 0.70
    compact_at: float = 0.90
    compact_to: float = 0.45
    prepare_at_tokens: int | None = None
    compact_at_tokens: int | None = None
    compact_to_tokens: int | None = None
    compact_every_turns: int | None = None
    turn_threshold: int | None = None
    fold_turns: int = 5
    summarization_model: str = ""
    summary_max_tokens: int = 2_000
    summary_instruction: str = ""
    summary_sections: tuple[str, ...] = ()
    pinned_kinds: tuple[str, ...] = ()
    approval: Right = "nobody"
    undo_right: Right = "owner"
    edit_right: Right = "owner"
    undo_pause_hours: int | None = None
    system_text: str = ""
    hide_system_text: bool = False
    show_date: bool = False
    plain_sections: bool = False
    dates: bool = False
    input_length_limit: int = 32_000
    tool_output_limit: int = 8_000
    tool_output_rules: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allowed_models: tuple[str, ...] | None = None
    file_kinds: tuple[str, ...] | None = None
    file_mebibytes: int | None = None
    files_per_message: int | None = None
    archive: bool = True
    references: bool = False
    reference_count: int = 6
    reference_tokens: int = 1_200
    reference_floor: int = 2
    reference_share: float = 0.0
    reference_scope: ReferenceScope = "folder"
    temporary_chats: bool = True
    retention_days: int | None = None
    warm_up: bool = True
    unmanaged: Unmanaged = "keys"
    cache_marks: bool = True
    preferences: bool = True
    inferred_preferences: bool = True
    own_instructions: bool = True
    memory_providers: tuple[str, ...] | None = None
    recent_by_user: int | None = None
    runtime_note: bool = False
    budget_note: bool = False
    skills: tuple[str, ...] = ()


def compute_mark_tokens(share: float, absolute: int | None, *, prompt_limit: int) -> int:
    """Return a mark in tokens: its share of the prompt limit or its absolute value, the lower."""
    by_share = int(share * prompt_limit)
    return by_share if absolute is None else min(by_share, absolute)
