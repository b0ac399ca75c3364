"""Notifications: nb_campaign once per id, the receptions, the figures of a day."""

from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec
from prometheus_client import Counter

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher, DeadLetterReason
from engine.kafka.messages import Device, Timestamp
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import parse
from engine.recorder.aggregate import Statistics, came_at, figures_of, instant, learn
from engine.recorder.decode import Record, decode_all
from engine.recorder.ledger import Entry, Ledger
from engine.recorder.local_days import DayRule
from engine.recorder.rows import (
    BEACON,
    CAMPAIGN,
    VENUE,
    DeviceKey,
    DeviceNews,
    KnownDevice,
    ReceptionRow,
    StatisticDevice,
    StatisticKey,
)

# What SQL can hold: a greater one names nothing that there is.
Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Named(msgspec.Struct, frozen=True, gc=False):
    """Something that has an id."""

    id: Id


class Sent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the recorder looks at of a notification."""

    id: UUID
    campaign: Named
    company: Named
    venue: Named
    beacon: Named
    device: Device
    detected_at: Timestamp


class Reception(NamedTuple):
    """A notification, when it was detected and when the record came (in epoch seconds), and the
    time zone of its venue."""

    sent: Sent
    detected_at: float
    came_at: float
    time_zone: str | None

    @property
    def device(self) -> DeviceKey:
        """Who received it."""
        return DeviceKey(self.sent.company.id, self.sent.device.udid)


_decode = msgspec.json.Decoder(Sent).decode


class NotificationReader:
    """Reads what was published; one for each partition, all under one `limit`."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        dead_letters: DeadLetterPublisher,
        limit: DeadLetterLimit,
        skipped: Counter,
        rule: DayRule,
    ) -> None:
        self._ledger = ledger
        self._dead_letters = dead_letters
        self._limit = limit
        self._repeats = skipped.labels("repeated_notification")
        self._rule = rule

    async def read(self, records: Records) -> "NotificationBatch":
        """Decode the records; those of a company that does not exist go aside too."""
        messages, dead = decode_all(records, _decoded, self._limit)
        companies = await self._ledger.companies({sent.company.id for _, (sent, _) in messages})
        zones = await self._ledger.time_zones({sent.venue.id for _, (sent, _) in messages})
        found = []
        for record, (sent, at) in messages:
            if sent.company.id in companies:
                found.append(Reception(sent, at, came_at(record), zones.get(sent.venue.id)))
            else:
                detail = f"no company has the id {sent.company.id}"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_COMPANY, detail))
        await self._dead_letters.publish(dead)
        return NotificationBatch(found, self._repeats.inc, self._rule)


class NotificationBatch:
    """Decoded notifications; which of them are new is decided in the transaction."""

    def __init__(
        self, receptions: list[Reception], repeated: Callable[[float], None], rule: DayRule
    ) -> None:
        self._by_id = {reception.sent.id: reception for reception in receptions}
        self._received = len(receptions)
        self._repeated = repeated
        self._rule = rule

    async def write(self, entry: Entry) -> Mapping[str, int]:
        """Write all of it; the rows written, by table."""
        known = await entry.counted(self._by_id)
        new = [reception for number, reception in self._by_id.items() if number not in known]
        if self._received > len(new):
            self._repeated(self._received - len(new))
        if not new:
            return {}
        now = await entry.now()
        devices = await entry.add_devices(_news(new), now)
        await entry.add_receptions([_row(each, devices[each.device]) for each in new])
        statistics = _statistics(new, devices, self._rule, now.timestamp())
        await entry.add_statistics(statistics.figures, statistics.devices)
        return {"device": len(devices), "reception": len(new)}


def _decoded(record: Record) -> tuple[Sent, float]:
    sent = _decode(record.value or b"")
    if "\0" in sent.device.udid:
        raise ValueError("a udid has no NUL character - at `$.device.udid`")
    return sent, parse(sent.detected_at)


def _news(receptions: list[Reception]) -> dict[DeviceKey, DeviceNews]:
    news: dict[DeviceKey, DeviceNews] = {}
    for reception in receptions:
        known = news.setdefault(reception.device, DeviceNews())
        known.nb_campaign += 1
        learn(known, reception.sent.device)
    return news


def _row(reception: Reception, device: KnownDevice) -> ReceptionRow:
    sent = reception.sent
    return ReceptionRow(sent.id, device.id, sent.campaign.id, instant(reception.detected_at))


def _statistics(
    receptions: list[Reception],
    devices: Mapping[DeviceKey, KnownDevice],
    rule: DayRule,
    now: float,
) -> Statistics:
    """The figures of venues, beacons and campaigns; test devices are left out, and what has no
    day by `rule`. `now` is SQL's clock."""
    statistics = Statistics({}, set())
    for reception in receptions:
        device = devices[reception.device]
        if device.test:
            continue
        sent = reception.sent
        day = rule.day_of(reception.detected_at, reception.came_at, now, reception.time_zone)
        if day is None:
            continue
        refs = ((VENUE, sent.venue.id), (BEACON, sent.beacon.id), (CAMPAIGN, sent.campaign.id))
        for kind, ref in refs:
            key = StatisticKey(day, kind, ref)
            figures_of(statistics, key, sent.venue.id).notifications += 1
            statistics.devices.add(StatisticDevice(*key, device.id))
    return statistics
