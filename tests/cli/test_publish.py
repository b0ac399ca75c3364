"""Files of detections: what is read, what each fault says, and how it is published."""

import asyncio
import math
import re
import signal
import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from engine.cli.command import CommandError
from engine.cli.detection_file import DetectionFile, Entry, Format
from engine.cli.publish import Item, checked_items, send, stamped
from tests.cli.given import detection
from tests.servers.proximity import Rig
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet

UUID = "B5C4A7E06F0D4C8E9D5A2C1F7A9E4B10"
ONE = b'{ "device":{"udid":"a"},  "uuid":"%s", "major": 1, "minor": "2", "rssi": -60 }' % (
    UUID.encode()
)
TWO = ONE.replace(b'"a"', b'"b"')
PRETTY = msgspec.json.format(TWO, indent=4)
HEADER = "uuid,major,minor,udid,proximity,rssi,name,id_connector,detected_at"


def read(tmp_path: Path, content: bytes, form: Format = "jsonl") -> list[Entry]:
    path = tmp_path / "file"
    path.write_bytes(content)
    with DetectionFile(path, form) as file:
        twice = [list(file.entries()) for _ in range(2)]
    assert twice[0] == twice[1]
    return twice[0]


def faults(tmp_path: Path, content: bytes, form: Format = "jsonl") -> list[str]:
    path = tmp_path / "file"
    path.write_bytes(content)
    with DetectionFile(path, form) as file:
        found = list[str]()
        try:
            list(checked_items(file, found))
        except CommandError as error:
            found.append(str(error))
    return [fault.removeprefix(f"{path}:") for fault in found]


@pytest.mark.parametrize(
    ("whole", "values"),
    [
        (b"\xef\xbb\xbf%s\n\n%s\n" % (ONE, TWO), [(1, ONE), (3, TWO)]),
        (b"\n \n[\n%s,\n%s\n]\n\n" % (ONE, PRETTY), [(1, ONE), (2, PRETTY)]),
        (b"", []),
    ],
)
def test_json_is_read_byte_for_byte(
    tmp_path: Path, whole: bytes, values: list[tuple[int, bytes]]
) -> None:
    assert read(tmp_path, whole) == [Entry(line, value) for line, value in values]


GOOD = f"{UUID},1,2,a,near,,,,"


@pytest.mark.parametrize(
    ("form", "whole", "expected"),
    [
        ("jsonl", b"[\n%s,\n" % ONE, "1: no JSON array"),
        ("jsonl", b"\n[%s,\n%s]" % (ONE, TWO.replace(b"B5C4", b"zzzz")), "2: "),
        ("jsonl", ONE.replace(b'"a"', b'"\\u0000"'), "1: .*udid"),
        ("jsonl", ONE.decode().encode("utf-16"), "1: "),
        ("csv", f"{HEADER}\n{GOOD}\n{UUID},65536,2,a,near,,,,\n{GOOD}", "3: .*major"),
        ("csv", f"{HEADER}\n{GOOD}\n{UUID},1,2,a,near\n{GOOD}", "3: 5 cells; accepted: 9"),
        ("csv", f'{HEADER}\n{GOOD}\n{UUID},1,2,"a,near,,,,\n{GOOD}', "3: .*not CSV"),
        ("csv", "uuid;udid;rssi", ".*'uuid;udid;rssi' in the header; accepted, "),
        ("csv", "uuid,major,minor,udid,rssi,rssi", ".*'rssi', 'rssi' in the header"),
        ("csv", "", ".*nothing in the header"),
    ],
)
def test_a_fault_is_named_with_its_line(
    tmp_path: Path, form: Format, whole: bytes | str, expected: str
) -> None:
    (found,) = faults(tmp_path, whole.encode() if isinstance(whole, str) else whole, form)
    assert re.match(expected, found), found


def test_a_row_becomes_the_message_of_the_contract(tmp_path: Path) -> None:
    rows = f'{HEADER}\n{UUID},1,023,"a, b",Near,-70,Android,12,2026-11-20T10:00:00+0100\n'
    rows += f"\n{UUID},1,2,a,,-70,,,\n"
    first, second = read(tmp_path, rows.encode(), "csv")
    assert (first.offset, msgspec.json.decode(first.value)) == (
        2,
        {
            "uuid": UUID,
            "major": 1,
            "minor": "023",
            "proximity": "Near",
            "rssi": -70,
            "device": {"udid": "a, b", "name": "Android", "id_connector": 12},
            "detected_at": "2026-11-20T10:00:00+0100",
        },
    )
    message = msgspec.json.decode(second.value)
    assert set(message) == {"uuid", "major", "minor", "rssi", "device"}


def test_a_row_names_any_place(tmp_path: Path) -> None:
    rows = "udid,geofence,transition,latitude,longitude,accuracy,tag_kind,tag_value,api_key\n"
    rows += "a,7,enter,,,,,,\na,,,48.85,-2,,,,k\na,,,,,,qrcode,12 ,k\na,,,91,0,5,,,k\n"
    *good, bad = read(tmp_path, rows.encode(), "csv")
    places = [msgspec.json.decode(each.value) for each in good]
    device = {"device": {"udid": "a"}}
    assert places == [
        device | {"geofence": {"id": 7, "transition": "enter"}},
        device | {"position": {"latitude": 48.85, "longitude": -2.0}, "api_key": "k"},
        device | {"tag": {"kind": "qrcode", "value": "12 "}, "api_key": "k"},
    ]
    (found,) = faults(tmp_path, rows.encode(), "csv")
    assert re.match(r"5: .*position\.latitude", found), (found, bad)


