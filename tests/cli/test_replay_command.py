"""`proximity replay` of files without any server, and of a topic on both brokers."""

import asyncio
import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cli.application import run
from engine.kafka.messages import format_instant
from rules.model import Reason
from tests.cli.replay_run import TRIPLE, UUID, campaign, document
from tests.servers.proximity import Rig
from tests.system.topics import Message, TopicSet

END = {"end": "2040-12-31T00:00:00+0100"}
# The hall is in Tokyo; its morning of 25 October.
DAY = "2026-10-25T"
HEADER = "uuid,major,minor,proximity,udid,detected_at\n"


def rows(*detections: tuple[str, str]) -> str:
    return HEADER + "".join(f"{UUID},1,1,near,{udid},{DAY}{at}+0900\n" for udid, at in detections)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Detections and two catalogs, in the present directory."""
    monkeypatch.chdir(tmp_path)
    detections = [("a", "09:10:00"), ("b", "09:20:00"), ("a", "10:10:00"), ("c", "10:20:00")]
    (tmp_path / "detections.csv").write_text(rows(*detections))
    hello = campaign("Hello", **END)
    (tmp_path / "one.json").write_bytes(document(hello))
    late = campaign("Hello", **END) | {"start_time": "10:00", "end_time": "24:00"}
    (tmp_path / "two.json").write_bytes(document(late, campaign("=Bye", **END)))
    return tmp_path


def replay(files: Path, *arguments: str) -> int:
    first = ("replay", str(files / "detections.csv"), "--catalog", "one.json")
    return run([*first, "--without-sql", *arguments])


def test_as_text(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(files) == 0
    output, error = capsys.readouterr()
    assert error == ""
    lines = output.splitlines()
    assert lines[0].startswith("replayed 4 detections of ")
    assert lines[1] == "one.json: 3 notifications to 3 devices"
    (hello,) = (line for line in lines if line.startswith("Hall "))
    assert hello.split() == ["Hall", "Hello", "one.json", "3", "3", "1"]
    assert [line.split() for line in lines[-3:]] == [
        ["from", "one.json"],
        ["2026-10-25", "09:00", "2"],
        ["2026-10-25", "10:00", "1"],
    ]


def test_two_catalogs_side_by_side(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = files / "sent.csv"
    assert replay(files, "--compare", "two.json", "--json", "--sends", str(sent)) == 0
    output, _ = capsys.readouterr()
    found: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    summary = found[0]
    assert (summary["kind"], summary["detections"], summary["undecodable"]) == ("replay", 4, 0)
    assert summary["notifications"] == {"one.json": 3, "two.json": 5}
    assert summary["devices"] == {"one.json": 3, "two.json": 3}
    campaigns = {(c["catalog"], c["campaign"]): c for c in found if c["kind"] == "campaign"}
    assert {
        key: (c["sent"], c["only_here"], c["devices_only_here"]) for key, c in campaigns.items()
    } == {
        ("one.json", "Hello"): (3, 1, 1),
        ("two.json", "Hello"): (2, 0, 0),
        ("two.json", "=Bye"): (3, 3, 3),
    }
    hours = {
        (h["catalog"], h["campaign"], h["hour"]): h["sent"] for h in found if h["kind"] == "hour"
    }
    assert hours["one.json", "Hello", f"{DAY}09:00:00+0900"] == 2
    assert hours["two.json", "Hello", f"{DAY}10:00:00+0900"] == 2
    notified = list(csv.DictReader(io.StringIO(sent.read_text())))
    assert len(notified) == 8
    assert {line["udid"] for line in notified} == {"a", "b", "c"}
    assert {line["campaign"] for line in notified} == {"Hello", "'=Bye"}


def test_visits_with_other_settings_beside_the_present_ones(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ("09:00:00", "09:00:20", "09:01:10", "09:08:00")
    (files / "detections.csv").write_text(rows(*(("a", at) for at in times)))
    assert replay(files, "--visits", "exit=60", "--json") == 0
    found = list(map(json.loads, capsys.readouterr().out.splitlines()))
    visits = {(v["catalog"], v["place"]): v for v in found if v["kind"] == "visits"}
    assert {key: (v["visits"], v["flaps"], v["seconds"]) for key, v in visits.items()} == {
        ("one.json", "beacon"): (3, 1, 20),
        ("one.json", "venue"): (2, 0, 70),
        ("exit=60", "beacon"): (2, 0, 70),
        ("exit=60", "venue"): (2, 0, 70),
    }
    assert visits["one.json", "venue"]["lengths"]["1"] == 1
    assert found[0]["notifications"] == {"one.json": 1, "exit=60": 1}
    assert replay(files, "--visits", "margin=8") == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index("Visits") :]
    assert table[2].split()[:5] == ["beacon", "one.json", "3", "1", "0.1"]


def test_a_period_and_a_shift(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    period = ("--from", f"{DAY}10:00:00+0900", "--to", f"{DAY}10:20:00+0900")
    assert replay(files, *period, "--json") == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (summary["detections"], summary["begins_cold"]) == (1, True)
    assert summary["notifications"] == {"one.json": 1}
    assert replay(files, *period, "--warm-up", "1 hour", "--shift", "20 years") == 0
    output, _ = capsys.readouterr()
    assert "one.json: 0 notifications to 0 devices" in output
    assert "ended" in output


def test_faults_of_the_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "detections.csv").write_text(rows(("a", "09:10:00"), ("b", "9 o'clock")))
    assert replay(files) == 0
    assert f"the first: {files / 'detections.csv'}:3: " in capsys.readouterr().out
    array = files / "detections.json"
    array.write_text(f'[\n{{"uuid": "{UUID}"}}\n]')
    catalog = ("--catalog", str(files / "one.json"), "--without-sql")
    assert run(["replay", str(array), *catalog]) == 1
    assert f"{array}:1: " in capsys.readouterr().err
    lines = files / "detections.jsonl"
    untimed = {"uuid": UUID, "major": 1, "minor": 1, "rssi": -60, "device": {"udid": "a"}}
    lines.write_text(f"no detection\n{json.dumps(untimed)}\n")
    assert run(["replay", str(lines), *catalog]) == 1
    assert "there is no detection in " in capsys.readouterr().err
    assert run(["replay", "/nowhere/x.csv"]) == 1
    assert "cannot use /nowhere/x.csv" in capsys.readouterr().err
    (files / "one.json").write_text('{"companies": [{"nam": 1}]}')
    assert replay(files) == 1
    expected = capsys.readouterr().err.splitlines()
    assert expected[-1].startswith("proximity: one.json has ")
    assert all(line.startswith("one.json: companies[0]") for line in expected[:-1])


MINUTE = 60
MINUTES = 120
# (Of today: brokers delete what is days old.)
BEGIN = time.time() // 3600 * 3600 - 4 * 3600
PERIOD = ("--from", f"{BEGIN + 30 * MINUTE:.0f}000", "--to", f"{BEGIN + 60 * MINUTE:.0f}000")
CAMPAIGN = campaign("Now and then", cache="10 minutes", end="2040-12-31T00:00:00+0100")


def messages() -> Iterator[Message]:
    """A detection of each of two devices a minute, every seventh six minutes late, and what is
    none."""
    for number in range(MINUTES):
        at_ms = round((BEGIN + number * MINUTE) * 1000)
        arrived_ms = at_ms + (6 * MINUTE * 1000 if number % 7 == 0 else 0)
        for udid in ("a", "b"):
            body = TRIPLE | {"proximity": "near", "device": {"udid": udid}, "detected_at": at_ms}
            yield Message(udid.encode(), json.dumps(body).encode(), timestamp_ms=arrived_ms)
        yield Message(b"x", b"{", timestamp_ms=at_ms)


async def test_a_stretch_of_time(broker: str, topic_prefix: str, rig: Rig, tmp_path: Path) -> None:
    catalog, sends = tmp_path / "catalog.json", tmp_path / "sends.csv"
    catalog.write_bytes(document(CAMPAIGN))
    rig.settings |= {"KAFKA_BOOTSTRAP_SERVERS": broker, "TOPIC_PREFIX": topic_prefix}
    command = ("replay", "--catalog", str(catalog), "--without-sql")
    none = await asyncio.to_thread(rig, *command)
    assert re.search(r"there is no topic .*detections yet", none.stderr)
    await TopicSet(broker, topic_prefix, "").publish(messages())
    options = (*PERIOD, "--warm-up", "7 minutes", "--json", "--sends", str(sends))
    done = await asyncio.to_thread(rig, *command, *options)
    found: list[dict[str, Any]] = list(map(json.loads, done.stdout.splitlines()))
    # Minute 23 has the claim, before what is counted; 35, 42, 49 and 56 came too late.
    times = [format_instant(BEGIN + minute * MINUTE) for minute in (33, 43, 53)]
    sent = csv.DictReader(io.StringIO(sends.read_text()))
    assert sorted((each["udid"], each["detected_at"]) for each in sent) == [
        (udid, at) for udid in ("a", "b") for at in times
    ]
    by_reason = {row["reason"]: row["detections"] for row in found if row["kind"] == "reason"}
    assert by_reason == {Reason.THROTTLED: 46, Reason.STALE: 8, Reason.GRANTED: 6}
    summary = found[0]
    assert (summary["detections"], summary["begins_cold"]) == (60, False)
    assert 0 < summary["undecodable"] <= MINUTES
    assert summary["first_fault"].startswith(f"{topic_prefix}detections/")
    assert summary["records"] <= 3 * MINUTES
