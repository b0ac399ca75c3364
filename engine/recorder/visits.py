"""Reads `presence` and counts visits: how many begin on a day, how many end, and their lengths."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from prometheus_client import Counter as CounterMetric

from engine.kafka.dead_letters import DeadLetterLimit, DeadLetterPublisher
from engine.kafka.detections import Record, decode_records
from engine.kafka.messages import PresenceEvent, check_device, parse_text
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
    NewRows,
    RecordReader,
    StoredDevices,
    arrived_at_of,
)
from rules.visits import length_class

_INT64 = 2**63
_decode = msgspec.json.Decoder(PresenceEvent).decode


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
        decoded, dead = decode_records(records, _event_of, self.limit)
        await self.dead_letters.publish(dead)
        counting = [each for each in decoded if each.message.type != "dwell"]
        zones = await self.ledger.venue_time_zones({each.message.venue.id for each in counting})
        return [each._replace(place=zones.get(each.message.venue.id)) for each in counting]

    async def count(self, transaction: LedgerTransaction, batch: list[Counted]) -> list[Counted]:
        """Those that are new, each once. `place` becomes the time zone, and whether it is a test
        device."""
        by_id = {UUID(each.message.id): each for each in batch}
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
            rows.visit_events.append(VisitEventRow(UUID(message.id), company, entry))
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
    check_device(message.device)
    seconds = message.duration_seconds
    if seconds is None and message.type == "exit":
        raise ValueError("duration_seconds is missing")
    for number in (message.place.id, message.venue.id, message.company.id, seconds or 0):
        if not 0 <= number < _INT64:
            raise ValueError(f"{number} is no id and no number of seconds that SQL can store")
    UUID(message.id)
    device, at = (message.company.id, message.device.udid), parse_text(message.entered_at)
    return Counted(message, device, at, arrived_at_of(record), None)
