"""Rate limits apply across all web processes that share a broker."""

import shutil
import time
from collections.abc import Iterator
from itertools import count

import pytest
from pytest_django import Settings
from redis.commands.core import Script

from chats.ground import rates, shared_rates
from chats.ground.rates import Buckets, RateLimited
from chats.ground.shared_rates import SharedBuckets
from tests.faults.harness import new_folder
from tests.faults.stores import Broker

pytestmark = pytest.mark.processes
NAMES = (f"user:{number}" for number in count())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker shared by several processes."""
    folder = new_folder()
    made = Broker(folder)
    made.start()
    yield made
    made.kill()
    shutil.rmtree(folder)


@pytest.fixture
def shared(broker: Broker, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> SharedBuckets:
    """Store the rates in the broker, with a limit of ten a minute."""
    settings.RATES_URL = broker.url
    settings.MESSAGES_PER_MINUTE = 10
    made = SharedBuckets()
    monkeypatch.setattr(rates, "SHARED", made)
    return made


def test_two_processes_have_one_bucket(shared: SharedBuckets) -> None:
    client, begun = next(NAMES), time.monotonic()
    one, other = Buckets("MESSAGES_PER_MINUTE"), Buckets("MESSAGES_PER_MINUTE")
    left = [(one, other)[n % 2].take(client, now=0.0).remaining for n in range(10)]
    assert left == sorted(left, reverse=True)
    with pytest.raises(RateLimited) as caught:
        one.take(client, now=0.0)
    assert caught.value.retry_after in range(1, 7)
    assert caught.value.rate.limit == 10
    # Other clients, and other kinds of requests, have a separate bucket.
    assert other.take(next(NAMES), now=0.0).remaining == 9
    assert Buckets("WARM_UPS_PER_MINUTE").take(client, now=0.0).remaining == 29
    # The bucket uses the clock of the broker. The clock of this process is fixed.
    time.sleep(max(0.0, 6.5 - (time.monotonic() - begun)))
    assert other.take(client, now=0.0).remaining == 0


def test_a_broker_that_hangs_or_is_gone_refuses_nobody_and_is_left_alone(
    shared: SharedBuckets, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, client = Buckets("MESSAGES_PER_MINUTE"), next(NAMES)
    working, usual = settings.RATES_URL, shared_rates.get_rate_script
    asked: list[str] = []

    def script(url: str) -> Script:
        asked.append(url)
        return usual(url)

    monkeypatch.setattr(shared_rates, "get_rate_script", script)
    settings.RATES_URL = "unix:///nowhere/broker.sock"
    assert [own.take(client, now=at).remaining for at in (1.0, 1.1, 10.9)] == [9, 8, 8]
    assert len(asked) == 1
    settings.RATES_URL = working
    assert shared.take(client, limit=10, now=11.5) == (True, 9.0)
    assert len(asked) == 2
