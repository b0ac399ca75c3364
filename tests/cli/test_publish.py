import re
import signal
import time

import msgspec

from tests.cli.given import detection
from tests.servers.proximity import Rig
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet


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
    assert done.stderr.startswith("proximity: standard input:2: ")
    assert done.stderr.endswith("1 detections are valid; nothing was published\n")


async def test_invalid_detections_are_skipped_on_request(proximity: Rig, topics: TopicSet) -> None:
    lines = [detection("a"), b'{"device": 1}', detection("b"), b"{}"]
    given, file = b"\n".join(lines), proximity.write("faulty.jsonl", b"\n".join(lines))
    for arguments in (["-"], [file]):
        done = proximity("publish", *arguments, "--skip-invalid", given=given)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") == 2
        assert done.stdout.endswith(", skipped 2\n")
    assert len(await topics.read("detections")) == 4
    done = proximity("publish", proximity.write("array.json", b"[1, "), "--skip-invalid")
    assert done.returncode == 1, "what cannot be read is no invalid detection"
    assert done.stderr.endswith("; 0 had been published\n")


async def test_lines_as_they_are_with_the_present_time(proximity: Rig, topics: TopicSet) -> None:
    lines = [b"no json", detection("a", detected_at="2020-01-01T00:00:00Z")]
    done = proximity("publish", "-", "--as-is", "--now", given=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    found = {record.key: record.value or b"" for record in await topics.read("detections")}
    assert found[None] == b"no json"
    assert msgspec.json.decode(found[b"a"])["detected_at"] > (time.time() - 60) * 1000


def test_a_broker_that_is_not_there_is_one_line(rig: Rig) -> None:
    rig.settings["KAFKA_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    for command in (["publish", "-"], ["dead-letters", "list"], ["dead-letters", "replay"]):
        done = rig(*command)
        assert done.returncode == 1
        assert done.stderr.startswith("proximity: Kafka at 127.0.0.1:1 does not serve: ")
        assert done.stderr.count("\n") == 1


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
