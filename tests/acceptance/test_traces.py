"""One detection's trace through the whole product, to a collector. With PROXIMITY_TEST_FULL=1."""

import json
import os
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade.scene import (
    CATALOG,
    CONNECTOR,
    SECRET_KEY,
    SERVICE_PORT,
    WELCOME,
    detection,
    reply,
)
from tests.servers.http_service import HttpService, replying, serving
from tests.servers.waiting import eventually

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="half a minute"),
    pytest.mark.timeout(180),
]
DEADLINE = 60.0
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


async def test_a_trace_reaches_call_notification_and_collector(
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
) -> None:
    await topics.create()
    async with (
        serving(replying(200, b"", content_type="application/x-protobuf")) as collector,
        serving(reply(), port=SERVICE_PORT) as customer,
    ):
        rig.environment |= {
            "REDIS_URL": redis_url,
            "DATABASE_URL": sqlite_url,
            "SECRET_KEY": SECRET_KEY,
            "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
            "OTEL_ENDPOINT": collector.url(""),
        }
        for words in (("migrate",), ("catalog", "load", str(CATALOG))):
            command = rig.start(*words)
            assert await command.ended() == 0, command.output
        engine = rig.start("run")
        await engine.until_ready()
        async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as producer:
            for udid, flags in (("seen", "01"), ("unseen", "00")):
                await producer.send_and_wait(
                    f"{topic_prefix}detections",
                    json.dumps(detection(udid, 1)).encode(),
                    key=udid.encode(),
                    headers=[("traceparent", f"00-{TRACE}-{SPAN}-{flags}".encode())],
                )

        async def all_sent() -> bool:
            return await topics.count("notifications") == 4

        await eventually(all_sent, deadline=DEADLINE, what="both have both")
        await engine.stop()  # which sends the spans that wait
    spans = {span["id"]: span for span in _spans(collector)}
    assert sorted(span["name"] for span in spans.values()) == [
        "proximity.connector",
        "proximity.trigger",
        "proximity.trigger",
    ]
    assert {span["trace"] for span in spans.values()} == {TRACE}
    assert '"seen"' not in str(spans)
    sent = await _traceparents(topics)
    assert sent["unseen", WELCOME] == sent["unseen", CONNECTOR] == f"00-{TRACE}-{SPAN}-00"
    welcome, connector_span = (
        spans[sent["seen", name].split("-")[2]] for name in (WELCOME, CONNECTOR)
    )
    assert (welcome["name"], welcome["parent"]) == ("proximity.trigger", SPAN)
    assert connector_span["name"] == "proximity.connector"
    requested = spans[connector_span["parent"]]
    assert (requested["name"], requested["parent"]) == ("proximity.trigger", SPAN)
    received = {
        each.json["device"]["udid"]: each.headers["traceparent"] for each in customer.received
    }
    assert received == {"seen": sent["seen", CONNECTOR], "unseen": sent["unseen", CONNECTOR]}
    assert not any("tracestate" in each.headers for each in customer.received)


async def _traceparents(topics: TopicSet) -> dict[tuple[str, str], str]:
    """The traceparent of notifications, by device and campaign."""
    found = {}
    for record in await topics.read("notifications"):
        message = json.loads(record.value or b"")
        headers = {name: value.decode() for name, value in record.headers}
        key = message["device"]["udid"], message["campaign"]["name"]
        found[key] = headers["traceparent"]
    return found


def _spans(collector: HttpService) -> list[dict[str, Any]]:
    """The spans that the collector received."""
    requests = [ExportTraceServiceRequest.FromString(each.body) for each in collector.received]
    assert {each.path for each in collector.received} == {"/v1/traces"}
    return [
        {
            "name": span.name,
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "trace": span.trace_id.hex(),
            "attributes": str(span.attributes),
        }
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
