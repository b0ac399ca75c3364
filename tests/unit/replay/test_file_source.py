"""Every form that publish reads."""

import json
from pathlib import Path

import pytest

from engine.cli.publish.form import Format
from engine.cli.publish.source import BLOCK, InputFaultError, opened
from engine.cli.replay.file_source import FileSource
from engine.kafka.detections import DecodedDetection, decode_detections

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
AT = "2026-11-20T10:00:00+0100"


def line(udid: str, **more: object) -> bytes:
    fields = {"uuid": UUID, "major": 1, "minor": 2, "rssi": -60, "detected_at": AT}
    return json.dumps(fields | {"device": {"udid": udid}} | more).encode()


async def read(
    path: Path, content: bytes, form: Format = Format.JSONL
) -> tuple[list[DecodedDetection], list[int]]:
    """The detections, and the lines of what is none."""
    file = path / "detections"
    file.write_bytes(content)
    found: list[DecodedDetection] = []
    dead: list[int] = []
    with opened(file) as stream:
        source = FileSource(stream, form)
        async for records in source.batches():
            batch = decode_detections(records, 2.0)
            source.check_times(batch.messages)
            found += batch.messages
            dead += [letter.record.offset for letter in batch.dead_letters]
        assert source.total == len(content)
        assert len(content) <= source.read <= len(content) + 1
    return found, dead


def udids(detections: list[DecodedDetection]) -> list[str]:
    return [each.message.device.udid for each in detections]


async def test_json_lines_with_what_is_no_detection_among_them(tmp_path: Path) -> None:
    lines = [b"\xef\xbb\xbf" + line("a"), b"", b" \t", b"{", line("b") + b"\r", b"[]", line("c")]
    found, dead = await read(tmp_path, b"\n".join(lines))
    assert udids(found) == ["a", "b", "c"]
    assert dead == [4, 6]
    assert [each.record.offset for each in found] == [1, 5, 7]


async def test_more_than_a_block(tmp_path: Path) -> None:
    count = 3 * BLOCK // len(line("0000"))
    found, dead = await read(tmp_path, b"\n".join(line(f"{n:04}") for n in range(count)))
    assert udids(found) == [f"{n:04}" for n in range(count)]
    assert dead == []


@pytest.mark.parametrize("before", [b"", b"\n \n", b"\xef\xbb\xbf", b"\n" * (BLOCK + 1)])
async def test_an_array(tmp_path: Path, before: bytes) -> None:
    content = before + b"[\n" + line("a") + b",\n" + line("b") + b"\n]\n"
    assert udids((await read(tmp_path, content))[0]) == ["a", "b"]
    wrong = before + b"[\n" + line("a") + b",\n" + line("b", uuid="?") + b"\n]\n"
    with pytest.raises(InputFaultError, match=f":{3 + before.count(bytes([10]))}: uuid '\\?'"):
        await read(tmp_path, wrong)


async def test_csv(tmp_path: Path) -> None:
    header = b"uuid,major,minor,proximity,udid,detected_at\n"
    rows = b"".join(b"%b,1,2,near,%d,%b\n" % (UUID.encode(), n, AT.encode()) for n in range(3))
    assert udids((await read(tmp_path, header + rows, Format.CSV))[0]) == ["0", "1", "2"]
    with pytest.raises(InputFaultError, match=":1: the column detected_at is missing"):
        await read(tmp_path, b"uuid,major,minor,proximity,udid\n", Format.CSV)
    with pytest.raises(InputFaultError, match=":1: empty; accepted: a header"):
        await read(tmp_path, b"", Format.CSV)


async def test_a_detection_needs_its_time(tmp_path: Path) -> None:
    untimed = line("b").replace(AT.encode(), b"").replace(b', "detected_at": ""', b"")
    with pytest.raises(InputFaultError, match=":2: detected_at is missing"):
        await read(tmp_path, line("a") + b"\n" + untimed + b"\n" + line("c"))
    with pytest.raises(InputFaultError, match=":3: detected_at is missing"):
        await read(tmp_path, b"[\n" + line("a") + b",\n" + untimed + b"]")
