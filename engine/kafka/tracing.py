"""Spans of OpenTelemetry, if OTEL_ENDPOINT is set and the extra `otel` is installed.

Only a record that has a sampled trace context gets a span, so the sender of detections decides how
many spans there are. Without an endpoint OpenTelemetry is not imported, and trace contexts are
passed on unchanged (trace_context.py).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from engine.kafka.batch_sender import Headers
from engine.kafka.trace_context import trace_headers
from engine.process.errors import SettingsError
from engine.process.metrics import engine_version
from engine.process.settings import PREFIX, Settings

Attributes = Mapping[str, str | int]

_EXPORT_SECONDS = 3.0
_CLOSE_SECONDS = 4.0
_MISSING = (
    f"{PREFIX}OTEL_ENDPOINT: the package of OpenTelemetry is not installed; "
    "accepted: with it (pip install 'proximity-engine[otel]'), or no endpoint"
)


class Span(Protocol):
    """Work of this process in a trace. Messages that follow from the work carry `headers`."""

    @property
    def headers(self) -> Headers: ...
    def end(self, outcome: str) -> None: ...


class Tracer(Protocol):
    """Begins spans for records whose headers hold a trace context."""

    def begin(self, name: str, headers: Headers, attributes: Attributes) -> Span: ...


class PassedOn:
    """No span: the trace context, passed on unchanged. Implements Span."""

    __slots__ = ("headers",)

    def __init__(self, headers: Headers) -> None:
        self.headers = headers

    def end(self, outcome: str) -> None:
        """Do nothing, because there is no span."""


class PassingTracer:
    """Passes trace contexts on without spans. Implements Tracer."""

    def begin(self, name: str, headers: Headers, attributes: Attributes) -> Span:  # noqa: ARG002
        """The trace context, passed on unchanged."""
        return PassedOn(trace_headers(headers))


class OtelSpan:
    """A span of OpenTelemetry. Implements Span."""

    __slots__ = ("_span", "headers")

    def __init__(self, span: Any, headers: Headers) -> None:
        self._span = span
        self.headers = headers

    def end(self, outcome: str) -> None:
        """End the span now."""
        self._span.set_attribute("proximity.outcome", outcome)
        self._span.end()


class OtelTracer:
    """Makes spans in the traces of the senders of records. Implements Tracer.

    `tracer` is OpenTelemetry's, whose sampler follows the parent.
    """

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._kind = SpanKind.CONSUMER
        self._with_span = set_span_in_context
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, headers: Headers, attributes: Attributes) -> Span:
        """A span if the trace context is sampled, else the unchanged context."""
        passed = trace_headers(headers)
        if not passed:
            return PassedOn(passed)
        came = {name: value.decode() for name, value in passed}
        context = self._propagator.extract(came)
        span = self._tracer.start_span(
            name, context=context, kind=self._kind, attributes=dict(attributes)
        )
        if not span.is_recording():
            return PassedOn(passed)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._with_span(span, context))
        return OtelSpan(span, [(key, value.encode()) for key, value in carrier.items()])


@asynccontextmanager
async def open_tracer(settings: Settings) -> AsyncIterator[Tracer]:
    """The tracer that the settings choose. Sends the remaining spans at the end.

    Raises SettingsError.
    """
    if settings.otel_endpoint is None:
        yield PassingTracer()
        return
    try:
        provider = _provider(settings.otel_endpoint)
    except ImportError:
        raise SettingsError(_MISSING) from None
    try:
        yield OtelTracer(provider.get_tracer("proximity"))
    finally:
        # In a thread, which is abandoned after the deadline: an endpoint may hang.
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_SECONDS)


def _provider(endpoint: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

    resource = Resource.create({"service.name": "proximity", "service.version": engine_version()})
    # A record without a trace context gets no span: this product begins no traces.
    provider = TracerProvider(
        sampler=ParentBased(ALWAYS_OFF), resource=resource, shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
