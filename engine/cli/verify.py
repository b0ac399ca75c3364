"""`proximity verify`: counts the topics again, and compares the counts with SQL.

The counting is written without the recorder's code, because it checks that code.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
import typer
from aiokafka import TopicPartition
from sqlalchemy import and_, func, literal, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection
from typer import Option

from catalog.database import chunked
from catalog.models import (
    Application,
    AuthenticationTrace,
    Beacon,
    Company,
    CountedVisitEvent,
    DetectionTrace,
    Device,
    Instant,
    Reception,
    RecorderOffset,
    ReplacedTopic,
    Venue,
)
from engine.cli.command import CommandError, Json, begin_quietly, command, new_app
from engine.cli.output import echo_json, print_table, say, shown_progress
from engine.cli.servers import open_migrated_database, open_snapshot
from engine.formats.decoders import AT_ONCE, detection_decoders
from engine.kafka.client import KafkaCluster
from engine.kafka.detections import UNDECODABLE, BeaconKey, DecodedDetection, Record
from engine.kafka.messages import Authentication, KnownDevice, Timestamp, check_device, parse
from engine.kafka.offsets import Position
from engine.kafka.topic_reader import OffsetRange, TopicReader, open_topic_reader
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.redis.devices import DeviceKey
from rules.visits import VisitEventType

# A statement that reads all devices takes longer than those of the engine's daily work.
_STATEMENT_SECONDS = 3600.0
_DAY = 86_400.0
_MOST_SHOWN = 1000
_OF_DEVICES = ("nb_beacon", "nb_campaign", "detection_trace", "reception", "authentication_trace")
FIGURES = (*_OF_DEVICES, "visit_event")
Figures = Mapping[str, int]

app = new_app()


@command(app, "verify")
async def verify(
    context: typer.Context,
    strict: Annotated[bool, Option("--strict", help="Also fail on what edits explain.")] = False,
    as_json: Json = False,
) -> None:
    """Count the topics again, as far as SQL has recorded them, and compare.

    Compares nb_beacon and nb_campaign of every device, the rows of receptions, of authentications
    and (if TRACE is all) of detections of beacons that TRACE_RETENTION certainly keeps, and of each
    company the enters and exits that are counted in its visits. SQL is read in one read-only
    transaction, which stays open until the end; recorders may go on. The present catalog decides
    which beacons and keys count, so a difference that a later edit may explain is marked. Memory:
    about 300 bytes a device and 100 a notification of the topics. Exit status 0: everything agrees,
    except what later edits of the catalog may explain (unless --strict); 1: there are differences,
    or nothing was recorded.
    """
    settings = begin_quietly(context)
    shown: list[tuple[str, ...]] = []
    number = explained = 0
    with shown_progress("read", "records") as progress:
        async with (
            open_migrated_database(settings, command_timeout=_STATEMENT_SECONDS) as database,
            open_snapshot(database) as connection,
            # A record that is deleted before it is read would be missing in the count.
            open_topic_reader(settings, missing="error") as reader,
        ):
            span = await _recorded_span(settings, connection, reader)
            recount = await _recounted(settings, connection, reader, span, progress)
            async for each in _differences(connection, recount, span.partial):
                number += 1
                explained += each.may_be_edit
                if as_json:
                    echo_json(each._asdict())
                elif number <= _MOST_SHOWN:
                    shown.append(tuple("-" if cell is None else str(cell) for cell in each))
    if shown:
        print_table(Difference._fields, shown)
    read = f"{recount.read:,} records ({recount.malformed:,} of them malformed)"
    for line in (f"compared {recount.compared:,} devices with {read}", *span.notes, *span.faults):
        say(line, err=True)
    if span.faults or number > explained or (strict and number):
        edits = f", {explained:,} of them perhaps edits" if explained else ""
        partly = ", and not all could be compared" if span.faults else ""
        raise CommandError(f"{number:,} differences{edits}{partly}")
    edits = (
        f" but {number:,} that later edits of the catalog may explain "
        "(--strict makes them a failure)"
    )
    say(f"no differences{edits if number else ''}", err=True)


class Interval(NamedTuple):
    """Instants from `since` up to, not including, `until`; epoch seconds."""

    since: float
    until: float

    def has(self, instant: float) -> bool:
        """Whether the range contains the instant."""
        return self.since <= instant < self.until

    def of(self, column: Any) -> Any:
        """The condition that a column of SQL is in it."""
        since, until = (datetime.fromtimestamp(instant, UTC) for instant in self)
        return (column >= since) & (column < until)


class BeaconFact(NamedTuple):
    """The owner of a triple, and whether its beacon and venue are active now.

    `is_reused`: a deleted beacon had the same triple.
    """

    company_id: int
    active: bool
    is_reused: bool = False


class RecountCatalog(NamedTuple):
    """The present catalog, as far as it decides which records count.

    `applications` has by key the company, and the instant from which the key is not valid.
    """

    beacons: Mapping[BeaconKey, BeaconFact]
    companies: frozenset[int]
    applications: Mapping[str, tuple[int, float]]


class Difference(NamedTuple):
    """One figure of one device on which SQL and the topics differ; of visits, of all devices.

    `device_id` is None if SQL lacks the device. `may_be_edit`: a later edit of the catalog may
    explain the difference.
    """

    company_id: int
    device_id: int | None
    udid: str
    figure: str
    topics: int
    sql: int
    may_be_edit: bool


class _Numbered(msgspec.Struct):
    # No record in SQL has a greater id; the recorder makes a dead letter of a message with one.
    id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Notification(msgspec.Struct, kw_only=True):
    id: UUID
    campaign: _Numbered
    company: _Numbered
    venue: _Numbered
    beacon: _Numbered | None = None
    geofence: _Numbered | None = None
    nfc: _Numbered | None = None
    qrcode: _Numbered | None = None
    device: KnownDevice  # the catalog's facts may be longer than a detection's
    detected_at: Timestamp

    def __post_init__(self) -> None:
        places = (self.beacon, self.geofence, self.nfc, self.qrcode)
        if sum(place is not None for place in places) != 1:
            raise ValueError("it has one of beacon, geofence, nfc and qrcode")


class _Presence(msgspec.Struct, kw_only=True):
    id: UUID
    type: VisitEventType
    company: _Numbered
    entered_at: Timestamp


_decode_presence = msgspec.json.Decoder(_Presence).decode
_decode_notification = msgspec.json.Decoder(_Notification).decode
_decode_authentication = msgspec.json.Decoder(Authentication).decode


@dataclass
class Recount:
    """Counts records, one by one.

    `counts` has of each figure the counts by company and udid (of visits by company), `doubts` by
    udid what a later edit of the catalog may have changed. `retained` is the time of which SQL
    still has every row; `decode` gives the detections of a record, as DetectionDecoder does.
    """

    catalog: RecountCatalog
    retained: Interval
    decode: Callable[[Record], Iterable[DecodedDetection]]
    traces: bool = True  # each detection has a row
    counts: dict[str, Counter[DeviceKey]] = field(
        default_factory=lambda: {figure: Counter() for figure in FIGURES}
    )
    doubts: dict[str, Counter[str]] = field(
        default_factory=lambda: {figure: Counter() for figure in FIGURES}
    )
    read: int = 0
    malformed: int = 0
    compared: int = 0  # devices in SQL
    _seen: set[bytes] = field(default_factory=set)

    def add_detection(self, record: Record) -> None:
        """Count the detections of beacons in a record. Raises the errors of its decoder."""
        for detection in self.decode(record):
            if not isinstance(detection.key, BeaconKey):
                continue
            udid, beacon = detection.message.device.udid, self.catalog.beacons.get(detection.key)
            has_row = self.traces and self._has_a_row(detection.detected_at, record)
            for figure in ("nb_beacon", "detection_trace")[: 1 + has_row]:
                if beacon is not None and beacon.active:
                    self.counts[figure][DeviceKey(beacon.company_id, udid)] += 1
                if beacon is None or beacon.is_reused or not beacon.active:
                    self.doubts[figure][udid] += 1

    def add_notification(self, record: Record) -> None:
        """Count a record of `notifications`, unless its id was counted before."""
        message = _decode_notification(record.value or b"")
        detected_at = parse(message.detected_at)
        check_device(message.device)
        if message.company.id in self.catalog.companies and self._is_new(message.id):
            device = DeviceKey(message.company.id, message.device.udid)
            self.counts["nb_campaign"][device] += 1
            if self.retained.has(detected_at):
                self.counts["reception"][device] += 1

    def add_authentication(self, record: Record) -> None:
        """Count a record of `authentications`."""
        message = _decode_authentication(record.value or b"")
        written, udid = message.authenticated_at, message.device.udid
        at = record.timestamp / 1000 if written is None else parse(written)
        check_device(message.device)
        if "\0" in message.api_key:
            raise ValueError("an api_key has no NUL character")
        application = self.catalog.applications.get(message.api_key)
        if application is None or not self._has_a_row(at, record):
            return
        company_id, end = application
        if at < end:
            self.counts["authentication_trace"][DeviceKey(company_id, udid)] += 1
        else:
            self.doubts["authentication_trace"][udid] += 1

    def add_presence(self, record: Record) -> None:
        """Count an enter or exit, unless its id was counted before."""
        event = _decode_presence(record.value or b"")
        has_row = event.type != "dwell" and self._has_a_row(parse(event.entered_at), record)
        if has_row and self._is_new(event.id):
            self.counts["visit_event"][DeviceKey(event.company.id, "")] += 1

    def count(self, records: Iterable[Record], add: Callable[[Record], None]) -> None:
        """Count the records, which `add` does with each."""
        for record in records:
            self.read += 1
            try:
                add(record)
            except UNDECODABLE:
                self.malformed += 1

    def differences(
        self, key: DeviceKey, id_: int | None, sql: Figures, partial: Collection[str] = ()
    ) -> Iterator[Difference]:
        """The differences of a device, whose `id_` is None if SQL lacks it; removes its counts.

        In `partial` figures SQL may have more.
        """
        for figure, recorded in sql.items():
            topics = self.counts[figure].pop(key, 0)
            if recorded < topics or (recorded > topics and figure not in partial):
                may_be_edit = abs(recorded - topics) <= self.doubts[figure][key.udid]
                yield Difference(
                    key.company_id, id_, key.udid, figure, topics, recorded, may_be_edit
                )

    def _is_new(self, id_: UUID) -> bool:
        before = len(self._seen)
        self._seen.add(id_.bytes)
        return len(self._seen) > before

    def _has_a_row(self, at: float, record: Record) -> bool:
        """Whether a row is written: not if its time is more than a day after its record's."""
        return self.retained.has(at) and at <= record.timestamp / 1000 + _DAY


