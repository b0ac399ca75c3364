"""Batches of detections, and what surrounds them: places, devices, test devices."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from engine.kafka.detections import BeaconKey, DecodedDetection, decode_detections
from engine.recorder.rows import ActiveBeacon, DeviceIdentity, StoredDevice
from tests.unit.engine.records import RECORD_TIME, UUID, detection, record

ZONES = ("immediate", "near", "far", "unknown")
# Two companies, three venues, one of them without a time zone; the last beacon has no place.
PLACES = {
    BeaconKey(UUID, 1, 1): ActiveBeacon(11, 101, 1, "America/Los_Angeles"),
    BeaconKey(UUID, 1, 2): ActiveBeacon(12, 101, 1, "America/Los_Angeles"),
    BeaconKey(UUID, 1, 3): ActiveBeacon(13, 102, 1, None),
    BeaconKey(UUID, 1, 4): ActiveBeacon(14, 103, 2, "Pacific/Kiritimati"),
}
NOON_MS = 1_795_173_600_000
RECORD_MS = int(RECORD_TIME * 1000)
_DAY_MS = 86_400_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
instants = st.one_of(
    st.integers(NOON_MS - 2 * _DAY_MS, NOON_MS + 2 * _DAY_MS),
    st.integers(NOON_MS - 90_000, NOON_MS),
    st.integers(RECORD_MS - 400_000, RECORD_MS + 400_000),
    st.sampled_from(["0001-01-01T00:00:00+1400", "9999-12-31T23:59:59-1400"]),
)


class Message(NamedTuple):
    """A detection as it is written: `device` without the udid."""

    udid: str
    minor: int
    zone: str
    at: int | str
    device: dict[str, Any]
    ip: str | None


class Scene(NamedTuple):
    """A batch, decoded, and the devices that are marked as test devices."""

    messages: list[Message]
    test_devices: frozenset[DeviceIdentity]

    @property
    def received(self) -> list[DecodedDetection]:
        """The batch as the recorder gets it."""
        records = [record(_body(message)) for message in self.messages]
        decoded = decode_detections(records, 2.0)
        assert decoded.dead_letters == []
        return decoded.messages

    def place(self, message: Message) -> ActiveBeacon | None:
        """Where it was made."""
        return PLACES.get(BeaconKey(UUID, 1, message.minor))

    def known(self) -> dict[DeviceIdentity, StoredDevice]:
        """Every device there may be, as SQL would answer."""
        keys = sorted(DeviceIdentity(c, udid) for c in (1, 2) for udid in UDIDS)
        return {key: StoredDevice(n, key in self.test_devices) for n, key in enumerate(keys, 1)}


UDIDS = ("a", "b", "c", "手机")

_devices = st.fixed_dictionaries(
    {},
    optional={
        "name": st.none() | texts,
        "version": texts,
        "model": texts,
        "token_push": texts,
        "id_connector": st.integers(-(2**63), 2**64 - 1),
    },
)
messages = st.builds(
    Message,
    st.sampled_from(UDIDS),
    st.integers(1, 5),
    st.sampled_from(ZONES),
    instants,
    _devices,
    st.none() | texts,
)
device_keys = st.builds(DeviceIdentity, st.integers(1, 2), st.sampled_from(UDIDS))
scenes = st.builds(Scene, st.lists(messages, max_size=25), st.frozensets(device_keys))


def _body(message: Message) -> dict[str, Any]:
    return detection(
        minor=message.minor,
        proximity=message.zone,
        detected_at=message.at,
        ip=message.ip,
        device={"udid": message.udid, **message.device},
    )