def test_a_stamp_changes_detected_at_and_nothing_else() -> None:
    value = b'{"detected_at": "2020-01-01T00:00:00Z", "unknown": [1, 2.50]}'
    for given in (value, b'{"unknown": [1, 2.50]}'):
        fields = msgspec.json.decode(stamped(given, 1.5), type=dict[str, msgspec.Raw])
        assert {name: bytes(raw) for name, raw in fields.items()} == {
            "detected_at": b"1500",
            "unknown": b"[1, 2.50]",
        }


@pytest.mark.parametrize(("speed", "sent"), [(math.inf, {0: 4}), (10.0, {0: 1, 1: 2, 3: 1})])
async def test_the_pace(
    speed: float, sent: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many are sent at each second; the third one comes late, and is sent at once."""
    now, found = 0.0, Counter[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock, waiting = SimpleNamespace(monotonic=lambda: now), SimpleNamespace(sleep=sleep)
    monkeypatch.setattr("engine.cli.publish.time", clock)
    monkeypatch.setattr("engine.cli.publish.asyncio", waiting)
    monkeypatch.setattr("engine.cli.publish.Outgoing", lambda *_: found.update([now]))
    monkeypatch.setattr("engine.cli.publish._flush", AsyncMock(return_value=0))
    items = [Item(b"a", b"{}", 1000.0 + after) for after in (0.0, 10.0, 5.0, 30.0)]
    publisher: Any = None
    _ = [each async for each in send(publisher, "detections", items, speed=speed)]
    assert found == sent


async def test_json_lines_arrive_byte_for_byte_in_order_of_their_device(
    proximity: Rig, topics: TopicSet
) -> None:
    lines = [detection(f"phone-{n % 7}", n=n) + b"  " * (n % 3) for n in range(2500)]
    file = proximity.write("detections.jsonl", b"\n".join(lines) + b"\n\n")
    done = proximity("publish", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"published 2,500 detections to {topics.name('det')}")
    records = await topics.read("detections")
    for phone in range(7):
        key = b"phone-%d" % phone
        expected = [line for n, line in enumerate(lines) if n % 7 == phone]
        mine = [record for record in records if record.key == key]
        assert [record.value for record in mine] == expected
        assert len({record.partition for record in mine}) == 1
    assert len(records) == len(lines)


async def test_every_fault_of_a_file_is_named_before_anything_is_published(
    proximity: Rig, topics: TopicSet
) -> None:
    lines = [detection("a"), b'{"device": 1}', detection("b"), detection("c", major=70_000)]
    file = proximity.write("faulty.jsonl", b"\n".join(lines))
    done = proximity("publish", file)
    first, second, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert first.startswith(f"{file}:2: ")
    assert second.startswith(f"{file}:4: ")
    assert "major" in second
    assert last == f"proximity: {file} has 2 faults; nothing was published"
    assert await topics.read("detections") == []


def test_a_dry_run_names_the_faults_and_needs_no_server(rig: Rig) -> None:
    given = b"\n".join([detection("a"), b"{}"])
    done = rig("publish", "-", "--dry-run", given=given, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("standard input:2: ")
    assert done.stderr.endswith("1 detections are valid; nothing was published\n")


async def test_invalid_detections_are_skipped_on_request(proximity: Rig, topics: TopicSet) -> None:
    lines = [detection("a"), b'{"device": 1}', detection("b"), b"{}"]
    given, file = b"\n".join(lines), proximity.write("faulty.jsonl", b"\n".join(lines))
    for arguments in (["-"], [file]):
        done = proximity("publish", *arguments, "--skip-invalid", "--now", given=given)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") == 2
        assert done.stdout.endswith(", skipped 2\n")
    records = await topics.read("detections")
    assert [b'"detected_at":1' in (each.value or b"") for each in records] == [True] * 4
    done = proximity("publish", proximity.write("array.json", b"[1, "), "--skip-invalid")
    assert done.returncode == 1, "what cannot be read is no invalid detection"
    assert done.stderr.endswith("; 0 had been published\n")


@pytest.mark.parametrize("command", ["verify", "replay"])
async def test_ctrl_c_while_servers_are_silent(rig: Rig, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        rig.settings["DATABASE_URL"] = "postgresql://u:p@{}:{}/d".format(*silent.getsockname())
        waiting = rig.start(command)
        connection, _ = await asyncio.to_thread(silent.accept)
        with connection:
            waiting.send_signal(signal.SIGINT)
            assert (await waiting.ended(), waiting.stderr) == (130, "proximity: interrupted\n")


async def test_ctrl_c_ends_with_130_and_says_what_was_done(
    proximity: Rig, topics: TopicSet
) -> None:
    given = proximity.write("given.jsonl", b"\n".join([detection("a")] * 20_000) + b"\n")
    publish = proximity.start("publish", given, "--rate", "1000")

    async def some_are_published() -> bool:
        return len(await topics.read("detections")) > 0

    await eventually(some_are_published)
    publish.send_signal(signal.SIGINT)
    assert await publish.ended() == 130
    assert re.match(r"proximity: interrupted; [\d,]+ had been published\n", publish.stderr)
