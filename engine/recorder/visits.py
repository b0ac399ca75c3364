"""Reads `presence` and counts visits: how many begin on a day, how many end, and their lengths."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from prometheus_client import Counter as CounterMetric

from engine.kafka.dead_letters import DeadLetterLimit, DeadLetterPublisher
from engine.kafka.detections import Record, decode_records
from engine.kafka.messages import LONGEST_UDID, Timestamp, parse
from engine.kafka.workers import Records
from engine.recorder.days import DayRule, local_day
from engine.recorder.ledger import (
    Ledger,
    LedgerTransaction,
    VisitEventRow,
    VisitFigures,
    VisitKey,
)
from engine.recorder.readers import (
    Changes,
    Counted,
    Id,
    NewRows,
    RecordReader,
    Reference,
    StoredDevices,
    arrived_at_of,
)
from rules.visits import VisitEventType, VisitKind, length_class


class _Place(msgspec.Struct, frozen=True, gc=False):
    kind: VisitKind
    id: Id


class _Visitor(msgspec.Struct, frozen=True, gc=False):
    udid: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_UDID)]


class ReadPresence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a presence event that the recorder reads."""

    id: UUID
    type: VisitEventType
    place: _Place
    venue: Reference
    company: Reference
    device: _Visitor
    entered_at: Timestamp
    duration_seconds: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None

    def __post_init__(self) -> None:
        if self.type == "exit" and self.duration_seconds is None:
            raise ValueError("an exit has duration_seconds")


_decode = msgspec.json.Decoder(ReadPresence).decode


@dataclass(kw_only=True)
class PresenceReader(RecordReader):
    """Reads presence of all partitions, which share one `limit`.

    A visit counts for the day of its entry, also when it ends later. Devices are neither made nor
    changed.
    """

    ledger: Ledger
    dead_letters: DeadLetterPublisher
    limit: DeadLetterLimit
    skipped: CounterMetric
    rule: DayRule

    async def read(self, records: Records) -> list[Counted]:
        decoded, dead, _ = decode_records(records, _event_of, self.limit)
        await self.dead_letters.publish(dead)
        counting = [each for each in decoded if each.message.type != "dwell"]
        zones = await self.ledger.venue_time_zones({each.message.venue.id for each in counting})
        return [each._replace(place=zones.get(each.message.venue.id)) for each in counting]

    async def count(self, transaction: LedgerTransaction, batch: list[Counted]) -> list[Counted]:
        """Those that are new, each once. `place` becomes the time zone, and whether it is a test
        device."""
        by_id = {each.message.id: each for each in batch}
        known = await transaction.counted_visit_events(by_id)
        self.skipped.labels("repeated_presence").inc(len(batch) - len(by_id) + len(known))
        new = [each for id_, each in by_id.items() if id_ not in known]
        tests = await transaction.test_devices({each.device for each in new})
        return [each._replace(place=(each.place, each.device in tests)) for each in new]

    def changes(self, counted: list[Counted]) -> Changes:  # noqa: ARG002
        return {}

    def rows(self, counted: list[Counted], devices: StoredDevices, now: float) -> NewRows:  # noqa: ARG002
        """The figures leave out test devices, and entries that are too old or in the future."""
        rows = NewRows()
        for message, (company, _), at, arrived_at, (time_zone, is_test) in counted:
            if not self.rule.leaves_trace(at, arrived_at, now):
                continue
            entry = datetime.fromtimestamp(at, UTC)
            rows.visit_events.append(VisitEventRow(message.id, company, entry))
            if is_test:
                continue
            ended, seconds = message.type == "exit", message.duration_seconds or 0
            day, minutes = local_day(at, time_zone), length_class(seconds)
            key = VisitKey(day, message.place.kind, message.place.id, minutes)
            figures = rows.visits.setdefault(key, VisitFigures(message.venue.id))
            figures.begun += not ended
            figures.ended += ended
            figures.seconds += seconds * ended
        return rows


def _event_of(record: Record) -> Counted:
    message = _decode(record.value or b"")
    if "\0" in message.device.udid:
        raise ValueError("device.udid has a NUL character")
    device, at = (message.company.id, message.device.udid), parse(message.entered_at)
    return Counted(message, device, at, arrived_at_of(record), None)
