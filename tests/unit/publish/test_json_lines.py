import msgspec
import pytest

from engine.publish.item import stamped
from engine.publish.json_lines import JsonLines

LINE = b'{ "device":{"udid":"phone 1"},  "uuid":"x", "unknown": [1, 2.50] }'


def test_a_line_goes_out_byte_for_byte_under_its_udid() -> None:
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
        b'{"device": {"udid": "a"}, "name": "\xff"}',
    ],
)
def test_what_has_no_udid_is_named_with_what_is_accepted_unless_it_goes_as_it_is(
    line: bytes,
) -> None:
    with pytest.raises(ValueError, match=r"accepted: a JSON object .*--as-is"):
        JsonLines().read(line)
    item = JsonLines(as_is=True).read(line)
    assert item is not None
    assert (item.key, item.value) == (None, line)


def test_recorded_pace_needs_a_time() -> None:
    reader = JsonLines(recorded=True)
    item = reader.read(b'{"device": {"udid": "a"}, "detected_at": 1500}')
    assert item is not None
    assert item.recorded == 1.5
    with pytest.raises(ValueError, match="detected_at is missing"):
        reader.read(LINE)
    with pytest.raises(ValueError, match="timestamp"):
        reader.read(b'{"device": {"udid": "a"}, "detected_at": "yesterday"}')


def test_a_stamp_changes_detected_at_and_nothing_else() -> None:
    before = LINE.replace(b'"uuid"', b'"detected_at": "2020-01-01T00:00:00Z", "uuid"')
    for value in (LINE, before):
        fields = msgspec.json.decode(stamped(value, 1.5), type=dict[str, msgspec.Raw])
        assert bytes(fields.pop("detected_at")) == b"1500"
        assert bytes(fields["unknown"]) == b"[1, 2.50]"
        assert set(fields) == {"device", "uuid", "unknown"}