async def read_catalog(connection: AsyncConnection) -> RecountCatalog:
    """Every beacon, company and application."""
    beacons: dict[BeaconKey, BeaconFact] = {}
    # Deleted beacons are inactive. Of several with the same triple the undeleted one counts, which
    # comes last.
    living = and_(Beacon.deleted_at.is_(None), Venue.deleted_at.is_(None))
    active = and_(living, Beacon.active, Venue.active)
    query = select(Beacon.uuid, Beacon.major, Beacon.minor, Venue.company_id, active)
    query = query.join(Venue, Beacon.venue_id == Venue.id).order_by(living, Beacon.deleted_at)
    async with connection.stream(query) as rows:
        async for uuid, major, minor, company_id, is_active in rows:
            key = BeaconKey(uuid, major, minor)
            beacons[key] = BeaconFact(company_id, bool(is_active), key in beacons)
    of = Application
    keys = await connection.execute(select(of.api_key, of.company_id, of.active, of.expire_on))
    return RecountCatalog(
        beacons,
        frozenset(await connection.scalars(select(Company.id))),
        {
            key: (company_id, (end.timestamp() if end else inf) if is_active else -inf)
            for key, company_id, is_active, end in keys
        },
    )


async def recorded_figures(
    connection: AsyncConnection, retained: Interval, *, traces: bool = True
) -> AsyncIterator[tuple[DeviceKey, int | None, Figures]]:
    """All devices with their ids, counters and rows of the time that is `retained`; then the visit
    events of each company. Rows of detections only with `traces`."""
    query = select(Device.company_id, Device.udid, Device.id, Device.nb_beacon, Device.nb_campaign)
    for table in (DetectionTrace, Reception, AuthenticationTrace):
        rows_of = select(table.device_id, func.count().label("rows"))
        if table is DetectionTrace:
            rows_of = rows_of.where(DetectionTrace.beacon_id.is_not(None) & literal(traces))
        rows_of = rows_of.where(retained.of(table.create_on)).group_by(table.device_id)
        counts = rows_of.subquery()
        query = query.add_columns(func.coalesce(counts.c.rows, 0))
        query = query.outerjoin(counts, counts.c.device_id == Device.id)
    async with connection.stream(query) as rows:
        async for company_id, udid, id_, *figures in rows:
            yield DeviceKey(company_id, udid), id_, dict(zip(_OF_DEVICES, figures, strict=True))
    event = CountedVisitEvent
    of_visits = select(event.company_id, func.count()).where(retained.of(event.at))
    for company_id, count in await connection.execute(of_visits.group_by(event.company_id)):
        yield DeviceKey(company_id, ""), None, {"visit_event": count}


