"""Sets up OpenTelemetry and Sentry, if configured. Neither receives message text."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django.conf import settings

from chats.ground import tracing
from chats.ground.request_ids import REQUEST
from project.env import Misconfigured

MISSING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT or SENTRY_DSN is set, but the packages are not installed. Run"
    " “make telemetry”, or build the image with TELEMETRY=1."
)
# The parts of an error report that are sent unchanged.
SENT = ("event_id", "timestamp", "level", "platform", "release", "environment", "server_name")
OF_FRAME = ("filename", "abs_path", "function", "module", "lineno", "in_app")


def set_up_telemetry() -> None:
    """Set up the services that the settings configure.

    Raises Misconfigured if their packages are not installed.
    """
    try:
        if settings.OTEL_EXPORTER_OTLP_ENDPOINT:
            tracing.use_tracing(OpenTelemetry(build_provider()))
        if settings.SENTRY_DSN:
            set_up_sentry()
    except ImportError as error:
        raise Misconfigured(MISSING) from error


def build_provider() -> Any:
    """Return a provider that sends spans to `OTEL_EXPORTER_OTLP_ENDPOINT` in the background.

    The packages read other variables that begin with OTEL_ themselves.
    """
    resources = import_module("opentelemetry.sdk.resources")
    trace = import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    http = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    facts = {"service.name": "palimpsest", "service.version": settings.VERSION}
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES of the environment win.
    resource = resources.Resource(facts).merge(resources.OTELResourceDetector().detect())
    provider = trace.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(http.OTLPSpanExporter()))
    return provider


class OpenTelemetry:
    """Implements `chats.ground.tracing.Tracing` with OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        self.tracer = provider.get_tracer("palimpsest")
        self.propagate = import_module("opentelemetry.propagate")

    @contextmanager
    def start(
        self, name: str, attributes: Mapping[str, str | int], carrier: Mapping[str, str] | None
    ) -> Iterator[Any]:
        """Run the block in a span. Only the type of an error is recorded in it."""
        parent = self.propagate.extract(carrier) if carrier else None
        options = {"record_exception": False, "set_status_on_exception": False}
        facts = {**attributes, "request.id": REQUEST.get()}
        with self.tracer.start_as_current_span(
            name, context=parent, attributes=facts, **options
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def inject(self) -> dict[str, str]:
        """Return the headers that identify the current span."""
        carrier: dict[str, str] = {}
        self.propagate.inject(carrier)
        return carrier


def set_up_sentry() -> None:
    """Send errors that are logged, with their stack and without values."""
    sentry = import_module("sentry_sdk")
    logs = import_module("sentry_sdk.integrations.logging")
    sentry.init(
        dsn=settings.SENTRY_DSN,
        release=settings.VERSION,
        default_integrations=False,
        integrations=[logs.LoggingIntegration(level=None)],
        include_local_variables=False,
        include_source_context=False,
        max_breadcrumbs=0,
        before_send=strip_event,
    )


def strip_event(event: dict[str, Any], _hint: object) -> dict[str, Any]:
    """Return an error report without any value: types, stack, and the template of the log line."""
    kept = {name: event[name] for name in SENT if name in event}
    kept["tags"] = {"request_id": REQUEST.get(), "logger": event.get("logger", "")}
    with contextlib.suppress(KeyError, TypeError):
        kept["logentry"] = {"message": event["logentry"]["message"]}
    errors = (event.get("exception") or {}).get("values") or []
    kept["exception"] = {"values": [strip_error(error) for error in errors]}
    return kept


def strip_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error from a report without its message, which may quote a row."""
    frames = (error.get("stacktrace") or {}).get("frames") or []
    stack = [{name: frame[name] for name in OF_FRAME if name in frame} for frame in frames]
    return {
        "type": error.get("type"),
        "module": error.get("module"),
        "stacktrace": {"frames": stack},
    }
