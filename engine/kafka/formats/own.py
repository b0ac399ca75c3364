"""This project's own format inside a CloudEvent.

Without an envelope engine/kafka/detections.py decodes it, which is faster.
"""

from collections.abc import Iterable

import msgspec

from engine.kafka.formats.report import Report, Sighting
from engine.kafka.messages import Detection

_decode = msgspec.json.Decoder(Detection).decode


def read(report: Report) -> Iterable[Sighting]:
    """The one detection of the report."""
    return (Sighting(0, _decode(report.value)),)
