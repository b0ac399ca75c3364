"""The recorder's data path on both databases: exact with concurrent writers and failures."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import uuid4

import orjson
import pytest
from aiokafka import ConsumerRecord, TopicPartition
from sqlalchemy import func, select

from catalog.models import (
    AuthenticationTrace,
    Base,
    DetectionTrace,
    Device,
    Reception,
    Statistic,
)
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import format_instant
from engine.process.metrics import Metrics
from engine.recorder.detections import Trace
from engine.recorder.errors import OffsetsError
from engine.recorder.ledger import Ledger, LedgerTransaction
from engine.recorder.local_days import DayRule
from engine.recorder.pipeline import PartitionRecorder, Recorder
from tests.contract.ledgers import Scene, next_offsets, open_scene
from tests.integration.recorder.readers import (
    AUTHENTICATIONS,
    DETECTIONS,
    NOTIFICATIONS,
    Letters,
    readers_over,
)

# Yesterday: records of a past that is too long ago for a recorder to be late count for no day.
NOW = datetime.combine(datetime.now(UTC).date() - timedelta(days=1), time(10, 30), UTC)
RULE = DayRule(max_age=300.0, retention=30 * 86_400.0)


class Rig:
    """Recorders over one ledger, and records of the scene's beacon. `in_columns`: detections are
    read by the compiled modules."""

    def __init__(self, scene: Scene, *, in_columns: bool = False) -> None:
        self.scene = scene
        self.in_columns = in_columns
        self.letters = Letters()
        self.metrics = Metrics()

    def recorder(
        self, topic: str, *, trace: Trace = "all", ledger: Ledger | None = None, **more: Any
    ) -> Any:
        """A new recorder, as in another process."""
        ledger = ledger or self.scene.ledger
        readers = readers_over(
            ledger, self.metrics, self.letters, RULE, trace=trace, in_columns=self.in_columns
        )
        recorder = Recorder(
            ledger=ledger, readers=readers, metrics=self.metrics, deadline=20.0, **more
        )
        return recorder.for_partition(TopicPartition(topic, 0))

    def detections(self, offsets: range, **fields: Any) -> Records:
        """Detections of one phone, second by second."""
        beacon = self.scene.beacon
        return [
            record(
                DETECTIONS,
                offset,
                {
                    "uuid": beacon.uuid,
                    "major": beacon.major,
                    "minor": beacon.minor,
                    "proximity": "near",
                    "device": {"udid": "phone"},
                    "detected_at": int(NOW.timestamp() + offset) * 1000,
                    **fields,
                },
            )
            for offset in offsets
        ]

    def notification(self, offset: int, number: str, **fields: Any) -> Any:
        """A notification with this id."""
        scene = self.scene
        return record(
            NOTIFICATIONS,
            offset,
            {
                "id": number,
                "campaign": {"id": scene.campaign.id, "name": "c", "hash": None},
                "company": {"id": scene.company.id},
                "venue": {"id": scene.venue.id, "name": "v"},
                "beacon": {"id": scene.beacon.id, "name": "b"},
                "device": {"udid": "phone"},
                "detected_at": format_instant(NOW.timestamp()),
                **fields,
            },
        )

    async def counters(self, udid: str = "phone") -> tuple[int, int]:
        """nb_beacon and nb_campaign."""
        async with self.scene.database.read() as session:
            chosen = (Device.udid == udid, Device.company_id == self.scene.company.id)
            device = await session.scalar(select(Device).where(*chosen))
        return (0, 0) if device is None else (device.nb_beacon, device.nb_campaign)

    async def count(self, model: type[Base]) -> int:
        """The number of rows of a table."""
        async with self.scene.database.read() as session:
            return await session.scalar(select(func.count()).select_from(model)) or 0

    async def statistics(self) -> dict[str, tuple[int, int, int]]:
        """Detections, devices and notifications by kind."""
        async with self.scene.database.read() as session:
            rows = await session.scalars(select(Statistic))
            return {r.kind: (r.detections, r.devices, r.notifications) for r in rows}


def record(topic: str, offset: int, value: Any) -> "ConsumerRecord[bytes, bytes]":
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return ConsumerRecord(
        topic=topic,
        partition=0,
        offset=offset,
        timestamp=int(NOW.timestamp() * 1000),
        timestamp_type=0,
        key=b"phone",
        value=raw,
        checksum=None,
        serialized_key_size=5,
        serialized_value_size=len(raw),
        headers=(),
    )


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
async def rig(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Rig]:
    async with open_scene(database_url) as scene:
        yield Rig(scene, in_columns=request.param)


async def test_detections_of_active_beacons_are_counted_and_traced(rig: Rig):
    unknown = rig.detections(range(2, 3), minor=65535)
    broken = [record(DETECTIONS, 3, b"{")]
    ours = rig.detections(range(2))
    tested = rig.detections(range(4, 5), device={"udid": "of-the-team"}, ip="10.0.0.1\0")
    await rig.recorder(DETECTIONS).handle([*ours, *unknown, *broken, *tested])
    assert await rig.counters() == (2, 0)
    assert await rig.counters("of-the-team") == (1, 0)
    assert await rig.count(DetectionTrace) == 3
    assert await rig.statistics() == {"venue": (2, 1, 0), "beacon": (2, 1, 0)}
    assert rig.letters.reasons == []  # those are the trigger's
    assert await next_offsets(rig.scene.ledger, DETECTIONS) == {0: 5}


async def test_a_transaction_has_a_bounded_number_of_records_of_a_topic(rig: Rig):
    """Records of gateways hold many detections each: few of them are a batch."""
    recorder = rig.recorder(DETECTIONS, largest_pieces={DETECTIONS: 3})
    await recorder.handle(rig.detections(range(10)))
    await recorder.handle(rig.detections(range(10, 12)))
    assert await rig.counters() == (12, 0)
    name = "proximity_recorder_transaction_seconds_count"
    assert rig.metrics.registry.get_sample_value(name) == 4 + 1


async def test_the_same_records_again_count_nothing(rig: Rig):
    records = rig.detections(range(10))
    for batch in (records[:6], records[:6], records[3:8], records):
        await rig.recorder(DETECTIONS).handle(batch)
    assert await rig.counters() == (10, 0)
    assert await rig.count(DetectionTrace) == 10


async def test_an_owner_of_old_cannot_write(rig: Rig):
    old, new = rig.recorder(DETECTIONS), rig.recorder(DETECTIONS)
    await old.handle(rig.detections(range(3)))
    await new.handle(rig.detections(range(3, 6)))
    await old.handle(rig.detections(range(3, 6)))  # it has them in flight and does not know
    await old.handle(rig.detections(range(6, 8)))
    await new.handle(rig.detections(range(6, 9)))
    assert await rig.counters() == (9, 0)
    assert await rig.count(DetectionTrace) == 9


async def test_offsets_that_went_back_are_reported(rig: Rig):
    recorder: PartitionRecorder = rig.recorder(DETECTIONS)
    await recorder.handle(rig.detections(range(3)))
    async with rig.scene.ledger.transaction() as transaction:
        assert await transaction.advance_offset(DETECTIONS, 0, 3, 1)
    with pytest.raises(OffsetsError, match=r"went back from 3 to 1"):
        await recorder.handle(rig.detections(range(3, 6)))


class FailingLedger:
    """The ledger on a connection that fails as configured, before or after the commit."""

    def __init__(self, ledger: Ledger, failures: list[str]) -> None:
        self._ledger = ledger
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LedgerTransaction]:
        failure = self._failures.pop(0) if self._failures else ""
        async with self._ledger.transaction() as transaction:
            yield transaction
            if failure == "before":
                raise ConnectionResetError
        if failure == "after":
            raise ConnectionResetError


@pytest.mark.parametrize("failures", [["before"], ["after"], ["before", "before", "after"]])
async def test_a_lost_answer_counts_once(rig: Rig, failures: list[str]):
    ledger: Any = FailingLedger(rig.scene.ledger, failures)
    recorder = rig.recorder(DETECTIONS, ledger=ledger)
    await recorder.handle(rig.detections(range(4)))
    await recorder.handle(rig.detections(range(4, 6)))
    assert await rig.counters() == (6, 0)
    assert await rig.count(DetectionTrace) == 6


async def test_notifications_count_once_by_their_id(rig: Rig):
    first, second = str(uuid4()), str(uuid4())
    recorder = rig.recorder(NOTIFICATIONS)
    await recorder.handle([rig.notification(0, first), rig.notification(1, first.upper())])
    await recorder.handle([rig.notification(2, first), rig.notification(3, second)])
    assert await rig.counters() == (0, 2)
    assert await rig.count(Reception) == 2
    assert await rig.statistics() == dict.fromkeys(("venue", "beacon", "campaign"), (0, 1, 2))


async def test_notifications_of_no_company_and_broken_ones_go_aside(rig: Rig):
    stranger = rig.notification(1, str(uuid4()), company={"id": 999})
    broken = [record(NOTIFICATIONS, 2, b"{"), rig.notification(3, "no-uuid")]
    good = rig.notification(4, str(uuid4()))
    await rig.recorder(NOTIFICATIONS).handle([stranger, *broken, good])
    assert await rig.counters() == (0, 1)
    assert sorted(rig.letters.reasons) == [b"invalid_field", b"malformed_json", b"unknown_company"]


async def test_records_of_a_company_deleted_before_the_write_are_dead_letters(rig: Rig):
    deleted_company, good = rig.scene.other, rig.notification(1, str(uuid4()))
    async with rig.scene.database.write() as session, session.begin():
        await session.delete(await session.merge(deleted_company))

    class Late(FailingLedger):
        """A ledger that still sees the company once."""

        seen = False

        async def existing_companies(self, ids: Collection[int]) -> set[int]:
            first, self.seen = not self.seen, True
            return set(ids) if first else await rig.scene.ledger.existing_companies(ids)

    late: Any = Late(rig.scene.ledger, [])
    recorder = rig.recorder(NOTIFICATIONS, ledger=late)
    await recorder.handle(
        [rig.notification(0, str(uuid4()), company={"id": deleted_company.id}), good]
    )
    assert await rig.counters() == (0, 1)
    assert rig.letters.reasons == [b"unknown_company"]


async def test_authentications_leave_a_trace(rig: Rig):
    device = {"udid": "phone", "name": "ios", "version": "18"}
    message = {"api_key": "key-1", "device": device, "ip": "10.0.0.2"}
    unknown = message | {"api_key": "key-2"}
    records = [record(AUTHENTICATIONS, n, value) for n, value in enumerate([message, unknown])]
    await rig.recorder(AUTHENTICATIONS).handle(records)
    assert await rig.count(AuthenticationTrace) == 1
    assert await rig.counters() == (0, 0)
    assert rig.letters.reasons == [b"unknown_application"]


@pytest.mark.parametrize(("trace", "expected"), [("all", 130), ("changes", 4), ("none", 0)])
async def test_the_trace_setting(rig: Rig, trace: Trace, expected: int):
    records = rig.detections(range(65)) + rig.detections(range(65, 130), proximity="far")
    for begin in range(0, 130, 26):  # each time by another process
        await rig.recorder(DETECTIONS, trace=trace).handle(records[begin : begin + 26])
    assert await rig.counters() == (130, 0)
    assert await rig.count(DetectionTrace) == expected
