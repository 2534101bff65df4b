"""A policy with more room restores, once, the history that a narrower window left out."""

from datetime import datetime

import pytest

from chats.compaction import maintain
from chats.models import Chat, Compaction, Receipt
from chats.prompt import model_choice, next_prompt
from chats.prompt.tokenizer import O200kCounter
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import SENTENCE, Fold, Say, SetPolicy, reload_branch
from tests.support.retrieved_context import get_newest_receipt

COUNTER = ApproximateCounter()
WINDOW = {"strategy": "sliding_window", "compact_to": 0.45}


def fill_until_moved(chat: Chat, say: Say) -> Compaction:
    for _ in range(40):
        if Compaction.objects.filter(kind="window").exists():
            break
        say(chat, f"Question. {SENTENCE}", SENTENCE * 6)
    window = reload_branch(chat).active_compaction
    assert window is not None
    return window


def left_out(receipt: Receipt) -> int:
    return sum(last - first + 1 for first, last, _ in receipt.left_out)


@pytest.mark.parametrize("strategy", ["sliding_window", "dynamic_summary"])
def test_all_of_the_history_comes_back_where_it_fits(
    strategy: str, chat: Chat, say: Say, set_policy: SetPolicy
) -> None:
    set_policy(strategy=strategy)
    fill_until_moved(chat, say)
    assert left_out(get_newest_receipt())
    set_policy(strategy=strategy, token_budget=16_000, prepare_at=0.9, compact_at=0.95)
    say(chat)
    assert reload_branch(chat).active_compaction is None
    assert left_out(get_newest_receipt()) == 0
    event = AuditEvent.objects.get(type="window.lifted")
    assert (event.data["from_seq"], event.chat_id) == (1, chat.pk)


def test_a_long_history_comes_back_to_the_low_mark_once(
    chat: Chat, say: Say, set_policy: SetPolicy
) -> None:
    set_policy(**WINDOW)
    fill_until_moved(chat, say)
    for _ in range(24):
        say(chat, f"Question. {SENTENCE}", SENTENCE * 6)
    narrow = reload_branch(chat).active_compaction
    set_policy(**WINDOW, token_budget=6_000)
    say(chat)
    wide = reload_branch(chat).active_compaction
    assert narrow is not None
    assert wide is not None
    assert (wide.reason, wide.to_seq < narrow.to_seq) == ("widened", True)
    assert 0.3 < get_newest_receipt().prompt_tokens / 5_600 <= 0.6
    say(chat)
    assert reload_branch(chat).active_compaction == wide


def test_a_policy_that_ignores_windows_leaves_them_for_later(
    chat: Chat, say: Say, set_policy: SetPolicy
) -> None:
    set_policy(**WINDOW)
    window = fill_until_moved(chat, say)
    set_policy(strategy="simple", window_size=4, token_budget=16_000)
    say(chat)
    assert reload_branch(chat).active_compaction == window
    assert not AuditEvent.objects.filter(type="window.lifted").exists()


def test_the_preview_of_the_new_policy_shows_what_the_next_prompt_sends(
    chat: Chat, say: Say, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(**WINDOW)
    fill_until_moved(chat, say)
    set_policy(**WINDOW, token_budget=16_000)
    branch = reload_branch(chat)
    found = next_prompt.compose_next_prompt(
        branch,
        choice=model_choice.choose_chat_model(chat=branch.chat),
        counter=O200kCounter(),
        now=now,
        question="And now?",
    )
    say(chat, "And now?")
    assert [s[2] for s in get_newest_receipt().segments if s[2]] == [
        s.seq for s in found.sent.segments if s.seq
    ]


def test_the_preview_of_a_lifted_window_offers_the_same_tools(
    chat: Chat, say: Say, set_policy: SetPolicy, now: datetime
) -> None:
    """Without omitted messages, the model has nothing to search."""
    set_policy(**WINDOW, archive=False)
    fill_until_moved(chat, say)
    set_policy(**WINDOW, token_budget=16_000)
    branch = reload_branch(chat)
    found = next_prompt.compose_next_prompt(
        branch,
        choice=model_choice.choose_chat_model(chat=branch.chat),
        counter=O200kCounter(),
        now=now,
        question="And now?",
    )
    say(chat, "And now?")
    assert reload_branch(chat).active_compaction is None
    assert found.sent.tools == ()
    assert found.sent.prompt_sha256 == get_newest_receipt().prompt_sha256


def test_covered_messages_stay_covered(
    chat: Chat, say: Say, set_policy: SetPolicy, fold: Fold, now: datetime
) -> None:
    set_policy(compact_to=0.45)
    fill_until_moved(chat, say)
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=now)
    summary = reload_branch(chat).active_compaction
    assert summary is not None
    assert summary.kind == "summary"
    set_policy(compact_to=0.45, token_budget=16_000)
    say(chat)
    assert reload_branch(chat).active_compaction == summary
    assert [1, summary.to_seq, "covered"] in get_newest_receipt().left_out


def test_less_room_and_a_teams_cap_bring_nothing_back(
    chat: Chat, say: Say, set_policy: SetPolicy
) -> None:
    set_policy(**WINDOW)
    window = fill_until_moved(chat, say)
    set_policy(**WINDOW, token_budget=2_200)
    say(chat)
    assert not Compaction.objects.filter(reason="widened").exists()
    active = reload_branch(chat).active_compaction
    assert active is not None
    assert active.to_seq >= window.to_seq
    Compaction.objects.filter(pk=active.pk).update(reason="cap")
    set_policy(**WINDOW, token_budget=16_000)
    say(chat)
    assert reload_branch(chat).active_compaction == active


@pytest.fixture
def models(demo_model: ModelSpec) -> tuple[ModelSpec, ModelSpec]:
    """A model with a small context window and one with a large one."""
    small, large = (
        ModelSpec.objects.create(
            slug=slug, provider=demo_model.provider, name=slug, context_window=window
        )
        for slug, window in (("small", 2_400), ("large", 32_000))
    )
    return small, large


def use_model(chat: Chat, model: ModelSpec) -> None:
    chat.model = model
    chat.save(update_fields=["model"])


def test_a_model_with_more_room_restores_the_history(
    chat: Chat, say: Say, set_policy: SetPolicy, models: tuple[ModelSpec, ModelSpec]
) -> None:
    small, large = models
    set_policy(**WINDOW, token_budget=16_000)
    use_model(chat, small)
    fill_until_moved(chat, say)
    say(chat)
    assert left_out(get_newest_receipt())

    use_model(chat, large)
    say(chat)

    assert get_newest_receipt().model_name == "large"
    assert left_out(get_newest_receipt()) == 0
    assert reload_branch(chat).active_compaction is None


def test_the_same_model_never_widens_its_own_window(
    chat: Chat, say: Say, set_policy: SetPolicy, models: tuple[ModelSpec, ModelSpec]
) -> None:
    small, large = models
    set_policy(**WINDOW, token_budget=16_000)
    use_model(chat, small)
    window = fill_until_moved(chat, say)
    say(chat)
    # As after an overflow error: the window is smaller than the model's limit would allow.
    ModelSpec.objects.filter(pk=small.pk).update(context_window=32_000)
    chat.refresh_from_db()
    say(chat)
    assert reload_branch(chat).active_compaction == window

    # Another model with no more room than the window was moved for.
    ModelSpec.objects.filter(pk=large.pk).update(context_window=2_400)
    use_model(chat, ModelSpec.objects.get(pk=large.pk))
    say(chat)
    active = reload_branch(chat).active_compaction
    assert active is not None
    assert active.to_seq >= window.to_seq
