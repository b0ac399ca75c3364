"""`proximity verify`, step by step: one snapshot of SQL, the topics up to its offsets, compare."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from aiokafka import TopicPartition

from catalog.database import Database
from engine.cli.verify.difference import Comparison, Difference
from engine.cli.verify.recount import Catalog, Interval, Recount, Share, count_all
from engine.cli.verify.snapshot import Snapshot, open_snapshot
from engine.cli.verify.topics import TopicReader, open_topics, present
from engine.kafka.positions import Position
from engine.kafka.topics import Topics
from engine.process.settings import Settings

_DAY = 86_400.0


class NothingRecordedError(Exception):
    """No recorder has recorded a record of these topics in this database."""


class Wish(NamedTuple):
    """What to compare. `retention`: days for which traces are kept.

    Without `traces` the rows of detection_trace are not compared: not every detection has one.
    """

    retention: int
    traces: bool
    passes: int


class Span(NamedTuple):
    """What a partition still holds of what is recorded, and what is wrong with it, if anything.

    `is_whole`: nothing that is recorded of this name is gone from the topic.
    """

    begin: int
    end: int
    fault: str | None
    is_whole: bool

    @property
    def records(self) -> int:
        """How many offsets there are to read."""
        return max(0, self.end - self.begin)


class Told(NamedTuple):
    """Whom to tell what is found: `begin` what will be read (records of all passes), `read` more
    of them, `difference` each."""

    begin: Callable[[int], None]
    read: Callable[[int], None]
    difference: Callable[[Difference], None]


class Findings(NamedTuple):
    """What the run came to, besides the differences. `spans` by partition; `past` are topics of
    whose name there was another one before, which SQL's figures hold too."""

    past: set[str]
    spans: dict[TopicPartition, Span]
    records: int
    malformed: int
    devices: int

    @property
    def incomplete(self) -> dict[TopicPartition, int]:
        """Where a topic does not reach back to the beginning, and what it begins with."""
        return {tp: span.begin for tp, span in self.spans.items() if span.begin > 0}

    @property
    def faults(self) -> list[str]:
        """What makes a comparison impossible, a line each."""
        return [span.fault for span in self.spans.values() if span.fault is not None]


async def verify(settings: Settings, database: Database, wish: Wish, told: Told) -> Findings:
    """Recount and compare. The snapshot stays open as long as the reading takes.

    Raises NothingRecordedError, KafkaError, SQLAlchemyError, OSError or TimeoutError.
    """
    topics = Topics.named(settings.topic_prefix)
    async with open_snapshot(database) as snapshot, open_topics(settings) as reader:
        names = (topics.detections, topics.notifications, topics.authentications)
        places = await snapshot.places(names)
        ids = await reader.ids(names)
        bounds = await reader.bounds(await present(settings, places))
        past = await snapshot.past(names)
        if not places and not past:
            raise NothingRecordedError
        spans = {
            tp: _span(tp, place, bounds.get(tp, (0, 0)), ids.get(tp.topic))
            for tp, place in sorted(places.items())
        }
        told.begin(sum(span.records for span in spans.values()) * wish.passes)
        kept = _kept(await snapshot.now(), wish.retention)
        run = _Run(settings, topics, snapshot, reader, spans, past, kept, wish, told)
        return await run.through()


def _kept(now: float, retention: int) -> Interval:
    """Rows of the first day of the retention may be on their way out, and those of days to come
    are not all kept: they are not compared."""
    return Interval(max(0.0, now - (retention - 1) * _DAY), now + _DAY)


def _span(
    tp: TopicPartition, place: Position, bounds: tuple[int, int], topic_id: str | None
) -> Span:
    name, (begin, end) = f"{tp.topic}/{tp.partition}", bounds
    recorded = place.offset
    fault: str | None = None
    if not place.may_belong_to(topic_id):
        fault = (
            f"{name}: the topic was made anew since SQL recorded it, and nothing of the new one "
            "is recorded yet: let a recorder read it, and compare again"
        )
        return Span(0, 0, fault, is_whole=False)
    if end < recorded:
        fault = f"{name}: SQL has recorded up to {recorded}, but the topic ends at {end}"
    return Span(min(begin, recorded), min(end, recorded), fault, is_whole=begin == 0)


class _Run:
    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        snapshot: Snapshot,
        reader: TopicReader,
        spans: dict[TopicPartition, Span],
        past: set[str],
        kept: Interval,
        wish: Wish,
        told: Told,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._snapshot = snapshot
        self._reader = reader
        self._spans = spans
        self._past = past
        self._kept = kept
        self._wish = wish
        self._told = told
        self._records = self._malformed = self._devices = 0

    async def through(self) -> Findings:
        """All passes, one share of the devices after the other."""
        catalog = await self._snapshot.catalog()
        for number in range(self._wish.passes):
            await self._pass(catalog, Share(number, self._wish.passes))
        passes = self._wish.passes  # each of which has read all records
        return Findings(
            self._past,
            self._spans,
            self._records // passes,
            self._malformed // passes,
            self._devices,
        )

    async def _pass(self, catalog: Catalog, share: Share) -> None:
        recount = Recount(
            catalog,
            kept=self._kept,
            path_loss_exponent=self._settings.path_loss_exponent,
            share=share,
        )
        await self._read_into(recount)
        comparison = Comparison(recount, partial=self._partial_figures(), traces=self._wish.traces)
        devices = self._snapshot.devices(share, self._kept, self._wish.traces)
        async for written in devices:
            self._devices += 1
            self._tell(comparison.of(written))
        self._tell(comparison.missing())

    def _partial_figures(self) -> set[str]:
        figures = {
            self._topics.detections: ("nb_beacon", "detection_trace"),
            self._topics.notifications: ("nb_campaign", "reception"),
            self._topics.authentications: ("authentication_trace",),
        }
        cut = self._past | {tp.topic for tp, span in self._spans.items() if not span.is_whole}
        return {figure for topic in cut for figure in figures[topic]}

    async def _read_into(self, recount: Recount) -> None:
        count = {
            self._topics.detections: recount.add_detection,
            self._topics.notifications: recount.add_notification,
            self._topics.authentications: recount.add_authentication,
        }
        begins = {tp: span.begin for tp, span in self._spans.items()}
        ends = {tp: span.end for tp, span in self._spans.items()}
        async for records in self._reader.records(begins, ends):
            if records:
                self._malformed += count_all(records, count[records[0].topic])
                self._records += len(records)
                self._told.read(len(records))

    def _tell(self, differences: Iterator[Difference]) -> None:
        for difference in differences:
            self._told.difference(difference)
