"""SQL held against the recount, device by device. Pure."""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from engine.cli.verify.recount import DeviceCounts, Recount

_NOTHING = DeviceCounts()


class RecordedDevice(NamedTuple):
    """What SQL says of one device. `traces` None: they are not all written, so not compared."""

    id: int
    company_id: int
    udid: str
    nb_beacon: int
    nb_campaign: int
    traces: int | None
    receptions: int
    authentications: int


class Difference(msgspec.Struct, frozen=True):
    """One figure of one device that is not what the topics say. `device_id` None: not in SQL.

    `may_be_edit`: SQL has more, and no more than beacons or keys say that the catalog does not
    have, or not active, any more: it is right if they counted when they were recorded. Or SQL has
    less, and no less than beacons say that had another owner before.
    """

    company_id: int
    device_id: int | None
    udid: str
    figure: str
    topics: int
    sql: int
    may_be_edit: bool

    def as_json(self) -> dict[str, Any]:
        """By name, for a program."""
        return msgspec.structs.asdict(self)


class Comparison:
    """Compares devices as SQL gives them; `missing` at the end yields those that SQL lacks.

    It takes the devices out of `recount` as it goes.
    Without `traces` the rows of detection_trace are not compared, as in RecordedDevice.
    Of `partial` figures the topics do not hold the beginning any more: SQL may have more.
    """

    def __init__(
        self, recount: Recount, *, partial: Collection[str] = (), traces: bool = True
    ) -> None:
        self._recount = recount
        self._partial = partial
        self._no_traces = 0 if traces else None
        self._left = recount.devices

    def of(self, written: RecordedDevice) -> Iterator[Difference]:
        """The differences of one device."""
        counts = self._left.pop((written.company_id, written.udid), _NOTHING)
        yield from self._compare(counts, written, written.id)

    def missing(self) -> Iterator[Difference]:
        """The differences of devices that SQL does not have."""
        for (company_id, udid), counts in self._left.items():
            nothing = RecordedDevice(0, company_id, udid, 0, 0, self._no_traces, 0, 0)
            yield from self._compare(counts, nothing, None)

    def _compare(
        self, counts: DeviceCounts, written: RecordedDevice, device_id: int | None
    ) -> Iterator[Difference]:
        edits = counts.uncounted + self._recount.unknown[written.udid]
        figures = (
            ("nb_beacon", counts.detections, written.nb_beacon, edits, counts.contested),
            ("nb_campaign", counts.notifications, written.nb_campaign, 0, 0),
            ("detection_trace", counts.traces, written.traces, edits, counts.contested),
            ("reception", counts.receptions, written.receptions, 0, 0),
            (
                "authentication_trace",
                counts.authentications,
                written.authentications,
                counts.refused,
                0,
            ),
        )
        for name, topics, sql, more, less in figures:
            if sql is None or sql == topics or (sql > topics and name in self._partial):
                continue
            yield Difference(
                company_id=written.company_id,
                device_id=device_id,
                udid=written.udid,
                figure=name,
                topics=topics,
                sql=sql,
                may_be_edit=topics - less <= sql <= topics + more,
            )
