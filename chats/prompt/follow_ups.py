"""The background jobs that may follow a turn, as known when its prompt is composed."""

from dataclasses import dataclass

from django.conf import settings

from chats.memory.preferences import preference_patterns
from chats.models import Message
from chats.prompt import model_choice
from chats.providers.registry import ProviderAccountValue as Account
from contextpolicy import plugins
from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.compose.compaction_need import (
    CompactionNeed,
    compute_compaction_threshold,
)
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.policy.budget import compute_compact_mark
from contextpolicy.engine.policy.policy import PolicyValues, can_compact_messages


@dataclass(frozen=True, slots=True)
class FollowUps:
    """The jobs to enqueue after a turn, depending on its reply.

    `compact_from` and `warm_up_from`: the reply lengths in tokens at which a compaction or a cache
    warm-up becomes due; None: never.
    """

    compact_from: int | None = None
    warm_up_from: int | None = None
    # Slug of the policy's summary model, which writes the title after a chat's first reply.
    title_model: str = ""
    # The policy's strategy, which may have an `on_turn_complete` hook.
    strategy: str = ""
    # The answered messages may contain preferences to save.
    saves_preferences: bool = False
    # A model may suggest preferences once the chat is idle.
    infers_preferences: bool = False

    def should_compact(self, reply: Message | None) -> bool:
        """Return True if the chat may now exceed a compaction threshold."""
        return self.compact_from is not None and count_reply_tokens(reply) >= self.compact_from

    def should_warm_up(self, reply: Message | None) -> bool:
        """Return True if the next prompt may have another prefix."""
        return self.warm_up_from is not None and count_reply_tokens(reply) >= self.warm_up_from

    def should_write_title(self, reply: Message | None) -> bool:
        """Return True if this is the chat's first reply and a model may write the title."""
        is_first = reply is not None and reply.seq == 2
        return is_first and bool(self.title_model) and settings.TITLES_BY_MODEL

    def should_run_hook(self, reply: Message | None) -> bool:
        """Return True if the strategy has a hook for a turn with a reply."""
        return reply is not None and plugins.is_turn_hook_strategy(self.strategy)


NO_FOLLOW_UPS = FollowUps()


def count_reply_tokens(reply: Message | None) -> int:
    return reply.token_count or 0 if reply else 0


def plan_follow_ups(
    assembled: AssembledContext,
    *,
    given: ComposeInput,
    choice: model_choice.ChosenModel,
    account: Account,
    needed: CompactionNeed,
) -> FollowUps:
    """Return the jobs that may follow a turn with this prompt."""
    values = choice.values
    limit = assembled.budget.prompt_limit
    return FollowUps(
        compact_from=compute_compaction_threshold(needed, values=values, limit=limit),
        warm_up_from=find_warm_up_start(
            needed, choice=choice, account=account, assembled=assembled
        ),
        title_model=values.summarization_model,
        strategy=values.strategy,
        saves_preferences=values.preferences and has_preference_statement(given),
        infers_preferences=is_inference_enabled(values),
    )


def is_inference_enabled(values: PolicyValues) -> bool:
    """Return True if a policy allows inferred preferences and sets a summary model."""
    allowed = values.preferences and values.inferred_preferences
    return allowed and bool(values.summarization_model)


def has_preference_statement(given: ComposeInput) -> bool:
    """Return True if a message being answered states or withdraws a preference."""
    asked = (m for m in (*given.question, *given.steps) if m.role == "user")
    texts = [engine.extract_message_text(message) for message in asked]
    return any(
        preference_patterns.extract_statements(text)
        or preference_patterns.extract_forget_requests(text)
        for text in texts
    )


def can_warm_up_cache(choice: model_choice.ChosenModel, *, account: Account) -> bool:
    """Return True if policy and server allow cache warm-ups and the model's calls are free."""
    return choice.values.warm_up and account.warms_up and not model_choice.has_price(choice.model)


def find_warm_up_start(
    needed: CompactionNeed,
    *,
    choice: model_choice.ChosenModel,
    account: Account,
    assembled: AssembledContext,
) -> int | None:
    """Return the reply length in tokens from which the next prompt's prefix changes.

    Assumes that the next question is as long as this one. None if cache warm-ups are not allowed,
    or if the strategy never compacts.
    """
    if not can_warm_up_cache(choice, account=account) or not can_compact_messages(choice.values):
        return None
    if choice.values.window_turns or choice.values.window_size or choice.values.window_tokens:
        # Any reply may reach the limit.
        return 0
    limit = assembled.budget.prompt_limit
    next_question = round(assembled.budget.question * assembled.budget.calibration)
    mark = compute_compact_mark(choice.values, prompt_limit=limit)
    return max(mark - needed.tokens - next_question, 0)
