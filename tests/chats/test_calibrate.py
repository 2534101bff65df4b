"""Token calibration of a model follows the counts of its provider, reply by reply."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import lifecycle
from chats.models import Branch, Chat, Receipt, Turn
from chats.prompt import calibration, prompt_facts
from chats.providers import model_specs
from chats.providers.base import Finished, ProviderError, ProviderRequest, TextDelta, UsageReport
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import (
    ApproximateCounter,
    count_tool_tokens,
    count_wire_tokens,
)
from contextpolicy.engine.policy.calibration import Factors
from contextpolicy.engine.text import scripts
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment, PolicyVersion
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

Work = Callable[..., Any]
LONG = "word " * 400


@pytest.fixture
def model(demo_model: ModelSpec) -> ModelSpec:
    return demo_model


def learn(model: ModelSpec, *, estimate: int = 1_000, **facts: Any) -> bool:
    given: dict[str, Any] = {
        "factors": facts.pop("factors", Factors()),
        "shares": facts.pop("shares", {"latin": 1.0}),
    }
    known: dict[str, Any] = {"reported": {"input": 1_500, "cached": 0}, "completed": True}
    return calibration.update_model_factors(
        model_id=model.pk,
        estimate=calibration.PromptEstimate(tokens=estimate, **given),
        **{**known, **facts},
    )


def test_a_reply_moves_the_factor_a_fifth_of_the_way(model: ModelSpec) -> None:
    assert learn(model)
    model.refresh_from_db()
    assert model.calibration == pytest.approx(1.1)
    assert model.calibration_samples == 1


def test_what_came_from_the_cache_counts_once(model: ModelSpec) -> None:
    learn(model, reported={"input": 1_500, "cached": 1_400, "written": 90})
    model.refresh_from_db()
    assert model.calibration == pytest.approx(1.1)


@pytest.mark.parametrize(
    "facts",
    [
        {"completed": False},
        {"reported": {"input": 0}},
        {"reported": {"output": 5}},
        {"estimate": 0},
        {"estimate": calibration.SMALLEST_PROMPT - 1},
    ],
    ids=["not_completed", "no_input", "output_only", "no_estimate", "short"],
)
def test_some_calls_teach_nothing(facts: dict[str, Any], model: ModelSpec) -> None:
    assert not learn(model, **facts)
    model.refresh_from_db()
    assert (model.calibration, model.calibration_samples) == (1.0, 0)


@pytest.mark.parametrize(("billed", "bound"), [(100_000, 2.0), (1, 0.5)])
def test_absurd_bills_stay_within_bounds(billed: int, bound: float, model: ModelSpec) -> None:
    for _ in range(20):
        model.refresh_from_db()
        learn(model, factors=model.factors, reported={"input": billed})
    model.refresh_from_db()
    assert model.calibration == bound


def test_few_samples_change_an_estimate_by_at_most_15_percent(model: ModelSpec) -> None:
    for _ in range(5):
        assert learn(model, factors=model.factors, reported={"input": 100_000})
        model.refresh_from_db()
        assert model.calibration == model.calibration_by_script["latin"] == pytest.approx(1.15)
    assert model.calibration_samples_by_script == {"latin": 5}
    assert learn(model, factors=model.factors, reported={"input": 100_000})
    model.refresh_from_db()
    assert model.calibration == pytest.approx(1.3)


def test_who_computed_from_an_old_factor_gives_up_its_sample(model: ModelSpec) -> None:
    assert learn(model)
    assert not learn(model, reported={"input": 3_000})
    model.refresh_from_db()
    assert model.calibration == pytest.approx(1.1)
    assert model.calibration_samples == 1


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Work) -> Callable[..., Turn]:
    def asking(*script: Any) -> Turn:
        turn = start_turn(user=alice, chat=chat, text=LONG, now=now).turn
        work(turn, list(script))
        return turn

    return asking


def test_a_real_turn_teaches_its_model(model: ModelSpec, ask: Callable[..., Turn]) -> None:
    ask(TextDelta("Yes."), UsageReport(2_000, 3, 500, 0), Finished("stop"))

    receipt = Receipt.objects.get()
    model.refresh_from_db()
    expected = min(1.15, 1 + 0.2 * (2_000 / receipt.prompt_tokens - 1))
    assert model.calibration == pytest.approx(expected)
    assert model.calibration_samples == 1


def test_the_next_prompt_is_composed_with_it(model: ModelSpec, ask: Callable[..., Turn]) -> None:
    ask(TextDelta("Yes."), UsageReport(2_000, 3, 0, 0), Finished("stop"))
    model.refresh_from_db()
    ask(TextDelta("Again."), Finished("stop"))

    budget = Receipt.objects.order_by("-last_seq")[0].budget
    assert budget["calibration"] == model.calibration
    assert budget["limit"] == int(budget["prompt_limit"] / model.calibration)


def test_a_reply_that_broke_off_teaches_nothing(model: ModelSpec, ask: Callable[..., Turn]) -> None:
    turn = ask(TextDelta("Ye"), UsageReport(2_000, 3, 0, 0), ProviderError("provider_timeout"))
    assert turn.status == Turn.Status.FAILED
    model.refresh_from_db()
    assert model.calibration_samples == 0


# Provider tokens per estimated token, by script. The estimate is far too high for Chinese.
TRUTH = {"han": 0.6, "latin": 1.0}
SMALL = {"strategy": "sliding_window", "token_budget": 2_000, "reserve_tokens": 400}
CHINESE = "我们明天下午在奥斯陆开会，请把四十七号订单的文件带来，并告诉安娜价格。"
ENGLISH = "Tomorrow in Oslo we go through order 47; bring the letters, and tell Anna the price. "


class Counting(ScriptedProvider):
    """A provider that bills by script and enforces a token limit, as a server does."""

    def __init__(self) -> None:
        super().__init__([])
        self.billed: list[int] = []

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Any]:
        text = "".join(message.content for message in request.messages)
        found = scripts.compute_script_shares([text])
        ours = sum(count_wire_tokens(message, ApproximateCounter()) for message in request.messages)
        ours += count_tool_tokens(request.tools, ApproximateCounter())
        self.billed.append(int(ours * sum(TRUTH[name] * share for name, share in found.items())))
        yield TextDelta("好的。" if "han" in found else "Yes. ")
        yield UsageReport(self.billed[-1], 3, 0, 0)
        yield Finished("stop")


def test_after_a_chinese_chat_no_english_prompt_is_over_its_limit(
    alice: User, model: ModelSpec, now: datetime
) -> None:
    policy = ContextPolicy.objects.create(slug="small", name="Small")
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=1, values=SMALL, created_at=now
    )
    policy.save()
    PolicyAssignment.objects.filter(level="instance").delete()
    PolicyAssignment.objects.create(policy=policy, level="instance")
    provider = Counting()

    def talk(text: str, times: int) -> None:
        chat = lifecycle.create_chat(owner=alice, now=now)
        for number in range(times):
            turn = start_turn(user=alice, chat=chat, text=f"{number}: {text}", now=now).turn
            worker = InlineWorker(provider)
            # The tokenizer of the worker counts Chinese almost like this provider.
            worker.counter = ApproximateCounter()
            async_to_sync(worker.turn)(turn.pk)
            turn.refresh_from_db()
            assert turn.status == Turn.Status.COMPLETED, turn.error_code

    talk(CHINESE * 6, 12)
    model.refresh_from_db()
    assert model.calibration < 0.8
    assert model.calibration_by_script["han"] < 0.8
    chinese = len(provider.billed)
    talk(ENGLISH * 12, 12)
    english = provider.billed[chinese:]
    assert len(english) == 12
    assert max(english) <= 1_600
    # The prompts still use most of the limit, because the window moved.
    assert max(english) > 1_300
    model.refresh_from_db()
    assert model.calibration_by_script["latin"] == pytest.approx(1.0, abs=0.02)


def test_what_was_learned_by_script_is_forgotten_with_the_rest(model: ModelSpec) -> None:
    learn(model)
    model.refresh_from_db()
    assert model.calibration_by_script == {"latin": pytest.approx(1.1)}
    model_specs.save_model(model=model, actor="system", now=timezone.now(), forget_calibration=True)
    model.refresh_from_db()
    assert model.factors == Factors()


def test_the_newest_messages_tell_the_factor_where_no_prompt_is_composed(
    model: ModelSpec, ask: Callable[..., Turn], chat: Chat
) -> None:
    ask(TextDelta("Yes."), Finished("stop"))
    branch = Branch.objects.get(chat=chat)
    model.calibration = 0.7
    assert prompt_facts.get_calibration_factor(branch, model=model) == 0.7
    model.calibration_by_script = {"han": 0.6}
    assert prompt_facts.get_calibration_factor(branch, model=model) == 1.0
    model.calibration_by_script = {"han": 0.6, "latin": 0.9}
    assert prompt_facts.get_calibration_factor(branch, model=model) == 0.9
