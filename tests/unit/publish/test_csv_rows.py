import msgspec
import pytest

from engine.cli.publish.csv_rows import CsvRows
from engine.cli.publish.item import Item

UUID = "B5C4A7E06F0D4C8E9D5A2C1F7A9E4B10"
HEADER = b"uuid,major,minor,udid,proximity,rssi,name,id_connector,detected_at"


def read(row: str, header: bytes = HEADER, *, recorded: bool = False) -> Item:
    reader = CsvRows(recorded=recorded)
    assert reader.read(header) is None
    item = reader.read(row.encode())
    assert item is not None
    return item


def test_a_row_becomes_the_message_of_the_contract() -> None:
    item = read(f'{UUID},1,023,"a, b",Near,-70,Android,12,2026-11-20T10:00:00+0100')
    assert item.key == b"a, b"
    assert msgspec.json.decode(item.value) == {
        "uuid": "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10",
        "major": 1,
        "minor": 23,
        "proximity": "near",
        "rssi": -70,
        "device": {"udid": "a, b", "name": "Android", "id_connector": 12},
        "detected_at": "2026-11-20T10:00:00+0100",
    }


def test_an_empty_cell_is_an_absent_field() -> None:
    message = msgspec.json.decode(read(f"{UUID},1,2,a,,-70,,,").value)
    assert set(message) == {"uuid", "major", "minor", "rssi", "device"}


@pytest.mark.parametrize(("cell", "zone"), [("3", "far"), ("ProximityFar", "far")])
def test_a_zone_may_be_written_as_pipelines_do(cell: str, zone: str) -> None:
    assert msgspec.json.decode(read(f"{UUID},1,2,a,{cell},,,,").value)["proximity"] == zone


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("x,1,2,a,near,,,,", "uuid 'x'; accepted: 32 hexadecimal digits"),
        (f"{UUID},65536,2,a,near,,,,", "major '65536'; accepted: a whole number from 0 to 65535"),
        (f"{UUID},1,-1,a,near,,,,", "minor '-1'; accepted"),
        (f"{UUID},1,2,,near,,,,", "udid is empty; accepted: 1 to 255 characters"),
        (f"{UUID},1,2,{'a' * 256},near,,,,", "udid .*; accepted: 1 to 255 characters"),
        (f"{UUID},1,2,a,close,,,,", "proximity 'close'; accepted: immediate, near, far, unknown"),
        (f"{UUID},1,2,a,,-7x,,,", "rssi '-7x'; accepted: a whole number of dBm"),
        (f"{UUID},1,2,a,,,,,", "one of proximity and rssi is required"),
        (f"{UUID},1,2,a,near,,,,today", "detected_at 'today'; accepted: 2026-11-20T10:00:00"),
        (f"{UUID},1,2,a,near", "5 cells; accepted: 9"),
        (f'{UUID},1,2,"a,near,,,,', "not CSV: .*; a row is one line"),
    ],
)
def test_a_bad_row_is_named_with_what_is_accepted(row: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read(row)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (b"uuid,major,minor,udid,rsi", "unknown column 'rsi'; accepted: uuid, major, minor, prox"),
        (b"uuid;major;minor;udid;rssi", "the cells are separated by ';'; accepted: commas"),
        (b"uuid\tmajor\tminor", r"the cells are separated by '\\t'; accepted: commas"),
        (b"uuid,major,minor,udid,rssi,rssi", "the column rssi is there twice"),
        (b"uuid,major,udid,rssi", "the column minor is missing; required: uuid, major, minor, ud"),
        (b"uuid,major,minor,udid,name", "one of the columns proximity and rssi is required"),
        (b"uuid,\xff", "not UTF-8"),
    ],
)
def test_a_bad_header_is_named(header: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        CsvRows().read(header)


def test_an_empty_file_is_a_fault_and_a_header_alone_is_none() -> None:
    with pytest.raises(ValueError, match="empty; accepted: a header of uuid, major"):
        CsvRows().finish()
    reader = CsvRows()
    reader.read(b"\xef\xbb\xbf" + HEADER)
    reader.finish()


def test_recorded_pace_needs_a_time() -> None:
    assert read(f"{UUID},1,2,a,near,,,,1500", recorded=True).recorded == 1.5
    with pytest.raises(ValueError, match="detected_at is empty"):
        read(f"{UUID},1,2,a,near,,,,", recorded=True)
    with pytest.raises(ValueError, match="the column detected_at is missing"):
        CsvRows(recorded=True).read(b"uuid,major,minor,udid,rssi")
