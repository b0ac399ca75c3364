"""The recorder's data path on both databases: exact with concurrent writers and failures."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import TopicPartition
from sqlalchemy import select, update

from catalog.models import (
    Application,
    AuthenticationTrace,
    CountedVisitEvent,
    DetectionTrace,
    Device,
    Geofence,
    Presence,
    Reception,
    StatisticDevice,
    Venue,
)
from engine.kafka.messages import format_instant
from engine.kafka.offsets import Position
from engine.kafka.workers import PartitionRestartError
from engine.process.health import ClockSkew
from engine.recorder.ledger import Ledger, LedgerTransaction
from engine.recorder.readers import DetectionReader
from engine.recorder.retention import Retention
from tests.recorder.scene import (
    AUTHENTICATIONS,
    DETECTIONS,
    NOTIFICATIONS,
    NOW,
    PRESENCE,
    Scene,
    record,
    recorder_of_partition,
    recorder_over,
)
from tests.servers.schema import on_sqlite

MINUTE = timedelta(minutes=1)


NOWHERE: list[tuple[str, dict[str, Any]]] = [
    ("geofence", {"geofence": {"transition": "exit"}}),
    ("geofence", {"geofence": {"id": 2**63 - 1}}),
    ("position", {"position": {"accuracy": 101}}),
    ("position", {"position": {"latitude": 48.8510}}),  # 111 m to the north
    ("position", {"api_key": "key-of-nobody"}),
    ("position", {"api_key": "key\0"}),
    ("qrcode", {"api_key": "key-of-nobody"}),
    ("qrcode", {"tag": {"value": "HTTPS://example.org"}}),
    ("qrcode", {"tag": {"value": "\0"}}),
    ("qrcode", {"tag": {"kind": "nfc"}}),
]


async def test_where_no_place_is_nothing_is_counted(scene: Scene):
    records = list(scene.signals(0)[:1])
    for kind, fields in NOWHERE:
        signal = scene.fields()[kind]
        for name, value in fields.items():
            signal[name] = value if isinstance(value, str) else signal[name] | value
        body = signal | {"device": {"udid": "phone"}, "detected_at": int(NOW.timestamp()) * 1000}
        records.append(record(DETECTIONS, len(records), body))
    records.append(record(DETECTIONS, len(records), b"{"))
    await scene.recorder(DETECTIONS).handle(records)
    assert await scene.counters() == (1, 0)
    assert await scene.count(DetectionTrace) == 1
    assert scene.letters.reasons == []  # those are the trigger's


async def test_without_traces_detections_are_counted(scene: Scene):
    await scene.recorder(DETECTIONS, trace="none").handle(list(scene.signals(0)[:1]))
    assert await scene.counters() == (1, 0)
    assert await scene.count(DetectionTrace) == 0


EDITS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [  # of what, to what, and back
    (Geofence, {"radius": 1, "longitude": 2.351}, {"radius": 100, "longitude": 2.35}),
    *((each, {"active": False}, {"active": True}) for each in (Geofence, Venue, Application)),
    (Application, {"expire_on": NOW}, {"expire_on": None}),
]


async def test_an_edit_counts_for_the_next_position(scene: Scene):
    recorder, offsets = scene.recorder(DETECTIONS), count()
    await recorder.handle(scene.signals(next(offsets))[2:3])
    for expected, (model, *edits) in enumerate(EDITS, 1):
        for back, edit in enumerate(edits):
            async with scene.database.engine.begin() as connection:
                await connection.execute(update(model).values(edit))
            await recorder.handle(scene.signals(next(offsets))[2:3])
            assert await scene.count(DetectionTrace) == expected + back, (model, edit)


@pytest.mark.parametrize("offset", [1, 5])
async def test_with_another_offset_in_sql_the_partition_begins_again(scene: Scene, offset: int):
    """Another recorder has written, or SQL was restored."""
    await scene.recorder(DETECTIONS).handle(scene.detections(range(offset)))
    shared = recorder_over(scene.ledger, scene.metrics)
    stale = recorder_of_partition(shared, TopicPartition(DETECTIONS, 0), Position(3))
    with pytest.raises(PartitionRestartError):
        await stale.handle(scene.detections(range(3, 6)))
    assert await scene.counters() == (offset, 0)


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


async def test_records_of_a_company_deleted_before_the_write_are_dead_letters(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    deleted_company, good = scene.other, scene.notification(1, str(uuid4()))
    async with scene.database.write() as session, session.begin():
        await session.delete(await session.merge(deleted_company))
    existing, seen = LedgerTransaction.existing_companies, []

    async def late(transaction: LedgerTransaction, ids: Collection[int]) -> set[int]:
        """The company is seen once more."""
        seen.append(ids)
        return set(ids) if len(seen) == 1 else await existing(transaction, ids)

    monkeypatch.setattr(LedgerTransaction, "existing_companies", late)
    stranger = scene.notification(0, str(uuid4()), company={"id": deleted_company.id})
    await scene.recorder(NOTIFICATIONS).handle([stranger, good])
    assert await scene.counters() == (0, 1)
    assert scene.letters.reasons == [b"unknown_company"]


ZONES = ("near", "near", "near", "far", "immediate", "unknown")


async def test_trace_changes_over_failures_and_new_owners(scene: Scene):
    """The rows are those of the rule, however batches are cut and whatever fails."""
    dice = random.Random(1)
    expected, records = list[tuple[str, datetime]](), []
    at = NOW
    for offset in range(200):
        zone = dice.choice(ZONES)
        at += timedelta(seconds=dice.choice((-5, 1, 1, 10, 55, 61)))
        if not expected or zone != expected[-1][0] or at - expected[-1][1] >= MINUTE:
            expected.append((zone, at))
        records += scene.detections(
            range(offset, offset + 1), proximity=zone, detected_at=int(at.timestamp()) * 1000
        )
    begin = 0
    while begin < len(records):
        end = begin + dice.randint(1, 30)
        failures = [dice.choice(("", "", "", "", "before", "after")) for _ in range(3)]
        ledger: Any = FailingLedger(scene.ledger, failures)
        owner = scene.recorder(DETECTIONS, trace="changes", ledger=ledger)
        await owner.handle(records[begin:end])
        if dice.random() < 0.3:  # one of old has not noticed
            await scene.recorder(DETECTIONS, trace="changes").handle(records[begin:end])
        begin = end
    async with scene.database.read() as session:
        rows = list(await session.scalars(select(DetectionTrace).order_by(DetectionTrace.id)))
    assert [(row.status, row.create_on) for row in rows] == expected
    assert await scene.counters() == (200, 0)


async def test_a_batch_that_is_too_slow_is_halved(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    batches: list[int] = []
    count = DetectionReader.count

    async def slow_count(reader: Any, transaction: Any, batch: Any) -> Any:
        if len(batch) > 10:
            raise TimeoutError
        batches.append(len(batch))
        return await count(reader, transaction, batch)

    monkeypatch.setattr(DetectionReader, "count", slow_count)
    await scene.recorder(DETECTIONS).handle(scene.detections(range(37)))
    assert batches == [10, 9, 9, 9]
    assert await scene.counters() == (37, 0)


async def test_recent_detections_are_reported_once_committed(scene: Scene):
    """Detections of the last minutes, by their own times, without test devices."""
    published: list[Any] = []
    recorder = scene.recorder(DETECTIONS, on_recent=published.append)
    now = datetime.now(UTC).timestamp()
    instants = [now, now, now - 120, now - 3600, now + 3600]
    batch = scene.detections(
        range(5, 6), detected_at=int(now * 1000), device={"udid": "of-the-team"}
    )
    for offset, at in reversed(list(enumerate(instants))):
        batch = scene.detections(range(offset, offset + 1), detected_at=int(at * 1000)) + batch
    await recorder.handle(batch)
    # A second recorder that reads the same records writes none, and counts none.
    await scene.recorder(DETECTIONS, on_recent=published.append).handle(batch)
    (counts,) = published
    here = (scene.venue.id, scene.beacon.id)
    assert counts == Counter((*here, int(at // 60)) for at in instants[:3])


YEARS = [f"{year:04}-06-01T10:00:00+0000" for year in range(1, 10_000, 40)]


async def test_absurd_dates_count_for_the_device_and_nowhere_else(scene: Scene):
    """One phone caused a row of statistics and a permanent trace for each such day."""
    instants = [*YEARS, format_instant(NOW.timestamp())]
    records = [
        scene.detections(range(n, n + 1), detected_at=at)[0] for n, at in enumerate(instants)
    ]
    await scene.recorder(DETECTIONS, trace="changes").handle(records)
    sent = [scene.notification(n, str(uuid4()), detected_at=at) for n, at in enumerate(YEARS)]
    await scene.recorder(NOTIFICATIONS).handle(sent)
    device = {"api_key": "key-1", "device": {"udid": "phone"}}
    signed_in = [
        record(AUTHENTICATIONS, n, device | {"authenticated_at": at}) for n, at in enumerate(YEARS)
    ]
    await scene.recorder(AUTHENTICATIONS).handle(signed_in)
    entered = [scene.presence(n, str(uuid4()), entered_at=at) for n, at in enumerate(instants)]
    await scene.recorder(PRESENCE).handle(entered)
    assert await scene.visits() == {("venue", 0): (1, 0, 0)}
    assert await scene.counters() == (len(YEARS) + 1, len(YEARS))
    assert await scene.statistics() == {"venue": (1, 1, 0), "beacon": (1, 1, 0)}
    assert await scene.count(StatisticDevice) == 2
    assert await scene.count(DetectionTrace) == await scene.count(Presence) == 1
    assert await scene.count(AuthenticationTrace) == 0
    assert await scene.count(Reception) == len(YEARS)
    assert scene.letters.reasons == []


@pytest.mark.parametrize("days", [-40, 40])
async def test_a_repeat_counts_once_whatever_its_date(scene: Scene, days: int):
    """Retention runs between the two."""
    number, dated = str(uuid4()), format_instant((NOW + timedelta(days=days)).timestamp())
    clocks = ClockSkew({}, scene.metrics.clock_skew)
    retention = Retention(ledger=scene.ledger, days=30, max_age=600.0, clocks=clocks)
    await scene.recorder(NOTIFICATIONS).handle([scene.notification(0, number, detected_at=dated)])
    await retention.run_once()
    await scene.recorder(NOTIFICATIONS).handle([scene.notification(1, number, detected_at=dated)])
    assert await scene.counters() == (0, 1)
    async with scene.database.write.begin() as session:
        long_ago = datetime.now(UTC) - timedelta(days=32)
        await session.execute(update(Reception).values(recorded_on=long_ago))
    await retention.run_once()
    assert await scene.count(Reception) == 0


@on_sqlite
@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "left"},
        {"type": "exit"},
        {"place": {"kind": "nfc", "id": 1, "name": ""}},
        {"device": {"udid": "a\0b"}},
        {"entered_at": "yesterday"},
        {"id": "7"},
        {"venue": {"id": 2**63, "name": ""}},
        {"type": "exit", "duration_seconds": -1},
    ],
)
async def test_what_is_no_event_of_a_visit_is_a_dead_letter(
    scene: Scene, wrong: dict[str, Any]
) -> None:
    bad = scene.presence(0, str(uuid4()), **wrong)
    await scene.recorder(PRESENCE).handle([bad, scene.presence(1, str(uuid4()))])
    assert len(scene.letters.reasons) == 1
    assert await scene.visits() == {("venue", 0): (1, 0, 0)}
    # No person is stored.
    assert await scene.count(Device) == 1
    columns = {column.name for column in CountedVisitEvent.__table__.columns}
    assert columns == {"id", "company_id", "at", "recorded_on"}
