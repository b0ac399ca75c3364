"""`proximity verify`: counts the topics again, and compares the counts with SQL.

Only the decoding is the recorder's; the counting is written without its code, which it checks.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple
from uuid import UUID

from aiokafka import TopicPartition
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncConnection
from typer import Option

from catalog.bounds import chunked
from catalog.models import Beacon, Company, Device, RecorderOffset, Venue
from engine.cli.command import CommandError, Json, begin_quietly, command
from engine.cli.output import echo_json, print_table, say, shown_progress
from engine.cli.servers import open_migrated_database, open_snapshot
from engine.formats.decoders import DetectionDecoder, detection_decoders
from engine.kafka.client import KafkaCluster
from engine.kafka.detections import BeaconKey, DecodedDetection, decode_records
from engine.kafka.offsets import Position
from engine.kafka.topic_reader import OffsetRange, TopicReader, open_topic_reader
from engine.kafka.topics import Topics, detection_topics
from engine.kafka.workers import Records
from engine.process.settings import Settings
from engine.recorder.readers import NotificationReader
from engine.redis.devices import DeviceKey

# A statement that reads all devices takes longer than those of the engine's daily work.
_STATEMENT_SECONDS = 3600.0
_MOST_SHOWN = 1000
FIGURES = ("nb_beacon", "nb_campaign")


@command("verify")
async def verify(
    strict: Annotated[bool, Option("--strict", help="Also fail on what edits explain.")] = False,
    as_json: Json = False,
) -> None:
    """Count the topics again, as far as SQL has recorded them, and compare.

    Compares nb_beacon and nb_campaign of every device. SQL is read in one read-only transaction,
    which stays open until the end; recorders may go on. The present catalog decides which beacons
    count, so a difference that a later edit may explain is marked. Memory: about 200 bytes a device
    and 100 a notification of the topics. Exit status 0: everything agrees, except what later edits
    of the catalog may explain (unless --strict); 1: there are differences, or nothing was recorded.
    """
    settings = begin_quietly()
    shown: list[Difference] = []
    number = explained = 0
    with shown_progress("read", "records") as progress:
        async with (
            open_migrated_database(settings, command_timeout=_STATEMENT_SECONDS) as database,
            open_snapshot(database) as connection,
            # A record that is deleted before it is read would be missing in the count.
            open_topic_reader(settings, missing="error") as reader,
        ):
            span = await _recorded_span(settings, connection, reader)
            recount, decoders = await recount_of(connection), detection_decoders(settings)
            progress(total=sum(end - begin for begin, end in span.ranges.values()))
            async for records in reader.records_until(span.ranges):
                decoder = decoders.get(records[0].topic)
                for part in chunked(records, decoder.records_at_once if decoder else len(records)):
                    await recount.add(part, decoder)
                progress(count=recount.read, completed=recount.read)
            async for each in differences(connection, recount, span.partial):
                number += 1
                explained += each.may_be_edit
                if as_json:
                    echo_json(each._asdict())
                elif number <= _MOST_SHOWN:
                    shown.append(each)
    if shown:
        print_table(Difference._fields, shown)
    read = f"{recount.read:,} records ({recount.malformed:,} of them malformed)"
    notes = (f"{each}, so SQL can only be seen to have too little" for each in span.notes)
    for line in (f"compared {recount.compared:,} devices with {read}", *notes, *span.faults):
        say(line, err=True)
    if span.faults or number > explained or (strict and number):
        edits = f", {explained:,} of them perhaps edits" if explained else ""
        partly = ", and not all could be compared" if span.faults else ""
        raise CommandError(f"{number:,} differences{edits}{partly}")
    edits = f" but {number:,} that later edits of the catalog may explain (see --strict)"
    say(f"no differences{edits if number else ''}", err=True)


class BeaconFact(NamedTuple):
    """The owner of a triple, and whether its beacon and venue are active now.

    `is_reused`: a deleted beacon had the same triple.
    """

    company_id: int
    active: bool
    is_reused: bool = False


class Difference(NamedTuple):
    """One figure of one device on which SQL and the topics differ.

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


