"""`proximity verify`: counts the topics again, and compares the counts with SQL.

The counting is written without the recorder's code, because it checks that code.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
import typer
from aiokafka import TopicPartition
from sqlalchemy import Subquery, and_, func, null, select, type_coerce
from sqlalchemy.ext.asyncio import AsyncConnection

from catalog.database import chunked
from catalog.models import (
    Application,
    AuditEntry,
    AuthenticationTrace,
    Beacon,
    Company,
    CountedVisitEvent,
    DetectionTrace,
    Device,
    Geofence,
    Instant,
    Reception,
    RecorderOffset,
    ReplacedTopic,
    ScanTag,
    Venue,
)
from catalog.plain_text import for_terminal
from engine.cli.command import CommandError, begin_quietly, new_app
from engine.cli.output import ShownProgress, echo_json, print_table, shown_progress
from engine.cli.servers import kafka_failures, open_migrated_database, open_snapshot
from engine.formats.decoders import AT_ONCE, DetectionDecoder, detection_decoders
from engine.kafka.client import KafkaCluster
from engine.kafka.detections import (
    UNDECODABLE,
    BeaconKey,
    DecodedDetection,
    GeofenceKey,
    PlaceKey,
    Record,
    TagKey,
)
from engine.kafka.messages import Authentication, KnownDevice, Timestamp, check_device, parse
from engine.kafka.offsets import Position
from engine.kafka.topic_reader import OffsetRange, TopicReader, open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from rules.geofences import Circle, GeofenceGrid
from rules.visits import VisitEventType

# A statement that reads all devices takes longer than those of the engine's daily work.
_STATEMENT_SECONDS = 3600.0
_DAY = 86_400.0
_ANY = 10_000  # geofences that may contain a position


app = new_app()


@app.command("verify")
def verify(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most this many differences; all are counted.")
    ] = 1000,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail on differences that an edit may explain.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with every difference.")
    ] = False,
) -> None:
    """Count the topics again, up to the offsets that SQL has recorded, and compare with SQL.

    Compares nb_beacon and nb_campaign of every device, the rows of receptions, of authentications
    and (if TRACE is all) of detections that TRACE_RETENTION certainly keeps, and of each company
    the enters and exits that are counted in its visits. SQL is
    read in one read-only transaction, which stays open until the end; recorders may go on. The
    present catalog decides which places and keys count, so a difference that a later edit may
    explain is marked. Memory: about 300 bytes a device and 100 a notification of the topics. Exit
    status 0: everything agrees, except what later edits of the catalog may explain (unless
    --strict); 1: there are differences, or nothing was recorded.
    """
    work = asyncio.run(_verify(begin_quietly(context), limit, json))
    if work.shown:
        header = ("company", "device", "udid", "figure", "topics", "SQL", "")
        print_table(header, [_cells(each) for each in work.shown])
        if work.differences > limit:
            typer.echo(f"the first {limit:,} are shown (--limit)")
    _conclude(work, strict=strict)


async def _verify(settings: Settings, limit: int, json: bool) -> "Verification":
    async with (
        open_migrated_database(settings, command_timeout=_STATEMENT_SECONDS) as database,
        open_snapshot(database) as connection,
    ):
        with (
            kafka_failures(settings, lambda: "nothing is compared to the end"),
            shown_progress("read", "records") as progress,
        ):
            # A record that is deleted before it is read would be missing in the count.
            async with open_topic_reader(settings, missing="error") as reader:
                work = Verification(settings, connection, reader, limit, json)
                await work.run(progress)
                return work


CompanyDevice: TypeAlias = tuple[int, str]  # company id, udid


class Interval(NamedTuple):
    """Instants from `since` up to, not including, `until`; epoch seconds."""

    since: float
    until: float

    def has(self, instant: float) -> bool:
        """Whether the range contains the instant."""
        return self.since <= instant < self.until


class PlaceFact(NamedTuple):
    """A place of the catalog, its owner, and whether it and its venue are active now.

    `former_companies` owned deleted beacons with the same triple or tags with the same value.
    """

    company_id: int
    active: bool
    former_companies: frozenset[int] = frozenset()


class ApplicationFact(NamedTuple):
    """An application of the catalog, its owner, and until when its key is valid."""

    company_id: int
    active: bool
    expire_on: datetime | None


class RecountCatalog(NamedTuple):
    """The present catalog, as far as it decides which records count.

    `grids` has all geofences by company. The companies in `edited` have edited some.
    """

    places: Mapping[PlaceKey, PlaceFact]
    companies: frozenset[int]
    applications: Mapping[str, ApplicationFact]
    grids: Mapping[int, GeofenceGrid] = {}
    edited: frozenset[int] = frozenset()


class DeviceCounts(msgspec.Struct):
    """The topics' figures of one device; those with rows are for the time whose rows SQL keeps.

    `uncounted` detections (at beacons that are inactive or deleted now) and `refused`
    authentications (keys that are not valid now) may have counted when they were recorded.
    `contested` detections, a part of `detections`, are at beacons that had another owner before,
    and may not have counted. `places_uncounted` and `places_contested` are those of other places,
    which leave traces only.
    """

    detections: int = 0
    places_uncounted: int = 0
    places_contested: int = 0
    notifications: int = 0
    traces: int = 0
    receptions: int = 0
    authentications: int = 0
    uncounted: int = 0
    contested: int = 0
    refused: int = 0


class RecordedDevice(NamedTuple):
    """SQL's figures of one device; `id` is None if SQL lacks it.

    `traces` is None if not every detection leaves a trace: then traces are not compared.
    """

    id: int | None
    company_id: int
    udid: str
    nb_beacon: int = 0
    nb_campaign: int = 0
    traces: int | None = 0
    receptions: int = 0
    authentications: int = 0


class Difference(msgspec.Struct, frozen=True):
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

    `retained` is the time of which SQL still has every trace row; `read` gives the detections of a
    record, as DetectionDecoder does.
    """

    catalog: RecountCatalog
    retained: Interval
    read: Callable[[Record], Iterable[DecodedDetection]]
    devices: dict[CompanyDevice, DeviceCounts] = field(default_factory=dict)
    unknown_beacons: Counter[str] = field(default_factory=Counter)
    visit_events: Counter[int] = field(default_factory=Counter)  # enters and exits, by company
    _seen: set[bytes] = field(default_factory=set)

    def add_detection(self, record: Record) -> None:
        """Count the detections of a record. Raises the errors of its decoder."""
        for detection in self.read(record):
            self._count(detection)

    def _count(self, detection: DecodedDetection) -> None:
        udid = detection.message.device.udid
        if not isinstance(detection.key, BeaconKey):
            self._count_elsewhere(detection)
            return
        beacon = self.catalog.places.get(detection.key)
        if beacon is None:
            self.unknown_beacons[udid] += 1
            return
        for company_id in beacon.former_companies - {beacon.company_id}:
            self._counts_of(company_id, udid).uncounted += 1
        counts = self._counts_of(beacon.company_id, udid)
        if not beacon.active:
            counts.uncounted += 1
            return
        counts.detections += 1
        counts.contested += bool(beacon.former_companies)
        counts.traces += self._has_a_row(detection.detected_at, detection.record)

    def _count_elsewhere(self, detection: DecodedDetection) -> None:
        """Count a detection of a geofence or tag, or each of a position."""
        message, at = detection.message, detection.detected_at
        keys: list[PlaceKey] = []
        admitted = edited = True
        if isinstance(detection.key, GeofenceKey):
            if message.geofence is not None and message.geofence.transition == "exit":
                return
            keys, edited = [detection.key], False
        else:
            application = self.catalog.applications.get(message.api_key or "")
            if application is None:
                return
            company = application.company_id
            end = application.expire_on
            admitted = application.active and (end is None or at < end.timestamp())
            edited = message.position is not None and company in self.catalog.edited
            if message.tag is not None:
                keys = [TagKey(company, message.tag.kind, message.tag.value)]
            elif (where := message.position) is not None and company in self.catalog.grids:
                inside = self.catalog.grids[company].containing(where.latitude, where.longitude)
                keys = [GeofenceKey(each.id) for each in inside if each.admits(where.accuracy)]
            if edited:  # they may have been elsewhere: any number of them contained the position
                self._counts_of(company, message.device.udid).places_uncounted += _ANY
        for key in keys:
            place = self.catalog.places.get(key)
            if place is None or not self._has_a_row(at, detection.record):
                continue
            counts = self._counts_of(place.company_id, message.device.udid)
            if admitted and place.active:
                counts.traces += 1
                counts.places_contested += edited or bool(place.former_companies)
            else:
                counts.places_uncounted += 1

    def add_notification(self, record: Record) -> None:
        """Count a record of `notifications`, unless its id was counted before."""
        message = _decode_notification(record.value or b"")
        detected_at = parse(message.detected_at)
        udid, company_id = message.device.udid, message.company.id
        check_device(message.device)
        if company_id not in self.catalog.companies:
            return
        if message.id.bytes in self._seen:
            return
        self._seen.add(message.id.bytes)
        counts = self._counts_of(company_id, udid)
        counts.notifications += 1
        counts.receptions += self.retained.has(detected_at)

    def add_authentication(self, record: Record) -> None:
        """Count a record of `authentications`."""
        message = _decode_authentication(record.value or b"")
        written = message.authenticated_at
        at = record.timestamp / 1000 if written is None else parse(written)
        udid = message.device.udid
        check_device(message.device)
        if "\0" in message.api_key:
            raise ValueError("an api_key has no NUL character")
        application = self.catalog.applications.get(message.api_key)
        if application is None or not self._has_a_row(at, record):
            return
        end = application.expire_on
        counts = self._counts_of(application.company_id, udid)
        if application.active and (end is None or at < end.timestamp()):
            counts.authentications += 1
        else:
            counts.refused += 1

    def add_presence(self, record: Record) -> None:
        """Count an enter or exit, unless its id was counted before."""
        event = _decode_presence(record.value or b"")
        is_new = event.id.bytes not in self._seen
        if event.type != "dwell" and is_new and self._has_a_row(parse(event.entered_at), record):
            self._seen.add(event.id.bytes)
            self.visit_events[event.company.id] += 1

    def _has_a_row(self, at: float, record: Record) -> bool:
        """Whether a row is written: not if its time is more than a day after its record's."""
        return self.retained.has(at) and at <= record.timestamp / 1000 + _DAY

    def _counts_of(self, company_id: int, udid: str) -> DeviceCounts:
        return self.devices.setdefault((company_id, udid), DeviceCounts())


