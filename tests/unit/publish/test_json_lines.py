import msgspec
import pytest

from engine.cli.publish.item import stamped
from engine.cli.publish.json_input import JsonLines

UUID = b"b5c4a7e06f0d4c8e9d5a2c1f7a9e4b10"
LINE = (
    b'{ "device":{"udid":"phone 1"},  "uuid":"' + UUID + b'", "major": 1, "minor": "2", '
    b'"rssi": -60, "unknown": [1, 2.50] }'
)


def test_a_line_is_published_unchanged_under_its_udid() -> None:
    item = JsonLines().read(LINE)
    assert item is not None
    assert (item.key, item.value, item.recorded) == (b"phone 1", LINE, None)


@pytest.mark.parametrize("line", [b"", b"   ", b"\t"])
def test_a_blank_line_is_no_detection(line: bytes) -> None:
    assert JsonLines().read(line) is None
    assert JsonLines(as_is=True).read(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'"device"',
        b"{}",
        b'{"device": {}}',
        b'{"device": {"udid": ""}}',
        b'{"device": {"udid": 7}}',
        b'{"device": {"udid": "a"}} trailing',
        LINE.replace(b"[1, 2.50]", b'"\xff"'),
        LINE.replace(b"phone 1", b""),
        LINE.replace(b"phone 1", b"\\u0000"),
        LINE.replace(b'"major": 1', b'"major": 65536'),
        LINE.replace(b'"minor": "2"', b'"minor": "99999"'),
        LINE.replace(b'"rssi": -60, ', b""),
        LINE.replace(b'"rssi": -60', b'"proximity": "next door"'),
        LINE.replace(b'"rssi": -60', b'"rssi": -60, "detected_at": "yesterday"'),
        LINE.replace(UUID, b"z" * 32),
    ],
)
def test_an_invalid_line_is_refused_with_the_accepted_form_unless_as_is(
    line: bytes,
) -> None:
    with pytest.raises(ValueError, match=r"accepted: a JSON object .*--as-is"):
        JsonLines().read(line)
    item = JsonLines(as_is=True).read(line)
    assert item is not None
    assert item.value == line


def test_as_it_is_the_key_is_the_udid_where_there_is_one() -> None:
    reader = JsonLines(as_is=True)
    keys = [reader.read(line) for line in (b'{"device": {"udid": "a"}}', b"{}", b"\xff")]
    assert [item and item.key for item in keys] == [b"a", None, None]


def test_a_wrong_uuid_is_reported() -> None:
    with pytest.raises(ValueError, match=r"uuid 'zzz.*32 hexadecimal digits"):
        JsonLines().read(LINE.replace(UUID, b"z" * 32))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"proximity": "next door"},
            "^proximity 'next door': not a proximity; accepted: immediate",
        ),
        ({"detected_at": "yesterday"}, "^detected_at 'yesterday': a timestamp is written 2026-"),
        ({"major": "x"}, "^major 'x': not a whole number from 0 to 65535;"),
        ({"minor": -1}, "^minor -1: not a whole number from 0 to 65535;"),
    ],
)
def test_a_wrong_field_is_named_with_what_stands_in_it(
    given: dict[str, object], named: str
) -> None:
    fields = msgspec.json.decode(LINE, type=dict[str, object]) | given
    with pytest.raises(ValueError, match=named):
        JsonLines().read(msgspec.json.encode(fields))


def test_another_encoding_is_reported() -> None:
    with pytest.raises(ValueError, match=r"^not UTF-8 \(byte 1 of the line\);"):
        JsonLines().read(LINE.decode().encode("utf-16"))


@pytest.mark.parametrize("line", [b"{", b'{"uuid": "x",', b'  {"device": {'])
def test_a_pretty_printed_file_is_refused_with_the_reason(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends within a detection: .*jq -c \. FILE"):
        JsonLines().read(line)


def test_recorded_pace_needs_a_time() -> None:
    reader = JsonLines(recorded=True)
    at = LINE.replace(b'"rssi"', b'"detected_at": 1500, "rssi"')
    item = reader.read(at)
    assert item is not None
    assert item.recorded == 1.5
    with pytest.raises(ValueError, match="detected_at is missing"):
        reader.read(LINE)
    with pytest.raises(ValueError, match="timestamp"):
        reader.read(at.replace(b"1500", b'"yesterday"'))


def test_a_stamp_changes_detected_at_and_nothing_else() -> None:
    before = LINE.replace(b'"uuid"', b'"detected_at": "2020-01-01T00:00:00Z", "uuid"')
    for value in (LINE, before):
        fields = msgspec.json.decode(stamped(value, 1.5), type=dict[str, msgspec.Raw])
        assert bytes(fields.pop("detected_at")) == b"1500"
        assert bytes(fields["unknown"]) == b"[1, 2.50]"
        assert set(fields) == {"device", "uuid", "major", "minor", "rssi", "unknown"}
