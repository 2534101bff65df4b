"""A model's calibration follows what its provider counts, one reply at a time."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats import calibrate
from chats.models import Chat, Receipt, Turn
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.turns.start import start
from contextpolicy.models import ModelSpec

Work = Callable[..., Any]
LONG = "word " * 400


@pytest.fixture
def model(demo_model: ModelSpec) -> ModelSpec:
    return demo_model


def learn(model: ModelSpec, **facts: Any) -> bool:
    given: dict[str, Any] = {
        "model_id": model.pk,
        "factor": 1.0,
        "estimate": 1_000,
        "reported": {"input": 1_500, "cached": 0},
        "completed": True,
    }
    return calibrate.learn(**{**given, **facts})


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
        {"estimate": calibrate.SMALLEST_PROMPT - 1},
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
        learn(model, factor=model.calibration, reported={"input": billed})
    model.refresh_from_db()
    assert model.calibration == bound


def test_who_computed_from_an_old_factor_gives_up_its_sample(model: ModelSpec) -> None:
    assert learn(model)
    assert not learn(model, reported={"input": 3_000})
    model.refresh_from_db()
    assert model.calibration == pytest.approx(1.1)
    assert model.calibration_samples == 1


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Work) -> Callable[..., Turn]:
    def asking(*script: Any) -> Turn:
        turn = start(user=alice, chat=chat, text=LONG, now=now).turn
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