def count_all(records: Iterable[Record], count: Callable[[Record], None]) -> int:
    """Count the records. Returns how many of them are malformed."""
    malformed = 0
    for record in records:
        try:
            count(record)
        except UNDECODABLE:
            malformed += 1
    return malformed


def differences(
    counts: DeviceCounts,
    sql: RecordedDevice,
    *,
    unknown_beacons: int = 0,
    partial: Collection[str] = (),
) -> Iterator[Difference]:
    """The differences of one device; in `partial` figures SQL may have more.

    `unknown_beacons` are detections of the device at beacons that the catalog lacks.
    """
    edits, contested = counts.uncounted + unknown_beacons, counts.contested
    places, moved = counts.places_uncounted, counts.places_contested
    # The figure, what the topics have, what SQL has, and by how much an edit may change it.
    for name, topics, recorded, more, less in (
        ("nb_beacon", counts.detections, sql.nb_beacon, edits, contested),
        ("nb_campaign", counts.notifications, sql.nb_campaign, 0, 0),
        ("detection_trace", counts.traces, sql.traces, edits + places, contested + moved),
        ("reception", counts.receptions, sql.receptions, 0, 0),
        ("authentication_trace", counts.authentications, sql.authentications, counts.refused, 0),
    ):
        if recorded is None or recorded == topics or (recorded > topics and name in partial):
            continue
        yield Difference(
            company_id=sql.company_id,
            device_id=sql.id,
            udid=sql.udid,
            figure=name,
            topics=topics,
            sql=recorded,
            may_be_edit=topics - less <= recorded <= topics + more,
        )


