"""Spans of OpenTelemetry, if OTEL_ENDPOINT is set and the extra `otel` is installed.

Only a record that has a sampled trace context gets a span, so the sender of detections decides how
many spans there are. Without an endpoint OpenTelemetry is not imported, and trace contexts are
passed on unchanged.
"""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from aiokafka import ConsumerRecord

from engine import engine_version
from engine.kafka.producer import Headers
from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")
_MOST_HEADERS = 64  # examined, because a record may have a hundred thousand


def trace_headers(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """The trace context among a record's first headers; empty if there is no valid one."""
    first = islice(headers, _MOST_HEADERS)
    found = {name: value for name, value in first if name in (TRACEPARENT, TRACESTATE)}
    parent, state = found.get(TRACEPARENT), found.get(TRACESTATE)
    if not parent or not _PARENT.fullmatch(parent):
        return []
    passed = [(TRACEPARENT, parent)]
    if state and _STATE.fullmatch(state):
        passed.append((TRACESTATE, state))
    return passed


def traceparent_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """The traceparent in headers from `trace_headers` or from a span."""
    return next((value.decode() for name, value in headers if name == TRACEPARENT), None)


_EXPORT_SECONDS = 3.0
_CLOSE_SECONDS = 4.0
_MISSING = (
    f"{PREFIX}OTEL_ENDPOINT: the package of OpenTelemetry is not installed; "
    "accepted: with it (pip install 'proximity-engine[otel]'), or no endpoint"
)


class Span:
    """Work of this process in a trace. Messages that follow from the work carry `headers`.

    `span` is that of OpenTelemetry; without it the trace context is passed on unchanged.
    """

    __slots__ = ("_span", "headers")

    def __init__(self, headers: Headers, span: Any = None) -> None:
        self.headers = headers
        self._span = span

    def end(self, outcome: str) -> None:
        """End the span now. `outcome` says what has become of the work."""
        if self._span is not None:
            self._span.set_attribute("proximity.outcome", outcome)
            self._span.end()


class Tracer:
    """Makes spans in the traces of the senders of records.

    `tracer` is OpenTelemetry's, whose sampler follows the parent. Without it there are no spans.
    """

    def __init__(self, tracer: Any = None) -> None:
        self._tracer = tracer

    def begin(
        self, name: str, record: ConsumerRecord[bytes, bytes], ids: Mapping[str, str | int]
    ) -> Span:
        """The span of a record; without a sampled trace context that is passed on unchanged.

        `ids` are those of the catalog that its work is about, and no personal data.
        """
        passed = trace_headers(record.headers)
        if self._tracer is None or not passed:
            return Span(passed)
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator = TraceContextTextMapPropagator()
        context = propagator.extract({name: value.decode() for name, value in passed})
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
        } | {f"proximity.{each}": id_ for each, id_ in ids.items()}
        span = self._tracer.start_span(
            name, context=context, kind=SpanKind.CONSUMER, attributes=attributes
        )
        if not span.is_recording():
            return Span(passed)
        carrier: dict[str, str] = {}
        propagator.inject(carrier, set_span_in_context(span, context))
        return Span([(key, value.encode()) for key, value in carrier.items()], span)


@asynccontextmanager
async def open_tracer(settings: Settings) -> AsyncIterator[Tracer]:
    """The tracer that the settings choose. Sends the remaining spans at the end.

    Raises SettingsError.
    """
    if settings.otel_endpoint is None:
        yield Tracer()
        return
    try:
        provider = _provider(settings.otel_endpoint)
    except ImportError:
        raise SettingsError(_MISSING) from None
    try:
        yield Tracer(provider.get_tracer("proximity"))
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

    resource = Resource.create({"service.name": "proximity", "service.version": engine_version()})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_SECONDS
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
