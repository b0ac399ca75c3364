"""Reads and counts notifications: nb_campaign once per id, receptions, daily figures."""

from typing import Annotated, NamedTuple
from uuid import UUID

import msgspec
from prometheus_client import Counter

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher, DeadLetterReason
from engine.kafka.decoding import Record, decode_records
from engine.kafka.messages import ReceivedDevice, Timestamp
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import parse
from engine.recorder.aggregate import (
    ChangesByDevice,
    NewRows,
    Statistics,
    StoredDevices,
    arrived_at,
    stored_instant,
    update_device,
)
from engine.recorder.ledger import Ledger, LedgerTransaction
from engine.recorder.local_days import DayRule
from engine.recorder.rows import (
    BEACON,
    CAMPAIGN,
    VENUE,
    DeviceIdentity,
    ReceptionRow,
    StatisticKey,
)

# Ids that SQL can store: no record has a greater id.
Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Reference(msgspec.Struct, frozen=True, gc=False):
    """The id of a campaign, company, venue or beacon."""

    id: Id


class PublishedNotification(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a notification that the recorder reads."""

    id: UUID
    campaign: Reference
    company: Reference
    venue: Reference
    beacon: Reference
    device: ReceivedDevice
    detected_at: Timestamp


class ReceivedNotification(NamedTuple):
    """A notification with the times of its detection and its record, and its venue's time zone.

    The times are epoch seconds.
    """

    message: PublishedNotification
    detected_at: float
    arrived_at: float
    time_zone: str | None

    @property
    def device(self) -> DeviceIdentity:
        """The device that received it."""
        return DeviceIdentity(self.message.company.id, self.message.device.udid)


_decode = msgspec.json.Decoder(PublishedNotification).decode


class NotificationReader:
    """Reads notifications of all partitions, which share one `limit`."""

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

    async def read(self, records: Records) -> list[ReceivedNotification]:
        """Decode the records. A record whose company does not exist becomes a dead letter."""
        decoded, dead, _ = decode_records(records, _decode_notification, self._limit)
        messages = [message for _, message, _ in decoded]
        companies = await self._ledger.existing_companies({each.company.id for each in messages})
        zones = await self._ledger.venue_time_zones({each.venue.id for each in messages})
        received = []
        for record, message, detected_at in decoded:
            if message.company.id in companies:
                zone = zones.get(message.venue.id)
                received.append(
                    ReceivedNotification(message, detected_at, arrived_at(record), zone)
                )
            else:
                detail = f"no company has the id {message.company.id}"
                dead.append(DeadLetter(record, DeadLetterReason.UNKNOWN_COMPANY, detail))
        await self._dead_letters.publish(dead)
        return received

    async def count(
        self, transaction: LedgerTransaction, batch: list[ReceivedNotification]
    ) -> "CountedNotifications":
        """The notifications that are new, each once."""
        by_id = {each.message.id: each for each in batch}
        known = await transaction.counted_notifications(by_id)
        new = [each for id_, each in by_id.items() if id_ not in known]
        if len(batch) > len(new):
            self._repeats.inc(len(batch) - len(new))
        return CountedNotifications(new, self._rule)


class CountedNotifications:
    """The new notifications of a batch. Pure."""

    def __init__(self, notifications: list[ReceivedNotification], rule: DayRule) -> None:
        self._notifications = notifications
        self._rule = rule

    def device_updates(self) -> ChangesByDevice:
        """nb_campaign and the last known facts of each device."""
        updates: ChangesByDevice = {}
        for each in self._notifications:
            update_device(updates, each.device, each.message.device).nb_campaign += 1
        return updates

    def rows(self, devices: StoredDevices, now: float) -> NewRows:
        """The receptions, and the figures of venues, beacons and campaigns. `now` is SQL's clock.

        The figures leave out test devices, and notifications that count for no day.
        """
        receptions = []
        statistics = Statistics()
        for each in self._notifications:
            message, (device_id, is_test) = each.message, devices[each.device]
            campaign, venue = message.campaign.id, message.venue.id
            create_on = stored_instant(each.detected_at)
            receptions.append(ReceptionRow(message.id, device_id, campaign, create_on))
            day = self._rule.day_of(each.detected_at, each.arrived_at, now, each.time_zone)
            if is_test or day is None:
                continue
            for kind, ref in ((VENUE, venue), (BEACON, message.beacon.id), (CAMPAIGN, campaign)):
                key = StatisticKey(day, kind, ref)
                statistics.count(key, venue, (device_id,)).notifications += 1
        return NewRows(receptions=receptions, statistics=statistics)


def _decode_notification(record: Record) -> tuple[Record, PublishedNotification, float]:
    message = _decode(record.value or b"")
    if "\0" in message.device.udid:
        raise ValueError("a udid has no NUL character - at `$.device.udid`")
    return record, message, parse(message.detected_at)