async def recorded_positions(
    connection: AsyncConnection, topics: Collection[str]
) -> dict[TopicPartition, Position]:
    """The position of the first record that is not recorded, by partition with any records."""
    offset = RecorderOffset
    query = select(offset.topic, offset.partition, offset.next_offset, offset.topic_id)
    rows = await connection.execute(
        query.where(offset.topic.in_(topics)).order_by(offset.topic, offset.partition)
    )
    return {
        TopicPartition(topic, number): Position(at, topic_id)
        for topic, number, at, topic_id in rows
    }


async def read_catalog(connection: AsyncConnection) -> RecountCatalog:
    """Every place, company and application."""
    places: dict[PlaceKey, PlaceFact] = {}
    circles: defaultdict[int, list[Circle]] = defaultdict(list)
    beacon, tag, geofence = Beacon, ScanTag, Geofence
    for model, columns, key_of in (
        (beacon, (beacon.uuid, beacon.major, beacon.minor), BeaconKey),
        (tag, (tag.company_id, tag.kind, tag.value), TagKey),
        (geofence, (geofence.id, geofence.latitude, geofence.longitude, geofence.radius), Circle),
    ):
        # Deleted places are inactive. Of several with the same key the undeleted one counts,
        # which comes last.
        living = and_(model.deleted_at.is_(None), Venue.deleted_at.is_(None))
        active = and_(living, model.active, Venue.active)
        query = select(*columns, Venue.company_id, active).select_from(model)
        query = query.join(Venue, model.venue_id == Venue.id).order_by(living, model.deleted_at)
        async with connection.stream(query) as rows:
            async for *values, company_id, is_active in rows:
                found = key_of(*values)
                key = GeofenceKey(found.id) if isinstance(found, Circle) else found
                if isinstance(found, Circle):
                    circles[company_id].append(found)
                old = places.get(key)
                before = frozenset() if old is None else old.former_companies | {old.company_id}
                places[key] = PlaceFact(company_id, bool(is_active), before)
    entry = AuditEntry
    edits = select(entry.company_id).where(entry.kind == "geofence", entry.action == "edit")
    companies = frozenset(await connection.scalars(select(Company.id)))
    of = Application
    keys = await connection.execute(select(of.api_key, of.company_id, of.active, of.expire_on))
    return RecountCatalog(
        places,
        companies,
        {key: ApplicationFact(owner, active, end) for key, owner, active, end in keys},
        {company: GeofenceGrid(each) for company, each in circles.items()},
        frozenset(await connection.scalars(edits.distinct())),
    )


