"""The fields of an effective policy and their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

CutStyle = Literal["head", "head_tail"]
Layout = Literal["multi_turn", "A", "B", "C"]
ChatSystem = Literal["layout", "append", "replace", "ignore"]
# A right over the summaries of a chat: its owner's, that of people who edit policies, or nobody's.
Right = Literal["owner", "admins", "nobody"]
# Where references come from: the chat alone, those of its folder (without one: those in no folder),
# or all of its owner's.
ReferenceScope = Literal["chat", "folder", "person"]
# Which requests of programs are passed on as they came, without a chat: none, those of keys that
# are set so, those that ask for it too, or all.
Unmanaged = Literal["none", "keys", "asked", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFields:
    """Every field of an effective policy.

    Lengths are characters (code points), `*_tokens` and `token_budget` are tokens, marks are
    shares of the prompt limit with an optional absolute value each, of which the lower holds. None
    means no limit, no mark, no trigger. `strategy_config` is JSON-ready and belongs to the
    strategy as a whole. `state_schema` is the JSON Schema of the state that `entity_state` keeps.

    `history_provider`: the package's provider that chooses the messages of history; empty: the
    newest ones. `window_size`, `window_turns` and `window_tokens` are ceilings of history;
    whichever is reached first moves the window. `pins_tokens` is the room of pinned messages.
    `compact_every_turns` puts the low mark where about so many turns fit until the next compaction,
    instead of `compact_to`. `tool_output_rules` holds, by a tool's name or `*`, `limit` (characters
    of a result) and `keep_newest` (so many results of the tool stay, older ones become a stub).
    `pinned_kinds` names the kinds of facts that a summary may not lose. `summary_instruction`: what
    matters, for a model that writes summaries, below the rules that hold for each of them;
    `summary_sections`: the headings of a summary, none meaning those of the product. `chat_system`:
    what becomes of a chat's own system text; `layout` leaves it to the layout (A replaces the
    policy's text by it, the others append it). `show_date` puts the day of the question into the
    prompt's tail; `dates` puts a line with the day before the first message of each day, and days
    into summaries (layouts of text have none). `plain_sections` writes preferences and retrieved
    context as their text alone: no introduction, no names of preferences, no dates or names of
    speakers.

    `approval`: who reads a summary before it is used; `nobody` means that it needs no approval.
    `undo_right` and `edit_right`: who may undo a compaction and correct a summary. An undo pauses
    automatic compaction for `undo_pause_hours`, by default until somebody resumes it.
    `references`: whether what was said elsewhere goes along with a question that shares words with
    it: at most `reference_count` passages and `reference_tokens`, each sharing `reference_floor`
    telling words (a rare one counts as two), out of `reference_scope`. With a `reference_share`
    above 0 they are excerpts of the chat itself that its prompt leaves out: whole messages where
    they fit, best first, in that share of the prompt limit (not `reference_tokens`) as far as it is
    free below the mark at which history is compacted.
    `temporary_chats`: whether people may begin chats that are erased by themselves.
    `retention_days`: after so many days messages are erased. `warm_up`: whether a model that costs
    nothing reads a changed prompt in the background. `unmanaged`: the requests of programs that are
    passed on as they came, of which no words are stored. `cache_marks`: whether a server that keeps
    prompts only where it is told to is told where theirs stay the same.

    `preferences` and `own_instructions`: whether what is kept of a person, and what they wrote for
    every chat, goes along; `inferred_preferences`: whether the light model proposes some, to people
    who agreed to that; `memory_providers` names the providers that may get either, and what was
    said in other chats. `recent_by_user`: so many of the newest messages of the person's other
    chats go along. `runtime_note`, `budget_note` and `skills` are parts of the system text: what
    serves the chat, the fixed limits, and named texts of administrators.
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


def mark(share: float, absolute: int | None, *, prompt_limit: int) -> int:
    """Return a mark in tokens: the share of the prompt limit or the absolute value, the lower."""
    by_share = int(share * prompt_limit)
    return by_share if absolute is None else min(by_share, absolute)
