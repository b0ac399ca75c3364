"""The replay itself: decodes a batch, decides it against each catalog, and counts.

There is no await per detection.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from catalog.chunks import chunked
from engine.cli.progress import PlainProgress
from engine.cli.replay.comparison import CatalogComparison
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.outcome import ReplayFindings, outcome_of
from engine.cli.replay.period import ReplayPeriod
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.decoding import DecodedBatch
from engine.kafka.detection_decoder import DetectionDecoder
from engine.kafka.detections import DecodedDetection
from engine.kafka.partition_worker import Records
from engine.trigger.grants import Grant

# The grants of a catalog for some detections, and the positions of those that only it sends.
OnSent = Callable[[CatalogReplay, Sequence[Grant], set[int]], None]


class ReplaySource(Protocol):
    """A source of records. `read` counts towards `total` (None if the total is unknown)."""

    @property
    def name(self) -> str: ...
    @property
    def total(self) -> int | None: ...
    @property
    def read(self) -> int: ...
    def batches(self) -> AsyncGenerator[Records, None]: ...
    def check_times(self, detections: Sequence[DecodedDetection]) -> None: ...


class ReplayRun:
    """Replays a source against one catalog, or against two side by side.

    `decoders` are those of the source's topics. `period` is compared with the detections' own
    times; after that the times are moved by `shift` seconds. `on_sent` receives the grants of each
    batch.
    """

    def __init__(
        self,
        *,
        source: ReplaySource,
        replays: Sequence[CatalogReplay],
        period: ReplayPeriod,
        shift: float,
        decoders: Mapping[str, DetectionDecoder],
        on_sent: OnSent | None = None,
    ) -> None:
        self._source = source
        self._replays = replays
        self._comparison = CatalogComparison(*replays) if len(replays) > 1 else None
        self._period = period
        self._shift = shift
        self._decoders = decoders
        self._on_sent = on_sent
        self._records = self._undecodable = self._decided = 0
        self._first_fault = ""

    async def run(self, progress: PlainProgress) -> ReplayFindings:
        """Read to the end. Raises the errors of the source."""
        begin: float | None = None
        async with aclosing(self._source.batches()) as batches:
            async for records in batches:
                if begin is None:
                    begin = time.monotonic()
                    progress.expect(self._source.total)
                if records:
                    await self._take_all(records, self._decoders[records[0].topic])
                progress.update(self._records, self._source.read)
        return self._findings(0.0 if begin is None else time.monotonic() - begin)

    async def _take_all(self, records: Records, decoder: DetectionDecoder) -> None:
        for part in chunked(records, decoder.records_at_once):
            self._take(await decoder.decode(part), len(part))

    def _take(self, batch: DecodedBatch[DecodedDetection], records: int) -> None:
        self._records += records
        self._undecodable += len(batch.dead_letters)
        if batch.dead_letters and not self._first_fault:
            self._first_fault = _place_and_fault(self._source.name, batch.dead_letters[0])
        self._source.check_times(batch.messages)
        for counted, part in self._period.parts(batch.messages):
            self._decide(list(part), counted)

    def _decide(self, detections: list[DecodedDetection], counted: bool) -> None:
        if self._shift:
            for detection in detections:
                detection.detected_at += self._shift
        sent = [replay.decide(detections, counted=counted) for replay in self._replays]
        self._decided += len(detections) if counted else 0
        only: Sequence[set[int]] = [set() for _ in sent]
        if self._comparison is not None:
            only = self._comparison.note(*sent)
        if self._on_sent is not None:
            for replay, grants, positions in zip(self._replays, sent, only, strict=True):
                self._on_sent(replay, grants, positions)

    def _findings(self, seconds: float) -> ReplayFindings:
        outcomes = [
            outcome_of(replay, self._comparison, number)
            for number, replay in enumerate(self._replays)
        ]
        return ReplayFindings(
            self._source.name,
            self._records,
            self._undecodable,
            self._first_fault,
            self._decided,
            seconds,
            self._period.begins_cold,
            outcomes,
        )


def _place_and_fault(source: str, letter: DeadLetter) -> str:
    record = letter.record
    place = f"/{record.partition}" if record.topic else ""
    return f"{source}{place}:{record.offset}: {letter.detail}"