async def recorded_devices(
    connection: AsyncConnection, retained: Interval, traces: bool
) -> AsyncIterator[RecordedDevice]:
    """All devices; their traces from the time that is `retained`."""
    query = select(Device.id, Device.company_id, Device.udid, Device.nb_beacon, Device.nb_campaign)
    for table in (DetectionTrace, Reception, AuthenticationTrace):
        if table is DetectionTrace and not traces:
            query = query.add_columns(null())
            continue
        counts = _counts(table, retained)
        query = query.add_columns(func.coalesce(counts.c.rows, 0))
        query = query.outerjoin(counts, counts.c.device_id == Device.id)
    async with connection.stream(query) as rows:
        async for row in rows:
            yield RecordedDevice._make(row)


async def recorded_visit_events(
    connection: AsyncConnection, retained: Interval
) -> Mapping[int, int]:
    """The counted enters and exits of visits that began in that time, by company."""
    event = CountedVisitEvent
    since, until = (datetime.fromtimestamp(instant, UTC) for instant in retained)
    query = select(event.company_id, func.count()).where(event.at >= since, event.at < until)
    rows = await connection.execute(query.group_by(event.company_id))
    return {row[0]: row[1] for row in rows}


def _counts(
    table: type[DetectionTrace | AuthenticationTrace | Reception], retained: Interval
) -> Subquery:
    """The number of rows from that time, by device."""
    since, until = (datetime.fromtimestamp(instant, UTC) for instant in retained)
    query = select(table.device_id, func.count().label("rows"))
    query = query.where(table.create_on >= since, table.create_on < until)
    return query.group_by(table.device_id).subquery()


