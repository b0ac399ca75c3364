"""The step `decode`: records become detections, but for those that can be refused undecoded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.kafka.decoding import DecodedBatch
from engine.kafka.detection_decoder import DetectionDecoder, OwnFormatDecoder
from engine.kafka.detections import DecodedDetection
from engine.kafka.partition_worker import Records
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.decision_record import DecisionWatcher
from rules.outcome import Decision


class EarlyRefusals(Protocol):
    """Refuses detections before they are decoded (refusal_filter.pyx)."""

    def split(
        self, records: Records, remembered: RememberedClaims, now: float
    ) -> tuple[Records, list[Decision]]:
        """The records that must be decoded, and the decisions that refuse the others."""


class DecodedRecords(NamedTuple):
    """The decoded detections, and the decisions of those that were refused undecoded."""

    batch: DecodedBatch[DecodedDetection]
    refused: list[Decision]


@dataclass(frozen=True, kw_only=True)
class DecodeStep:
    """Decodes by the topic's decoder. `refusals` is None where nothing is compiled."""

    decoders: Mapping[str, DetectionDecoder]
    refusals: EarlyRefusals | None
    watchers: Sequence[DecisionWatcher]
    clock: Callable[[], float]

    async def decode(self, records: Records, remembered: RememberedClaims) -> DecodedRecords:
        """Decode records of one partition. Raises TooManyDeadLettersError."""
        decoder = self.decoders[records[0].topic]
        if (
            self.refusals is None
            or not isinstance(decoder, OwnFormatDecoder)
            or any(watcher.wants(len(records)) for watcher in self.watchers)
        ):
            return DecodedRecords(await decoder.decode(records), [])
        others, refused = self.refusals.split(records, remembered, self.clock())
        batch = await decoder.decode(others, records)
        for watcher in self.watchers:
            watcher.note_undecoded(refused)
        return DecodedRecords(batch, refused)
