"""Reads detections from a file, in every format that `proximity publish` reads."""

import math
from collections.abc import AsyncGenerator, Sequence
from operator import attrgetter
from typing import cast

import msgspec

from engine.cli.publish.csv_rows import CsvRows
from engine.cli.publish.form import Format
from engine.cli.publish.item import Item, LineReader, PlacedError
from engine.cli.publish.json_input import JsonArray
from engine.cli.publish.source import InputFaultError, Source, line_blocks
from engine.kafka.detections import DecodedDetection
from engine.kafka.partition_worker import Records

FILE_TOPIC = ""  # the topic of records from a file
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_time_of = attrgetter("detected_at")


class FileRecord(msgspec.Struct, gc=False):
    """The fields of a Kafka record that the decoder reads.

    `offset` is the number of the line. There is no timestamp.
    """

    value: bytes
    offset: int
    timestamp: float = math.nan
    topic: str = FILE_TOPIC
    partition: int = 0
    key: bytes | None = None


class FileSource:
    """The records of a file. `total` and `read` count bytes; `total` is None for a pipe.

    JSON Lines go to the decoder unchanged: a line that is not a detection is counted, as it would
    be on Kafka. CSV and an array must be valid as a whole.
    """

    def __init__(self, source: Source, form: Format) -> None:
        self.total = source.size
        self.read = 0
        self._source = source
        self._reader: LineReader | None = CsvRows(recorded=True) if form is Format.CSV else None
        self._has_begun = form is Format.CSV

    @property
    def name(self) -> str:
        """The source's name in messages."""
        return self._source.name

    async def batches(self) -> AsyncGenerator[Records, None]:
        """Records, a block of the file at a time. Raises InputFaultError."""
        number = 0
        async for first, lines in line_blocks(self._source):
            if not lines:
                continue
            number = first + len(lines) - 1
            self.read += sum(map(len, lines)) + len(lines)
            yield self._as_records(self._records(first, lines))
        if self._reader is not None:
            yield self._as_records(self._rest(self._reader, number))

    def check_times(self, detections: Sequence[DecodedDetection]) -> None:
        """Raises InputFaultError for a detection without detected_at: a line has no timestamp."""
        if not math.isnan(sum(map(_time_of, detections))):
            return
        untimed = next(each for each in detections if math.isnan(each.detected_at))
        place = f"{self.name}:{untimed.record.offset}"
        raise InputFaultError(f"{place}: detected_at is missing, and its time is needed here")

    def _records(self, first: int, lines: list[bytes]) -> list[FileRecord]:
        if not self._has_begun:
            self._begin(first, lines)
        reader = self._reader
        if reader is None:
            return [
                FileRecord(line, number)
                for number, line in enumerate(lines, first)
                if line and not line.isspace()
            ]
        return [
            FileRecord(item.value, number)
            for number, line in enumerate(lines, first)
            if (item := self._item(reader, number, line.removesuffix(b"\r"))) is not None
        ]

    def _begin(self, number: int, lines: list[bytes]) -> None:
        """Choose JSON Lines or one array by the first line that is not blank."""
        if number == 1:
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        first = next((line for line in lines if line.strip()), b"")
        if not first:
            return
        self._has_begun = True
        if first.lstrip().startswith(b"["):
            self._reader = JsonArray(recorded=True)
            for _ in range(number - 1):  # blank lines of earlier blocks, so that numbers are right
                self._reader.read(b"")

    def _item(self, reader: LineReader, number: int, line: bytes) -> Item | None:
        try:
            return reader.read(line)
        except ValueError as error:
            raise self._fault(number, error) from None

    def _rest(self, reader: LineReader, last: int) -> list[FileRecord]:
        try:
            return [FileRecord(item.value, last) for item in reader.finish()]
        except PlacedError as error:
            raise self._fault(error.number, error) from None
        except ValueError as error:
            raise self._fault(last + 1, error) from None

    def _fault(self, number: int, error: ValueError) -> InputFaultError:
        return InputFaultError(f"{self.name}:{number}: {error}")

    @staticmethod
    def _as_records(records: list[FileRecord]) -> Records:
        return cast(Records, records)