@dataclass
class _RecordedSpan:
    """The offsets that the recorder has read.

    `notes` say what limits the comparison, `faults` why a partition cannot be compared. Of
    `partial` figures the topics no longer hold all records.
    """

    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    partial: set[str] = field(default_factory=set)


async def _recorded_span(
    settings: Settings, connection: AsyncConnection, reader: TopicReader
) -> _RecordedSpan:
    """What can be compared. Raises CommandError if nothing was recorded."""
    topics, offset = Topics.of(settings), RecorderOffset
    figures: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(topics.all_detections, ("nb_beacon", "detection_trace")),
        topics.notifications: ("nb_campaign", "reception"),
        topics.authentications: ("authentication_trace",),
        topics.presence: ("visit_event",),
    }
    query = select(offset.topic, offset.partition, offset.next_offset, offset.topic_id)
    query = query.where(offset.topic.in_(figures)).order_by(offset.topic, offset.partition)
    rows = await connection.execute(query)
    positions = {TopicPartition(name, number): Position(at, id_) for name, number, at, id_ in rows}
    past = select(ReplacedTopic.topic).where(ReplacedTopic.topic.in_(figures))
    replaced = set(await connection.scalars(past))
    if not positions and not replaced:
        raise CommandError(
            "nothing to compare: no recorder has recorded anything of these topics in this "
            "database; start one with: proximity run --role recorder"
        )
    async with KafkaCluster(settings) as cluster:
        states = {
            name: state
            for name, state in (await cluster.state(figures)).topics.items()
            if state.partitions
        }
    present = {TopicPartition(name, each) for name in states for each in states[name].partitions}
    found = await reader.ranges(positions.keys() & present)
    span = _RecordedSpan()

    def note(topic: str, cause: str) -> None:
        span.notes.append(f"{cause}, so SQL can only be seen to have too little")
        span.partial.update(figures[topic])

    for tp, recorded in positions.items():
        name, state = f"{tp.topic}/{tp.partition}", states.get(tp.topic)
        if state is not None and tp not in present:  # created again with fewer partitions
            replaced.add(tp.topic)
            continue
        begin, end = found.get(tp, OffsetRange(0, 0))
        if not recorded.may_belong_to(state and state.id):
            replaced.add(tp.topic)
            if end:
                span.faults.append(
                    f"{name}: the topic was created again since SQL recorded it, and nothing of "
                    "the new one is recorded yet: let a recorder read it, and compare again"
                )
            continue
        if end < recorded.offset:
            span.faults.append(
                f"{name}: SQL has recorded up to {recorded.offset}, but the topic ends at {end}"
            )
        if begin > 0:
            note(tp.topic, f"{name} begins at {begin:,}: what was before is gone")
        end = min(end, recorded.offset)
        span.ranges[tp] = OffsetRange(min(begin, end), end)
    for topic in sorted(replaced):
        note(topic, f"another topic {topic} was recorded before this one: what it added is in SQL")
    return span


