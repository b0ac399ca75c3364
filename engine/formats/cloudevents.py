"""Removes the envelope of CloudEvents 1.0 (structured, binary or in batches) around any format.

https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/kafka-protocol-binding.md
The binding has no batches; clients that send batches use the media type of the JSON format
(https://github.com/cloudevents/spec/blob/main/cloudevents/formats/json-format.md, section 4).
"""

import base64
from collections.abc import Sequence
from typing import Literal

import msgspec

from engine.formats.report import MOST_SIGHTINGS, Report, header
from engine.kafka.messages import parse_text

_STRUCTURED = "application/cloudevents"
_JSON = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"


class _Event(msgspec.Struct, gc=False):
    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    time: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_batch = msgspec.json.Decoder(list[_Event]).decode
_decode_text = msgspec.json.Decoder(str).decode


def unwrapped(report: Report) -> Sequence[Report]:
    """The reports in the record's events (several in a batch), each with the time of its event.

    The header `content-type` says which mode the record has. Raises msgspec.DecodeError,
    RecursionError or ValueError.
    """
    content_type = (header(report, "content-type") or "").partition(";")[0].strip().lower()
    if content_type == _JSON:
        return (_structured(report, _decode(report.value)),)
    if content_type == _BATCH:
        return _of_batch(report)
    if content_type.startswith(_STRUCTURED):
        raise ValueError(
            f"structured CloudEvents must be {_JSON} or {_BATCH}, not {content_type[:80]}"
        )
    return (_binary(report),)


def _of_batch(report: Report) -> Sequence[Report]:
    events = _decode_batch(report.value)
    if len(events) > MOST_SIGHTINGS:
        raise ValueError(f"{len(events)} CloudEvents in a batch; at most {MOST_SIGHTINGS}")
    return [_structured(report, event) for event in events]


def _structured(report: Report, event: _Event) -> Report:
    if event.data_base64 is not None:
        if event.data is not msgspec.UNSET:
            raise ValueError("a CloudEvent has data or data_base64, not both")
        value = base64.b64decode(event.data_base64, validate=True)
    elif isinstance(event.data, msgspec.Raw):
        value = _data(bytes(event.data))
    else:
        raise ValueError("the CloudEvent has no data")
    return _dated(report._replace(value=value), event.time)


def _data(data: bytes) -> bytes:
    """The content of `data`: the JSON itself, or the text in a JSON string."""
    return _decode_text(data).encode() if data.lstrip()[:1] == b'"' else data


def _binary(report: Report) -> Report:
    version = header(report, "ce_specversion")
    if version is None:
        raise ValueError(f"no CloudEvent: neither content-type {_JSON} nor a header ce_specversion")
    if version != "1.0":
        raise ValueError(f"CloudEvents must have version 1.0, not {version[:80]}")
    for name in ("ce_id", "ce_source", "ce_type"):
        if not header(report, name):
            raise ValueError(f"the CloudEvent has no header {name}")
    return _dated(report, header(report, "ce_time"))


def _dated(report: Report, time: str | None) -> Report:
    return report if time is None else report._replace(at=parse_text(time))