@dataclass
class Recount:
    """Counts records, one by one, by the present beacons and the ids of the companies.

    `counts` has of each figure the counts by device, `doubts` by udid the detections that a later
    edit of the catalog may have counted differently.
    """

    beacons: Mapping[BeaconKey, BeaconFact]
    companies: Collection[int]
    counts: dict[str, Counter[DeviceKey]] = field(
        default_factory=lambda: {figure: Counter() for figure in FIGURES}
    )
    doubts: Counter[str] = field(default_factory=Counter)
    read: int = 0
    malformed: int = 0
    compared: int = 0  # devices in SQL
    _seen: set[bytes] = field(default_factory=set)

    async def add(self, records: Records, decoder: DetectionDecoder | None) -> None:
        """Count records of detections, or without a decoder of notifications."""
        if decoder is None:
            notifications = decode_records(records, NotificationReader.decode)
            dead = notifications.dead_letters
            for each in notifications.messages:
                self._add_notification(each.message.id, DeviceKey(*each.device))
        else:
            detections, dead = await decoder.decode(records)
            for detection in detections:
                self._add_detection(detection)
        self.read += len(records)
        self.malformed += len(dead)

    def _add_detection(self, detection: DecodedDetection) -> None:
        if not isinstance(detection.key, BeaconKey):
            return
        udid, beacon = detection.message.device.udid, self.beacons.get(detection.key)
        if beacon is not None and beacon.active:
            self.counts["nb_beacon"][DeviceKey(beacon.company_id, udid)] += 1
        if beacon is None or beacon.is_reused or not beacon.active:
            self.doubts[udid] += 1

    def _add_notification(self, id_: UUID, device: DeviceKey) -> None:
        if device.company_id in self.companies and id_.bytes not in self._seen:
            self._seen.add(id_.bytes)
            self.counts["nb_campaign"][device] += 1


async def recount_of(connection: AsyncConnection) -> Recount:
    """A recount by every beacon and company of the catalog."""
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
    return Recount(beacons, frozenset(await connection.scalars(select(Company.id))))


async def differences(
    connection: AsyncConnection, recount: Recount, partial: Collection[str] = ()
) -> AsyncIterator[Difference]:
    """The differences of everything in SQL, then what SQL lacks. In `partial` figures SQL may have
    more."""
    async for key, id_, *figures in _devices(connection, recount):
        for figure, sql in zip(FIGURES, figures, strict=True):
            topics = recount.counts[figure].pop(key, 0)
            if sql < topics or (sql > topics and figure not in partial):
                doubts = recount.doubts[key.udid] if figure == "nb_beacon" else 0
                may_be_edit = abs(sql - topics) <= doubts
                yield Difference(key.company_id, id_, key.udid, figure, topics, sql, may_be_edit)


async def _devices(
    connection: AsyncConnection, recount: Recount
) -> AsyncIterator[tuple[DeviceKey, int | None, int, int]]:
    """The devices in SQL with their figures, then the others that were counted."""
    query = select(Device.company_id, Device.udid, Device.id, Device.nb_beacon, Device.nb_campaign)
    async with connection.stream(query) as rows:
        async for company_id, udid, id_, nb_beacon, nb_campaign in rows:
            recount.compared += 1
            yield DeviceKey(company_id, udid), id_, nb_beacon, nb_campaign
    for key in {key for counts in recount.counts.values() for key in counts}:
        yield key, None, 0, 0


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
    of = RecorderOffset
    figures = {topic.name: "nb_beacon" for topic in detection_topics(settings)}
    figures[Topics.of(settings.topic_prefix).notifications] = "nb_campaign"
    query = select(of.topic, of.partition, of.next_offset, of.topic_id, of.replaced)
    query = query.where(of.topic.in_(figures)).order_by(of.topic, of.partition)
    rows = (await connection.execute(query)).all()
    positions = {TopicPartition(*each[:2]): Position(*each[2:4]) for each in rows}
    replaced = {each.topic for each in rows if each.replaced}
    if not positions:
        raise CommandError(
            "nothing to compare: no recorder has recorded anything of these topics in this "
            "database; start one with: proximity run --role recorder"
        )
    async with KafkaCluster(settings) as cluster:
        states = await cluster.visible(figures)
    present = {TopicPartition(name, each) for name in states for each in states[name].partitions}
    ranges = await reader.ranges(positions.keys() & present)
    span = _RecordedSpan()
    for tp, recorded in positions.items():
        name, state = f"{tp.topic}/{tp.partition}", states.get(tp.topic)
        begin, end = ranges.get(tp, OffsetRange(0, 0))
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
            span.notes.append(f"{name} begins at {begin:,}: what was before is gone")
            span.partial.add(figures[tp.topic])
        end = min(end, recorded.offset)
        span.ranges[tp] = OffsetRange(min(begin, end), end)
    for topic in sorted(replaced):
        span.notes.append(
            f"another topic {topic} was recorded before this one: what it added is in SQL"
        )
        span.partial.add(figures[topic])
    return span
