"""Whatever a topic of detections holds, each record is detections or one dead letter."""

import asyncio
import json
import math
import os
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.detections import BeaconKey
from engine.process.settings import FORMATS, REGISTERED_FORMATS
from rules.model import Zone
from tests.formats import registered
from tests.formats.records import BATCH, EVENT, SAMPLES, batch_of, decoder, refused, report
from tests.kafka.records import detection

EXAMPLES = 500 if "PROXIMITY_TEST_FULL" in os.environ else 16  # of each format in each envelope
SCHEMAS = {
    "avro": registered.AVRO.text,
    "protobuf": registered.PROTOBUF.answer("serialized")["schema"],
    "json-schema": "{}",
}
AT = 1_795_165_200_000_000
VALUES = {format_: [each.value for each in of] for format_, of in SAMPLES.items()} | {
    "own": [orjson.dumps(detection())],
    "avro": [registered.avro(registered.detection(rssi=-50, detected_at=AT))],
    "protobuf": [registered.protobuf(uuid="x", major=1, device={"udid": "d", "model": "m"})],
    "json-schema": [orjson.dumps(detection())],
}

numbers = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, 1e308, -1e308, 1e-320])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@cache
def decoder_of(format_: str) -> Any:
    """Of a topic, with a registry that has one schema, which is known already."""
    made: Any = decoder(format_, schema_registry_url="http://127.0.0.1:1")
    bare = format_.removeprefix("cloudevents+")
    if bare in SCHEMAS:
        registry = made.read_report
        registry._known[7] = registry.kind.compile(SCHEMAS[bare], {}), math.inf
        registry._get = no_such_schema
    return made


async def no_such_schema(_target: str) -> Any:
    """The answer to a torn record that names another schema."""
    raise ValueError("it has no schema of this id")


@st.composite
def torn(draw: st.DrawFn, sample: bytes) -> bytes:
    """The sample with a piece of it replaced by other bytes."""
    begin = draw(st.integers(0, len(sample)))
    end = draw(st.integers(begin, min(len(sample), begin + 30)))
    return sample[:begin] + draw(st.binary(max_size=20)) + sample[end:]


@st.composite
def other_values(draw: st.DrawFn, sample: bytes) -> bytes:
    """The sample with the values of some of its fields replaced."""

    def changed(value: Any) -> Any:
        if draw(st.integers(0, 7)) == 0:
            return draw(values)
        if isinstance(value, dict):
            return {name: changed(each) for name, each in value.items()}
        return [changed(each) for each in value] if isinstance(value, list) else value

    return json.dumps(changed(json.loads(sample))).encode()


@pytest.mark.parametrize("envelope", ["", "cloudevents+", "batch"])
@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_record_is_detections_or_a_dead_letter(
    format_: str, envelope: str, data: st.DataObject
) -> None:
    sample = data.draw(st.sampled_from(VALUES[format_]))
    kinds = [torn(sample)] + [other_values(sample)] * (format_ not in ("avro", "protobuf"))
    value = data.draw(st.one_of(kinds) | st.binary(max_size=60))
    if format_ in SCHEMAS:
        value, sample = registered.framed(7, value), registered.framed(7, sample)
    key = data.draw(st.sampled_from([None, b"", b"a/b/c/d", b"\xff"]) | st.binary(max_size=20))
    headers = EVENT
    if envelope == "batch":
        reports = [sample] * data.draw(st.integers(0, 2)) + [value] * data.draw(st.integers(0, 2))
        value, headers, envelope = batch_of(reports), BATCH, "cloudevents+"
        value = data.draw(st.just(value) | torn(value))
    record = report(value, key=key, headers=headers)
    batch = asyncio.run(decoder_of(f"{envelope}{format_}").decode([record]))
    assert len(batch.dead_letters) <= 1
    assert not (batch.messages and batch.dead_letters)
    for each in batch.messages:
        assert isinstance(each.zone, Zone)
        assert 1 <= len(each.message.device.udid) <= 255
        each.message.device.udid.encode()
        if isinstance(each.key, BeaconKey):
            assert 0 <= each.key.major <= 65535
        elif (position := each.message.position) is not None:
            assert abs(position.latitude) <= 90
            assert abs(position.longitude) <= 180
            assert position.accuracy is None or 0 <= position.accuracy < math.inf
        assert 0 <= each.detected_at <= 253_402_300_800
    indexes = [each.index for each in batch.messages]
    assert indexes == sorted(set(indexes))


JSON_FORMATS = sorted({*FORMATS} - {*REGISTERED_FORMATS})


@pytest.mark.parametrize("format_", JSON_FORMATS)
@pytest.mark.parametrize("deep", [b"[" * 100_000, b'[{"type":' * 100_000])
def test_json_nested_without_end(format_: str, deep: bytes) -> None:
    """By itself, in a field that nobody reads, or behind the last element."""
    sample = VALUES[format_][0].rstrip()
    inside = sample[:-1] + (b"," if sample.endswith(b"]") else b',"x":') + deep
    for value in (deep, inside):
        assert refused(format_, report(value))[0] in ("malformed_json", "invalid_field")
