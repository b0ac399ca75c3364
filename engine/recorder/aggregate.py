"""Adds up batches of all topics: updates of devices, trace rows, daily figures.

Pure. Instants are epoch seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from engine.kafka.decoding import Record
from engine.kafka.messages import ReceivedDevice
from engine.recorder.rows import (
    AuthenticationRow,
    DetectionRow,
    DeviceChanges,
    DeviceIdentity,
    FigureIncrements,
    PresenceKey,
    PresenceState,
    ReceptionRow,
    StatisticKey,
    StoredDevice,
)
from engine.redis.recent_detections import BeaconMinute

ChangesByDevice = dict[DeviceIdentity, DeviceChanges]
StoredDevices = Mapping[DeviceIdentity, StoredDevice]

LONGEST_NAME = 255
LONGEST_IP = 64  # enough for an address with a port and a zone
LONGEST_TOKEN = 4096
_INT64 = 2**63
# A timestamp with an offset may lie a few hours beyond year 1 or 9999.
FIRST = -62_135_596_800
LAST = 253_402_300_799
_MINUTE = timedelta(minutes=1)


class Statistics:
    """Additions to daily figures, and the ids of the devices that are counted in them.

    `new_devices` are devices that the same transaction has created, so that no figure counts them
    yet; they are not in `devices`.
    """

    def __init__(self) -> None:
        self.figures: dict[StatisticKey, FigureIncrements] = {}
        self.devices: dict[StatisticKey, set[int]] = {}
        self.new_devices: dict[StatisticKey, list[int]] = {}

    def count(self, key: StatisticKey, venue_id: int, devices: Iterable[int]) -> FigureIncrements:
        """Count the devices under `key`, and return the figures to increase."""
        figures = self.figures.get(key)
        if figures is None:
            figures = self.figures[key] = FigureIncrements(venue_id)
            self.devices[key] = set()
        self.devices[key].update(devices)
        return figures


class NewRows(NamedTuple):
    """The rows that a batch adds to SQL besides its devices.

    With `only_changes` a detection gets a row only if it differs from the last one (see
    rows_of_changes). `recent` counts the detections of the last minutes, for Redis.
    """

    detections: Sequence[DetectionRow] = ()
    authentications: Sequence[AuthenticationRow] = ()
    receptions: Sequence[ReceptionRow] = ()
    statistics: Statistics | None = None
    only_changes: bool = False
    recent: Mapping[BeaconMinute, int] = MappingProxyType({})


def update_device(
    updates: ChangesByDevice, identity: DeviceIdentity, facts: ReceivedDevice
) -> DeviceChanges:
    """The device's update, with the facts of a message that SQL can store.

    A push token is stored whole or not at all, because a shortened token is useless.
    """
    update = updates.get(identity)
    if update is None:
        update = updates[identity] = DeviceChanges()
    if facts.name is not None:
        update.name = _storable(facts.name, LONGEST_NAME)
    if facts.version is not None:
        update.version = _storable(facts.version, LONGEST_NAME)
    if facts.model is not None:
        update.model = _storable(facts.model, LONGEST_NAME)
    if facts.token_push is not None and len(facts.token_push) <= LONGEST_TOKEN:
        update.token_push = _storable(facts.token_push, LONGEST_TOKEN)
    number = facts.id_connector
    if number is not None and -_INT64 <= number < _INT64:
        update.id_connector = number
    return update


def rows_of_changes(
    rows: Iterable[DetectionRow], states: dict[PresenceKey, PresenceState]
) -> list[DetectionRow]:
    """The rows, in order, that differ from the previous row of the device at the beacon.

    A row differs if it has another zone or is a minute or more later. `states` has the previous
    rows and is updated.
    """
    kept = []
    for row in rows:
        key = PresenceKey(row.device_id, row.beacon_id)
        last = states.get(key)
        if last is None or row.status != last.status or row.create_on - last.create_on >= _MINUTE:
            states[key] = PresenceState(row.status, row.create_on)
            kept.append(row)
    return kept


def arrived_at(record: Record) -> float:
    """The record's timestamp."""
    return float(record.timestamp) / 1000


def stored_instant(epoch: float) -> datetime:
    """An instant in SQL's form; outside of the calendar in UTC, its first or last second."""
    return datetime.fromtimestamp(min(max(epoch, FIRST), LAST), UTC)


def stored_address(ip: str | None) -> str | None:
    """An address in SQL's form."""
    return None if ip is None else _storable(ip, LONGEST_IP)


def _storable(text: str, longest: int) -> str:
    """The text, cut to the column's length, without NUL characters (PostgreSQL has none)."""
    return text.replace("\0", "")[:longest]