class Verification:
    """One comparison: `notes` say what limits it, `faults` why a partition cannot be compared.

    `shown` has the first `limit` differences; with `json` each is printed instead.
    """

    def __init__(
        self,
        settings: Settings,
        connection: AsyncConnection,
        reader: TopicReader,
        limit: int,
        json: bool,
    ) -> None:
        self.records = self.malformed = self.devices = self.differences = self.explained = 0
        self.shown: list[Difference] = []
        self.notes: list[str] = []
        self.faults: list[str] = []
        self._settings = settings
        self._limit = limit
        self._json = json
        topics = Topics.of(settings)
        detections = ("nb_beacon", "detection_trace")
        self._figures: dict[str, tuple[str, ...]] = dict.fromkeys(topics.all_detections, detections)
        self._figures[topics.notifications] = ("nb_campaign", "reception")
        self._figures[topics.authentications] = ("authentication_trace",)
        self._figures[topics.presence] = ("visit_event",)
        self._topics = topics
        self._connection = connection
        self._reader = reader
        self._decoders: Mapping[str, DetectionDecoder] = detection_decoders(settings)
        self._ranges: dict[TopicPartition, OffsetRange] = {}
        self._partial: set[str] = set()

    async def run(self, progress: ShownProgress) -> None:
        """Read the topics, then compare every device. Raises CommandError."""
        await self._find_ranges()
        progress.expect(sum(max(0, end - begin) for begin, end in self._ranges.values()))
        catalog = await read_catalog(self._connection)
        query = select(type_coerce(func.current_timestamp(), Instant))
        now = (await self._connection.execute(query)).scalar_one()
        # Rows of the first day of the retention may be deleted at any time, and rows of future days
        # are not all kept.
        begin = now.timestamp() - (self._settings.trace_retention - 1) * _DAY
        retained = Interval(max(0.0, begin), now.timestamp() + _DAY)
        recount = Recount(
            catalog,
            retained=retained,
            read=lambda record: self._decoders[record.topic].read(record),
        )
        await self._read_into(recount, progress)
        traces = self._settings.trace == "all"  # else not every detection has a row
        async for sql in recorded_devices(self._connection, retained, traces):
            self.devices += 1
            counts = recount.devices.pop((sql.company_id, sql.udid), DeviceCounts())
            self._compare(recount, counts, sql)
        for (company_id, udid), counts in recount.devices.items():
            nothing = RecordedDevice(None, company_id, udid, traces=0 if traces else None)
            self._compare(recount, counts, nothing)
        recorded = await recorded_visit_events(self._connection, retained)
        for company_id in sorted(recorded.keys() | recount.visit_events.keys()):
            topics, rows = recount.visit_events[company_id], recorded.get(company_id, 0)
            if topics > rows or (topics < rows and "visit_event" not in self._partial):
                self._note(
                    Difference(company_id, None, "", "visit_event", topics, rows, may_be_edit=False)
                )

    async def _find_ranges(self) -> None:
        names = tuple(self._figures)
        positions = await recorded_positions(self._connection, names)
        query = select(ReplacedTopic.topic).where(ReplacedTopic.topic.in_(names))
        replaced = set(await self._connection.scalars(query))
        if not positions and not replaced:
            raise CommandError(
                "nothing to compare: no recorder has recorded anything of these topics in this "
                "database; start one with: proximity run --role recorder"
            )
        present = set(await partitions_of(self._settings, names))
        existing = {tp.topic for tp in present}
        # A topic that was created again with fewer partitions has nothing of the others left.
        gone = {tp for tp in positions if tp.topic in existing and tp not in present}
        replaced |= {tp.topic for tp in gone}
        for topic in sorted(replaced):
            self._note_partial(
                topic,
                f"another topic {topic} was recorded before this one: what it added is in SQL too",
            )
        ranges = await self._reader.ranges(positions.keys() & present)
        async with KafkaCluster(self._settings) as cluster:
            topic_ids = await cluster.topic_ids(names)
        for tp in positions.keys() - gone:
            found = ranges.get(tp, OffsetRange(0, 0))
            self._add_range(tp, positions[tp], found, topic_ids.get(tp.topic))

    def _add_range(
        self, tp: TopicPartition, recorded: Position, present: OffsetRange, topic_id: str | None
    ) -> None:
        name, last = f"{tp.topic}/{tp.partition}", recorded.offset
        if not recorded.may_belong_to(topic_id):
            self.faults.append(
                f"{name}: the topic was created again since SQL recorded it, and nothing of the "
                "new one is recorded yet: let a recorder read it, and compare again"
            )
            self._partial.update(self._figures[tp.topic])
            return
        if present.end < last:
            self.faults.append(
                f"{name}: SQL has recorded up to {last}, but the topic ends at {present.end}"
            )
        if present.begin > 0:
            begins = f"{name} begins at {present.begin:,}: what was before is gone"
            self._note_partial(tp.topic, begins)
        self._ranges[tp] = OffsetRange(min(present.begin, last), min(present.end, last))

    def _note_partial(self, topic: str, cause: str) -> None:
        """The topic no longer holds all records of its figures."""
        self.notes.append(f"{cause}, so SQL can only be seen to have too little")
        self._partial.update(self._figures[topic])

    def _compare(self, recount: Recount, counts: DeviceCounts, sql: RecordedDevice) -> None:
        unknown = recount.unknown_beacons[sql.udid]
        for each in differences(counts, sql, unknown_beacons=unknown, partial=self._partial):
            self._note(each)

    def _note(self, found: Difference) -> None:
        self.differences += 1
        self.explained += found.may_be_edit
        if self._json:
            echo_json(msgspec.structs.asdict(found))
        elif self.differences <= self._limit:
            self.shown.append(found)

    async def _read_into(self, recount: Recount, progress: ShownProgress) -> None:
        count = {
            **dict.fromkeys(self._decoders, recount.add_detection),
            self._topics.notifications: recount.add_notification,
            self._topics.authentications: recount.add_authentication,
            self._topics.presence: recount.add_presence,
        }
        begins = {tp: begin for tp, (begin, _) in self._ranges.items()}
        ends = {tp: end for tp, (_, end) in self._ranges.items()}
        async for records in self._reader.records_until(begins, ends):
            for part in chunked(records, AT_ONCE):
                topic = part[0].topic
                if decoder := self._decoders.get(topic):
                    await decoder.prepare(part)
                self.malformed += count_all(part, count[topic])
            self.records += len(records)
            progress.update(self.records)


def _cells(each: Difference) -> tuple[str, ...]:
    device = str(each.device_id or ("missing" if each.udid else "all"))
    note = "an edit of the catalog may explain it" if each.may_be_edit else ""
    topics, sql = f"{each.topics:,}", f"{each.sql:,}"
    return str(each.company_id), device, each.udid, each.figure, topics, sql, note


def _conclude(work: Verification, *, strict: bool) -> None:
    """The summary on standard error, and the exit status."""
    compared = f"compared {work.devices:,} devices with {work.records:,} records"
    lines = [f"{compared} ({work.malformed:,} of them malformed)", *work.notes, *work.faults]
    for line in lines:
        typer.echo(for_terminal(line), err=True)
    found, explained = work.differences, work.explained
    if work.faults or found > explained or (strict and found):
        edits = f", {explained:,} of them perhaps edits" if explained else ""
        partly = ", and not all could be compared" if work.faults else ""
        raise CommandError(f"{found:,} differences{edits}{partly}")
    edits = (
        f" but {found:,} that later edits of the catalog may explain "
        "(--strict makes them a failure)"
    )
    typer.echo(f"no differences{edits * bool(found)}", err=True)
