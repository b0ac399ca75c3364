"""Every query of every dashboard has data in a real Prometheus, during a run of the product.

All roles in two workers on one port, the interface, a customer's service, records that cannot be
read. With PROXIMITY_TEST_FULL=1.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import httpx
import pytest

from deploy.grafana.__main__ import DASHBOARDS
from deploy.grafana.shared import INTERVAL
from tests.acceptance.api.process import ApiProcess
from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade.scene import CATALOG, SECRET_KEY, SERVICE_PORT, Devices, reply
from tests.servers.http_service import hanging_up, serving
from tests.servers.missing import skipping
from tests.servers.process import started
from tests.servers.prometheus import PrometheusServer
from tests.servers.waiting import eventually
from tests.unit.deploy.known_metrics import RULES

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="a minute"),
    pytest.mark.timeout(300),
]
# Only faults of servers and of retention have these, which tests/acceptance/test_alerts.py makes.
NOT_HERE = ("skipped", "ALERTS")
EXEMPLARS = {
    "proximity_detection_to_notification_seconds_bucket": frozenset(["notification"]),
    "proximity_connector_call_seconds_bucket": frozenset(["notification", "company"]),
}


async def test_every_query_has_an_answer(
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
) -> None:
    rig.environment |= {
        "REDIS_URL": redis_url,
        "DATABASE_URL": sqlite_url,
        "SECRET_KEY": SECRET_KEY,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    await topics.create()
    for words in (("migrate",), ("catalog", "load", str(CATALOG))):
        command = rig.start(*words)
        assert await command.ended() == 0, command.output
    engine = rig.start("run", "--workers", "2")
    interface = await ApiProcess(rig).until_ready()
    await engine.until_ready()
    targets = [f"127.0.0.1:{port}" for port in (engine.port, interface.command.port)]

    def make(directory: Path, port: int) -> PrometheusServer:
        return PrometheusServer(directory, port, targets=targets, rules=RULES, faster=12)

    devices = Devices(kafka_bootstrap, topic_prefix)
    with skipping("Prometheus", instead="PATH"), started(make) as prometheus:
        async with _traffic(devices, interface.url):
            # (Which of them have none, is for the line below to say.)
            with suppress(AssertionError):
                await eventually(lambda: not unanswered(prometheus), deadline=120)
            assert unanswered(prometheus) == set()
            for name, labels in EXEMPLARS.items():
                assert {frozenset(each) for each in prometheus.exemplars(name)} == {labels}
    await engine.stop()
    await interface.command.stop()


@asynccontextmanager
async def _traffic(devices: Devices, interface: str) -> AsyncIterator[None]:
    """Constant load: new devices, some failing calls, and requests to the interface."""
    async with serving(reply(), port=SERVICE_PORT) as service, httpx.AsyncClient() as client:
        enough = asyncio.Event()

        async def proceed() -> None:
            for number in count():
                if enough.is_set():
                    return
                service.answer = hanging_up if number % 4 == 0 else reply()
                await devices.detect(*(f"device {number} {n}" for n in range(10)))
                await devices.open_application(f"device {number} 0")
                await devices.send_junk(f"junk {number}")
                await client.get(f"{interface}/v2/profile")
                await client.get(f"{interface}/openapi.json")
                await asyncio.sleep(0.2)  # the pace of the traffic

        task = asyncio.create_task(proceed())
        try:
            yield
        finally:
            enough.set()  # (A producer that is cancelled while it starts leaves its connection.)
            await task


def unanswered(prometheus: PrometheusServer) -> set[str]:
    """The queries without an answer. Raises OSError for one that cannot be evaluated."""
    queries = {query.expression for each in DASHBOARDS for query in each.queries()}
    return {
        query
        for query in queries
        if not prometheus.query(query.replace(INTERVAL, "20s"))
        and not any(word in query for word in NOT_HERE)
    }
