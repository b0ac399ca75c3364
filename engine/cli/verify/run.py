"""The steps of `proximity verify`: snapshot SQL, read the topics up to its offsets, compare."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka import TopicPartition

from catalog.chunks import chunked
from catalog.database import Database
from engine.cli.errors import CommandError
from engine.cli.progress import PlainProgress
from engine.cli.verify.difference import Comparison, Difference
from engine.cli.verify.recount import DeviceShare, Interval, Recount, RecountCatalog, count_all
from engine.cli.verify.snapshot import SqlSnapshot, open_snapshot
from engine.kafka.decoding import AT_ONCE
from engine.kafka.detection_decoder import DetectionDecoder, detection_decoders
from engine.kafka.positions import Position
from engine.kafka.topic_reader import OffsetRange, TopicReader, open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.settings import Settings

_DAY = 86_400.0
_DELETED = OffsetRange(0, 0)


class RecordedRange(NamedTuple):
    """The recorded records that a partition still has, or a fault that makes them useless.

    `is_whole`: the topic still has every record of this partition that is recorded.
    """

    begin: int
    end: int
    fault: str | None
    is_whole: bool

    @property
    def records(self) -> int:
        """The number of offsets to read."""
        return max(0, self.end - self.begin)


class VerifyFindings(NamedTuple):
    """The results besides the differences.

    `replaced` are topics that took the name of another topic, whose records are in SQL's figures
    too.
    """

    replaced: set[str]
    ranges: dict[TopicPartition, RecordedRange]
    records: int
    malformed: int
    devices: int

    @property
    def incomplete(self) -> dict[TopicPartition, int]:
        """The partitions that no longer reach back to the beginning, with their first offset."""
        return {tp: each.begin for tp, each in self.ranges.items() if each.begin > 0}

    @property
    def faults(self) -> list[str]:
        """The faults that make a comparison impossible, a line each."""
        return [each.fault for each in self.ranges.values() if each.fault is not None]


async def verify(
    settings: Settings,
    database: Database,
    *,
    passes: int,
    progress: PlainProgress,
    on_difference: Callable[[Difference], None],
) -> VerifyFindings:
    """Recount and compare. The snapshot stays open while the topics are read.

    The topics are read `passes` times, each time for a share of the devices. Raises CommandError if
    nothing was recorded, KafkaError, SQLAlchemyError, OSError or TimeoutError.
    """
    topics = Topics.of(settings)
    names = (*topics.all_detections, topics.notifications, topics.authentications)
    async with (
        open_snapshot(database) as snapshot,
        # A record that is deleted before it is read would be missing in the count.
        open_topic_reader(settings, missing="error") as reader,
    ):
        positions = await snapshot.positions(names)
        replaced = await snapshot.replaced_topics(names)
        if not positions and not replaced:
            raise CommandError(
                "nothing to compare: no recorder has recorded anything of these topics in this "
                "database; start one with: proximity run --role recorder"
            )
        present = await reader.ranges(positions.keys() & set(await partitions_of(settings, names)))
        topic_ids = await reader.topic_ids(names)
        ranges = {
            tp: _recorded_range(tp, position, present.get(tp, _DELETED), topic_ids.get(tp.topic))
            for tp, position in sorted(positions.items())
        }
        progress.expect(sum(each.records for each in ranges.values()) * passes)
        work = _Verification(
            settings,
            topics,
            snapshot,
            reader,
            ranges,
            replaced,
            detection_decoders(settings),
            progress,
            on_difference,
        )
        return await work.run(passes)


def _recorded_range(
    tp: TopicPartition, recorded: Position, present: OffsetRange, topic_id: str | None
) -> RecordedRange:
    name, (begin, end) = f"{tp.topic}/{tp.partition}", present
    fault: str | None = None
    if not recorded.may_belong_to(topic_id):
        fault = (
            f"{name}: the topic was created again since SQL recorded it, and nothing of the new "
            "one is recorded yet: let a recorder read it, and compare again"
        )
        return RecordedRange(0, 0, fault, is_whole=False)
    last = recorded.offset
    if end < last:
        fault = f"{name}: SQL has recorded up to {last}, but the topic ends at {end}"
    return RecordedRange(min(begin, last), min(end, last), fault, is_whole=begin == 0)


@dataclass
class _Verification:
    settings: Settings
    topics: Topics
    snapshot: SqlSnapshot
    reader: TopicReader
    ranges: dict[TopicPartition, RecordedRange]
    replaced: set[str]
    decoders: Mapping[str, DetectionDecoder]
    progress: PlainProgress
    on_difference: Callable[[Difference], None]
    records: int = 0
    malformed: int = 0
    devices: int = 0

    async def run(self, passes: int) -> VerifyFindings:
        """All passes, one share of the devices after the other."""
        catalog = await self.snapshot.catalog()
        retained = self._retained(await self.snapshot.now())
        for number in range(passes):
            await self._pass(catalog, retained, DeviceShare(number, passes))
        # Each pass has read all records.
        records, malformed = self.records // passes, self.malformed // passes
        return VerifyFindings(self.replaced, self.ranges, records, malformed, self.devices)

    def _retained(self, now: float) -> Interval:
        """The time whose rows are compared.

        Rows of the first day of the retention may be deleted at any time, and rows of future days
        are not all kept.
        """
        return Interval(max(0.0, now - (self.settings.trace_retention - 1) * _DAY), now + _DAY)

    async def _pass(self, catalog: RecountCatalog, retained: Interval, share: DeviceShare) -> None:
        recount = Recount(
            catalog,
            retained=retained,
            read=lambda record: self.decoders[record.topic].read(record),
            share=share,
        )
        await self._read_into(recount)
        traces = self.settings.trace == "all"  # else not every detection has a row
        comparison = Comparison(recount, partial=self._partial_figures(), traces=traces)
        async for recorded in self.snapshot.devices(share, retained, traces):
            self.devices += 1
            for difference in comparison.differences(recorded):
                self.on_difference(difference)
        for difference in comparison.missing():
            self.on_difference(difference)

    async def _read_into(self, recount: Recount) -> None:
        count = {
            **dict.fromkeys(self.decoders, recount.add_detection),
            self.topics.notifications: recount.add_notification,
            self.topics.authentications: recount.add_authentication,
        }
        begins = {tp: each.begin for tp, each in self.ranges.items()}
        ends = {tp: each.end for tp, each in self.ranges.items()}
        async for records in self.reader.records_until(begins, ends):
            if records:
                topic = records[0].topic
                for part in chunked(records, AT_ONCE):
                    if decoder := self.decoders.get(topic):
                        await decoder.prepare(part)
                    self.malformed += count_all(part, count[topic])
                self.records += len(records)
                self.progress.update(self.records)

    def _partial_figures(self) -> set[str]:
        """The figures whose topics no longer hold all of their records."""
        figures = {
            **dict.fromkeys(self.topics.all_detections, ("nb_beacon", "detection_trace")),
            self.topics.notifications: ("nb_campaign", "reception"),
            self.topics.authentications: ("authentication_trace",),
        }
        cut = self.replaced | {tp.topic for tp, each in self.ranges.items() if not each.is_whole}
        return {figure for topic in cut for figure in figures[topic]}
