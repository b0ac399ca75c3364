"""Dead letters as they are listed and put back."""

import json
from dataclasses import replace

from engine.cli.dead_letters import Letter
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from tests.kafka.records import record
from tests.servers.proximity import Rig
from tests.system.topics import Message, TopicSet


async def put(
    topics: TopicSet,
    key: bytes | None,
    value: bytes | None,
    reason: str = "malformed_json",
    topic: str | None = None,
) -> None:
    """Publish a dead letter as the engine does."""
    why = {"reason": reason, "detail": "it says [why]", "failed_at": "2026-11-20T10:00:00+0000"}
    where = {"topic": topic or topics.name("detections"), "partition": "1", "offset": "42"}
    headers = [(name, text.encode()) for name, text in (why | where).items()]
    await topics.publish([Message(key, value, headers)], "dead-letters")


async def values(topics: TopicSet) -> set[tuple[bytes | None, bytes | None]]:
    records = await topics.read("detections")
    assert len({(r.key, r.value) for r in records}) == len(records)
    return {(record.key, record.value) for record in records}


async def test_the_list_says_what_where_and_why(proximity: Rig, topics: TopicSet) -> None:
    await put(topics, b"a", b"not json\n")
    await put(topics, b"b", b"\xff\xfe", reason="invalid_field")
    done = proximity("dead-letters", "list")
    assert done.returncode == 0, done.stderr
    assert f"{topics.name('detections')}/1/42" in done.stdout
    assert "it says [why]" in done.stdout
    assert "not json\\u000a" in done.stdout
    assert done.stdout.endswith("2 dead letters: 1 invalid_field, 1 malformed_json\n")
    limited = proximity("dead-letters", "list", "--limit", "1")
    assert "the first 1 are shown (--limit)" in limited.stdout
    one = proximity("dead-letters", "list", "--reason", "invalid_field", "--json")
    (line,) = one.stdout.splitlines()
    letter = json.loads(line)
    assert (letter["key"], letter["value_base64"]) == ("b", "//4=")


async def test_a_replay_puts_every_letter_back_once(proximity: Rig, topics: TopicSet) -> None:
    expected: set[tuple[bytes | None, bytes | None]] = {
        (b"a", b"not json"),
        (b"b", b"\xff\x00"),
        (None, b"x"),
        (b"n", None),
    }
    for key, value in expected:
        await put(topics, key, value)
    dry = proximity("dead-letters", "replay", "--dry-run")
    assert dry.stdout == "4 dead letters would be put back\n"
    assert await values(topics) == set()
    done = proximity("dead-letters", "replay")
    assert (done.returncode, done.stdout) == (0, "4 dead letters put back\n"), done.stderr
    assert await values(topics) == expected
    assert proximity("dead-letters", "replay").stdout == "0 dead letters put back\n"
    assert await values(topics) == expected
    await put(topics, b"c", b"later")
    assert proximity("dead-letters", "replay").stdout == "1 dead letters put back\n"
    again = proximity("dead-letters", "replay", "--from-beginning", "--dry-run")
    assert again.stdout == "5 dead letters would be put back\n"


async def test_one_reason_at_a_time_and_few_at_a_time(proximity: Rig, topics: TopicSet) -> None:
    for number in range(4):
        await put(topics, b"k", b"m%d" % number)
        await put(topics, b"k", b"i%d" % number, reason="invalid_field")
    first = proximity("dead-letters", "replay", "--reason", "invalid_field", "--limit", "3")
    assert first.stdout == "3 dead letters put back\n"
    assert {value for _, value in await values(topics)} == {b"i0", b"i1", b"i2"}
    few = proximity("dead-letters", "replay", "--limit", "1")
    assert few.stdout == "1 dead letters put back\n"
    rest = proximity("dead-letters", "replay")
    assert rest.stdout == "4 dead letters put back\n"
    assert len(await values(topics)) == 8


async def test_letters_that_cannot_be_replayed_are_named_and_skipped(
    proximity: Rig, topics: TopicSet
) -> None:
    await put(topics, b"a", b"v", topic="payments")
    await put(topics, b"a", None, reason="too_large")
    # Put back it would add one to nb_beacon again. A call is counted by its id: it may go.
    await put(topics, b"a", b"v", reason="too_large")
    call = topics.name("connector-calls")
    await put(topics, b"a", b"v", reason="too_large", topic=call)
    await put(topics, b"a", b"good")
    done = proximity("dead-letters", "replay")
    assert (done.returncode, done.stdout) == (1, "2 dead letters put back\n")
    assert "the detection itself is counted" in done.stderr
    assert "its topic payments is none of" in done.stderr
    assert f"the original is at {topics.name('detections')}/1/42" in done.stderr
    assert done.stderr.endswith("proximity: 3 dead letters cannot be put back\n")
    assert await values(topics) == {(b"a", b"good")}


async def test_the_content_of_a_letter_is_escaped_on_a_terminal(
    proximity: Rig, topics: TopicSet
) -> None:
    """The headers come from any writer of the topic, and the values from phones."""
    escapes = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    await put(topics, escapes.encode(), escapes.encode(), reason=escapes, topic=escapes)
    for arguments in (("list",), ("list", "--json"), ("replay", "--dry-run"), ("replay",)):
        done = proximity("dead-letters", *arguments)
        output = done.stdout + done.stderr
        assert "owned" in output
        assert all(each.isprintable() or each == "\n" for each in output), repr(output)


def test_the_original_headers_are_restored() -> None:
    """The envelope of a CloudEvent stands there, and may have our names; and what else a record is
    read by, in whichever case."""
    own = [("ce_id", b"1"), ("ce_reason", b"mine"), ("ce_empty", b""), ("ce_id", b"2")]
    own += [("Content-Type", b"text/plain"), ("mqtt.topic", b"/gw/a/status")]
    origin = replace(record(b"v"), headers=[("case", b"a tracer's"), *own])
    written = DeadLetter(origin, DeadLetterReason.INVALID_FIELD, "why").outgoing("dead", 0.0)
    read = Letter(replace(record(written.value), headers=written.headers))
    assert (read.original().headers, read.reason) == (own, "invalid_field")
    assert read.topic == origin.topic