async def _recounted(
    settings: Settings,
    connection: AsyncConnection,
    reader: TopicReader,
    span: _RecordedSpan,
    progress: Callable[..., None],
) -> Recount:
    topics, decoders = Topics.of(settings), detection_decoders(settings)
    query = select(type_coerce(func.current_timestamp(), Instant))
    now = (await connection.execute(query)).scalar_one().timestamp()
    # Rows of the first day of the retention may be deleted at any time, and rows of future days
    # are not all kept.
    retained = Interval(max(0.0, now - (settings.trace_retention - 1) * _DAY), now + _DAY)
    recount = Recount(
        await read_catalog(connection),
        retained,
        lambda record: decoders[record.topic].read(record),
        traces=settings.trace == "all",
    )
    add = {
        **dict.fromkeys(decoders, recount.add_detection),
        topics.notifications: recount.add_notification,
        topics.authentications: recount.add_authentication,
        topics.presence: recount.add_presence,
    }
    progress(total=sum(end - begin for begin, end in span.ranges.values()))
    async for records in reader.records_until(span.ranges):
        for part in chunked(records, AT_ONCE):
            topic = part[0].topic
            if decoder := decoders.get(topic):
                await decoder.prepare(part)
            recount.count(part, add[topic])
        progress(count=recount.read, completed=recount.read)
    return recount


async def _differences(
    connection: AsyncConnection, recount: Recount, partial: Collection[str]
) -> AsyncIterator[Difference]:
    """The differences of everything in SQL, then what SQL lacks."""
    recorded = recorded_figures(connection, recount.retained, traces=recount.traces)
    async for key, id_, figures in recorded:
        recount.compared += id_ is not None
        for each in recount.differences(key, id_, figures, partial):
            yield each
    for key in {key for counts in recount.counts.values() for key in counts}:
        for each in recount.differences(key, None, dict.fromkeys(FIGURES, 0), partial):
            yield each
