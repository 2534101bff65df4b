"""Error reports have types and places, never values; missing packages are named."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from pytest_django import Settings
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from chats.ground import tracing
from chats.ground.request_ids import REQUEST
from project import telemetry
from project.env import Misconfigured

CANARY = "canary-of-a-row"


class Recorder(Transport):
    """Keeps each report instead of sending it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        """Keep an envelope."""
        self.sent.append(envelope)


@pytest.fixture
def recorder(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Sentry, set up as in production, that sends nothing."""
    made = Recorder()
    usual = sentry_sdk.init
    monkeypatch.setattr(sentry_sdk, "init", lambda **given: usual(transport=made, **given))
    settings.SENTRY_DSN = "https://key@sentry.example.org/1"
    telemetry.set_up_telemetry()
    yield made
    usual()


def test_a_report_has_the_place_and_no_value(recorder: Recorder) -> None:
    REQUEST.set("r-17")
    secret = CANARY
    logger = logging.getLogger("chats.example")
    logger.info("before %s", CANARY)
    try:
        raise ValueError(f"duplicate key: {secret}")
    except ValueError:
        logger.exception("turn %s failed", secret, extra={"row": secret})
    (envelope,) = recorder.sent
    assert CANARY.encode() not in envelope.serialize()
    event: Any = envelope.get_event()
    (error,) = event["exception"]["values"]
    assert error["type"] == "ValueError"
    assert (
        error["stacktrace"]["frames"][-1]["function"] == "test_a_report_has_the_place_and_no_value"
    )
    assert event["logentry"] == {"message": "turn %s failed"}
    assert event["tags"]["request_id"] == "r-17"


def test_missing_packages_are_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(telemetry, "import_module", absent)
    telemetry.set_up_telemetry()
    settings.SENTRY_DSN = "https://key@sentry.example.org/1"
    with pytest.raises(Misconfigured, match="make telemetry"):
        telemetry.set_up_telemetry()


def test_without_tracing_a_span_is_nothing() -> None:
    with tracing.trace_span("task", carrier={"traceparent": "00-1-1-01"}) as span:
        assert span is None
    assert tracing.build_carrier() == {}
