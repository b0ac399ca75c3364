import msgspec
import pytest

from engine.cli.publish.item import PlacedError
from engine.cli.publish.json_input import JsonInput

ONE = b'{"uuid": "b5c4a7e06f0d4c8e9d5a2c1f7a9e4b10", "major": 1, "minor": 2, "rssi": -60, \
"device": {"udid": "a"}}'
TWO = ONE.replace(b'"a"', b'"b"')
PRETTY = msgspec.json.format(TWO, indent=4)


def read(whole: bytes, *, recorded: bool = False) -> list[tuple[bytes | None, bytes]]:
    reader = JsonInput(recorded=recorded)
    items = [reader.read(line) for line in whole.split(b"\n")]
    return [(item.key, item.value) for item in (*items, *reader.finish()) if item is not None]


@pytest.mark.parametrize(
    ("whole", "values"),
    [
        (b"[%s,%s]" % (ONE, TWO), [ONE, TWO]),
        (b"\n \n[\n%s,\n%s\n]\n\n" % (ONE, PRETTY), [ONE, PRETTY]),
        (b"[%s,%s]" % (ONE, ONE), [ONE, ONE]),
        (b"\xef\xbb\xbf[%s]" % ONE, [ONE]),
        (b"\xef\xbb\xbf%s\n\n%s" % (ONE, TWO), [ONE, TWO]),
        (b"[]", []),
        (b"", []),
        (b" \n\n", []),
    ],
)
def test_an_array_is_taken_like_lines(whole: bytes, values: list[bytes]) -> None:
    assert [value for _, value in read(whole)] == values
    assert all(key in (b"a", b"b") for key, _ in read(whole))


@pytest.mark.parametrize(
    ("whole", "line", "expected"),
    [
        (b"\n[%s,\n%s]" % (ONE, TWO.replace(b"b5c4", b"zzzz")), 3, "uuid 'zzzz"),
        (b"[%s,\n  7]" % ONE, 2, "accepted: a JSON object"),
        (b"[\n%s,\n" % ONE, 1, "no JSON array"),
        (b"[%s] trailing" % ONE, 1, "no JSON array"),
        (b"[%s\n%s]" % (ONE, TWO), 1, "no JSON array"),
    ],
)
def test_a_fault_in_an_array_is_named_with_its_line(whole: bytes, line: int, expected: str) -> None:
    with pytest.raises(PlacedError, match=expected) as caught:
        read(whole)
    assert caught.value.number == line


def test_recorded_pace_needs_times_in_an_array_too() -> None:
    with pytest.raises(PlacedError, match="detected_at is missing"):
        read(b"[%s]" % ONE, recorded=True)
