"""With compiled modules and without them the recorder writes the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from sqlalchemy import select, text

from catalog.models import DetectionTrace, Device, Statistic, StatisticDevice
from engine.kafka.partition_worker import Records
from engine.kafka.publisher import Publisher
from engine.process.metrics import Metrics
from engine.process.settings_sources import load_settings
from engine.recorder.pipeline import PartitionRecorder
from engine.recorder.rows import BEACON, VENUE
from engine.wiring.recorder import recorder_of
from engine.wiring.role import ProcessParts
from engine.wiring.stores import open_stores
from tests.contract.ledgers import Scene, open_scene
from tests.integration.recorder.readers import DETECTIONS
from tests.integration.recorder.test_recorder import NOW, Rig, record
from tests.servers.compiled import compiled

LATE = int(NOW.timestamp() * 1000) - 86_400_000


@asynccontextmanager
async def wired(scene: Scene, redis_url: str, *, in_columns: bool) -> AsyncIterator[Any]:
    """A partition's recorder by the production wiring, and its metrics."""
    if in_columns:
        compiled("engine.recorder.detection_batch")
    url = scene.database.engine.url.render_as_string(hide_password=False)
    settings = load_settings(redis_url=redis_url, database_url=url, compiled=in_columns)
    publisher, metrics = Publisher.from_settings(settings), Metrics()
    try:
        async with open_stores(settings) as stores:
            parts = ProcessParts(
                settings=settings, stores=stores, publisher=publisher, metrics=metrics
            )
            recorder = recorder_of(parts, scene.ledger, on_recent=lambda _counts: None)
            (topic,) = [name for name in recorder.readers if name.endswith("detections")]
            name = type(recorder.readers[topic]).__name__
            assert name == ("ColumnDetectionReader" if in_columns else "DetectionReader")
            yield recorder.for_partition(TopicPartition(topic, 0)), metrics
    finally:
        await publisher.close()


def mixed_records(rig: Rig) -> list[Records]:
    """Batches with usual, unusual and malformed records, of new and known devices."""
    facts = {"udid": "phone", "name": "android", "version": "14", "token_push": "t-1"}
    first = [
        *rig.detections(range(3)),
        *rig.detections(range(3, 5), device=facts, ip="10.0.0.1"),
        record(DETECTIONS, 5, b"{"),
        *rig.detections(range(6, 8), device={"udid": "手机", "name": "é"}, ip="é"),
        *rig.detections(range(8, 9), minor=65535),
        *rig.detections(range(9, 11), device={"udid": "of-the-team"}),
    ]
    second = [
        *rig.detections(range(11, 13), device={"udid": "new", "model": "m", "id_connector": 5}),
        *rig.detections(range(13, 14), device=facts | {"name": "\N{BEL}", "version": None}),
        *rig.detections(range(14, 15), device={"udid": "new"}, detected_at=LATE),
        *rig.detections(range(15, 17), device={"udid": "手机"}, proximity="far"),
    ]
    return [first, second]


@pytest.mark.parametrize("in_columns", [True, False], ids=["compiled", "interpreted"])
async def test_the_same_rows(
    database_url: str, embedded_redis_url: str, *, in_columns: bool
) -> None:
    async with (
        open_scene(database_url) as scene,
        wired(scene, embedded_redis_url, in_columns=in_columns) as (recorder, metrics),
    ):
        partition: PartitionRecorder = recorder
        for batch in mixed_records(Rig(scene)):
            await partition.handle(batch)
        at = NOW.replace(microsecond=0).timestamp()
        assert await traces(scene) == [
            *(("phone", "near", at + n, None) for n in range(3)),
            *(("phone", "near", at + n, "10.0.0.1") for n in (3, 4)),
            *(("手机", "near", at + n, "é") for n in (6, 7)),
            *(("of-the-team", "near", at + n, None) for n in (9, 10)),
            *(("new", "near", at + n, None) for n in (11, 12)),
            ("phone", "near", at + 13, None),
            ("new", "near", LATE / 1000, None),
            *(("手机", "far", at + n, None) for n in (15, 16)),
        ]
        assert await devices(scene) == {
            "phone": (6, "\a", "14", None, "t-1", None),
            "手机": (4, "é", None, None, None, None),
            "of-the-team": (2, None, None, None, None, None),
            "new": (3, None, None, "m", None, 5),
        }
        assert await figures(scene) == {VENUE: (12, 3), BEACON: (12, 3)}
        assert await counted_devices(scene) == 6
        assert value(metrics, "recorder_skipped_total", reason="malformed_detection") == 1
        assert value(metrics, "recorder_rows_total", table="device") == 3 + 3
        assert value(metrics, "recorder_rows_total", table="detection_trace") == 15


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"proximity_{name}", labels)


async def traces(scene: Scene) -> list[tuple[str, str, float, str | None]]:
    columns = (Device.udid, DetectionTrace.status, DetectionTrace.create_on, DetectionTrace.ip)
    joined = select(*columns).join(Device, Device.id == DetectionTrace.device_id)
    async with scene.database.read() as session:
        rows = (await session.execute(joined.order_by(DetectionTrace.id))).all()
    return [(udid, status, at.timestamp(), ip) for udid, status, at, ip in rows]


async def devices(scene: Scene) -> dict[str, tuple[Any, ...]]:
    async with scene.database.read() as session:
        found = await session.scalars(select(Device))
        return {
            d.udid: (d.nb_beacon, d.name, d.version, d.model, d.token_push, d.id_connector)
            for d in found
        }


async def figures(scene: Scene) -> dict[str, tuple[int, int]]:
    async with scene.database.read() as session:
        return {s.kind: (s.detections, s.devices) for s in await session.scalars(select(Statistic))}


async def counted_devices(scene: Scene) -> int:
    async with scene.database.read() as session:
        return len((await session.scalars(select(StatisticDevice))).all())


async def test_a_new_device_that_has_figures_already(postgres_url: str) -> None:
    """As after a restore that lost devices: it is counted there no second time, and all goes on."""
    async with open_scene(postgres_url) as scene:
        rig = Rig(scene, in_columns=True)
        async with scene.database.write() as session, session.begin():
            last = await session.scalar(select(Device.id).order_by(Device.id.desc()))
            assert last is not None
            await session.execute(
                text(
                    "INSERT INTO statistic_device (day, kind, ref, device_id) "
                    "SELECT :day, 'beacon', :ref, :last + n FROM generate_series(1, 50) AS n"
                ),
                {"day": NOW.date(), "ref": scene.beacon.id, "last": last},
            )
        recorder = rig.recorder(DETECTIONS)
        await recorder.handle(rig.detections(range(3)))
        await recorder.handle(rig.detections(range(3, 5), device={"udid": "another"}))
        assert await rig.counters() == (3, 0)
        assert await rig.statistics() == {"venue": (5, 2, 0), "beacon": (5, 0, 0)}
        assert value(rig.metrics, "sql_errors_total") == 1


async def test_new_devices_are_counted_once(postgres_url: str) -> None:
    async with open_scene(postgres_url) as scene:
        rig = Rig(scene, in_columns=True)
        for _ in range(2):
            recorder = rig.recorder(DETECTIONS)
            await recorder.handle(rig.detections(range(3)))
        await rig.recorder(DETECTIONS).handle(rig.detections(range(3, 6)))
        assert await rig.statistics() == {"venue": (6, 1, 0), "beacon": (6, 1, 0)}
        assert await counted_devices(scene) == 2
        assert value(rig.metrics, "sql_errors_total") == 0
