"""Compares SQL with the recount, device by device. Pure."""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from engine.cli.verify.recount import DeviceCounts, Recount

_NOTHING = DeviceCounts()


class RecordedDevice(NamedTuple):
    """SQL's figures of one device.

    `traces` is None if not every detection leaves a trace: then traces are not compared.
    """

    id: int
    company_id: int
    udid: str
    nb_beacon: int
    nb_campaign: int
    traces: int | None
    receptions: int
    authentications: int


class Difference(msgspec.Struct, frozen=True):
    """One figure of one device on which SQL and the topics differ.

    `device_id` is None if SQL lacks the device. `may_be_edit` says that a later edit of the catalog
    may explain the difference. Either SQL has more, by no more records than there are of beacons
    and keys that are now inactive or deleted: they counted if they were active when recorded. Or
    SQL has less, by no more records than there are of beacons that had another owner before.
    """

    company_id: int
    device_id: int | None
    udid: str
    figure: str
    topics: int
    sql: int
    may_be_edit: bool

    def as_json(self) -> dict[str, Any]:
        """The fields by name, for programs."""
        return msgspec.structs.asdict(self)


class Comparison:
    """Compares the devices of SQL one by one; `missing` then yields those that SQL lacks.

    Devices that are compared are removed from `recount`. Without `traces` the rows of
    detection_trace are not compared, as in RecordedDevice. The topics of `partial` figures have
    lost their first records, so that SQL may have more.
    """

    def __init__(
        self, recount: Recount, *, partial: Collection[str] = (), traces: bool = True
    ) -> None:
        self._recount = recount
        self._partial = partial
        self._no_traces = 0 if traces else None
        self._uncompared = recount.devices

    def differences(self, recorded: RecordedDevice) -> Iterator[Difference]:
        """The differences of one device."""
        counts = self._uncompared.pop((recorded.company_id, recorded.udid), _NOTHING)
        yield from self._compare(counts, recorded, recorded.id)

    def missing(self) -> Iterator[Difference]:
        """The differences of devices that SQL does not have."""
        for (company_id, udid), counts in self._uncompared.items():
            nothing = RecordedDevice(0, company_id, udid, 0, 0, self._no_traces, 0, 0)
            yield from self._compare(counts, nothing, None)

    def _compare(
        self, counts: DeviceCounts, recorded: RecordedDevice, device_id: int | None
    ) -> Iterator[Difference]:
        edits = counts.uncounted + self._recount.unknown_beacons[recorded.udid]
        figures = (
            ("nb_beacon", counts.detections, recorded.nb_beacon, edits, counts.contested),
            ("nb_campaign", counts.notifications, recorded.nb_campaign, 0, 0),
            ("detection_trace", counts.traces, recorded.traces, edits, counts.contested),
            ("reception", counts.receptions, recorded.receptions, 0, 0),
            (
                "authentication_trace",
                counts.authentications,
                recorded.authentications,
                counts.refused,
                0,
            ),
        )
        for name, topics, sql, more, less in figures:
            if sql is None or sql == topics or (sql > topics and name in self._partial):
                continue
            yield Difference(
                company_id=recorded.company_id,
                device_id=device_id,
                udid=recorded.udid,
                figure=name,
                topics=topics,
                sql=sql,
                may_be_edit=topics - less <= sql <= topics + more,
            )
