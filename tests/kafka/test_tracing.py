"""A trace goes on: from a record's headers to the message, the call and its notification."""

import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from connectors.request import build_request
from engine.connector.calls import build_call
from engine.kafka.tracing import Tracer, open_tracer, trace_headers
from engine.process.errors import SettingsError
from engine.process.settings import Settings
from tests.connectors.calls import ENDPOINT
from tests.connectors.test_calls import CONTENT, received
from tests.kafka.records import record
from tests.trigger.samples import NOW

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01".encode()
UNSAMPLED = f"00-{TRACE}-{SPAN}-00".encode()
STATE = ("tracestate", b"vendor=1")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", SAMPLED.upper())],
        [("traceparent", b"ff" + SAMPLED[2:])],
        [("traceparent", f"00-{'0' * 32}-{SPAN}-01".encode())],
        [STATE],
        [*[("x", b"")] * 64, ("traceparent", SAMPLED)],
    ],
)
def test_an_invalid_trace_context_is_not_passed_on(headers: Any) -> None:
    assert trace_headers(headers) == []


def test_a_call_and_its_notification_carry_it() -> None:
    one = received()
    one.span = Tracer().begin("", record(b"", headers=[("traceparent", SAMPLED), STATE]), {})
    one.result = CONTENT
    call = build_call(one, ENDPOINT, 300.0)
    sent = dict(build_request(call, agent="a", now=NOW).headers)
    assert sent["traceparent"] == SAMPLED.decode()
    assert "tracestate" not in sent  # it may say more than a random number
    assert one.notification().headers[2:] == [("traceparent", SAMPLED), STATE]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracer(provider.get_tracer("test"))


def test_a_sampled_context_gets_a_span_whose_context_is_sent_on(
    exporter: InMemorySpanExporter, tracer: Tracer
) -> None:
    span = tracer.begin(
        "work", record(b"", headers=[("traceparent", SAMPLED), STATE]), {"company": 9}
    )
    passed = dict(span.headers)
    span.end("published")
    (made,) = exporter.get_finished_spans()
    assert made.parent is not None
    assert made.context is not None
    assert (f"{made.context.trace_id:032x}", f"{made.parent.span_id:016x}") == (TRACE, SPAN)
    assert (
        tracer.begin("work", record(b"", headers=[("traceparent", UNSAMPLED)]), {}).headers[0][1]
        == UNSAMPLED
    )
    assert passed == {
        "traceparent": f"00-{TRACE}-{made.context.span_id:016x}-01".encode(),
        "tracestate": STATE[1],
    }
    attributes = {k: v for k, v in (made.attributes or {}).items() if k.startswith("proximity.")}
    assert attributes == {"proximity.company": 9, "proximity.outcome": "published"}


async def test_without_an_endpoint_nothing_of_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.setitem(sys.modules, name, None)
    async with open_tracer(Settings()) as opened:
        assert opened.begin("work", record(b"", headers=[("traceparent", SAMPLED)]), {}).headers
    with pytest.raises(SettingsError, match=r"OTEL_ENDPOINT.*pip install"):
        async with open_tracer(Settings(otel_endpoint="http://127.0.0.1:1")):
            pass
