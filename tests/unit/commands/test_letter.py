import pytest
from aiokafka import ConsumerRecord

from engine.cli.dead_letters.letter import Letter, read_letter
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.topics import Topics
from engine.process.settings_sources import load_settings

TOPICS = Topics.named("p.")


def record(
    topic: str, value: bytes | None, headers: list[tuple[str, bytes]]
) -> "ConsumerRecord[bytes, bytes]":
    return ConsumerRecord(
        topic=topic,
        partition=3,
        offset=14,
        timestamp=0,
        timestamp_type=0,
        key=b"k",
        value=value,
        checksum=None,
        serialized_key_size=1,
        serialized_value_size=0,
        headers=headers,
    )


def letter(
    value: bytes | None,
    reason: DeadLetterReason = DeadLetterReason.MALFORMED_JSON,
    topic: str = "p.detections",
) -> Letter:
    origin = record(topic, value, [])
    outgoing = DeadLetter(origin, reason, "why").outgoing("p.dead-letters", 0.0)
    return read_letter(record("p.dead-letters", outgoing.value, list(outgoing.headers)))


def test_it_reads_what_the_engine_writes() -> None:
    read = letter(b"v")
    assert (read.topic, read.origin) == ("p.detections", "p.detections/3/14")
    assert (read.reason, read.detail) == ("malformed_json", "why")
    assert read.failed_at == "1970-01-01T00:00:00+0000"
    assert (read.key, read.value) == (b"k", b"v")
    assert read.obstacle(TOPICS) is None


def test_the_original_headers_are_restored() -> None:
    """The envelope of a CloudEvent stands there, and may have our names; and what else a record is
    read by, in whichever case."""
    own = [("ce_id", b"1"), ("ce_reason", b"mine"), ("ce_empty", b""), ("ce_id", b"2")]
    own += [("Content-Type", b"text/plain"), ("mqtt.topic", b"/gw/a/status")]
    own += [("__value_schema_id", b"\1" * 17)]
    origin = record("p.detections", b"v", [("case", b"a tracer's"), *own])
    written = DeadLetter(origin, DeadLetterReason.INVALID_FIELD, "why").outgoing("dead", 0.0)
    read = read_letter(record("p.dead-letters", written.value, list(written.headers)))
    assert (read.headers, read.reason, read.topic) == (own, "invalid_field", "p.detections")


def test_headers_that_would_make_a_dead_letter_too_large_are_left_out() -> None:
    many = record("p.detections", b"v", [("ce_h", b"x" * 100)] * 200)
    written = DeadLetter(many, DeadLetterReason.INVALID_FIELD, "why").outgoing("dead", 0.0)
    assert len(written.headers) == 6
    assert read_letter(record("p.dead-letters", b"v", list(written.headers))).headers == []


def test_detections_have_other_topics_too() -> None:
    topics = Topics.of(load_settings(topic_prefix="p.", detection_topics="gateways=minew"))
    assert letter(b"v", topic="gateways").obstacle(topics) is None
    too_large = letter(b"v", DeadLetterReason.TOO_LARGE, topic="gateways").obstacle(topics)
    assert "the detection itself is counted" in str(too_large)


def test_a_null_value_is_put_back_unless_it_was_left_out() -> None:
    assert letter(None).obstacle(TOPICS) is None
    obstacle = letter(None, DeadLetterReason.TOO_LARGE).obstacle(TOPICS)
    assert obstacle is not None
    assert "the original is at p.detections/3/14" in obstacle


def test_a_detection_whose_notification_was_too_large_is_counted_already() -> None:
    """Put back it would add one to nb_beacon again. A call is counted by its id: it may go."""
    obstacle = letter(b"v", DeadLetterReason.TOO_LARGE).obstacle(TOPICS)
    assert "the detection itself is counted" in str(obstacle)
    call = letter(b"v", DeadLetterReason.TOO_LARGE, topic="p.connector-calls")
    assert call.obstacle(TOPICS) is None


def test_a_topic_that_is_not_the_engines_is_refused() -> None:
    assert "other.topic is none of p.detections, p.authentications" in str(
        letter(b"v", topic="other.topic").obstacle(TOPICS)
    )
    bare = read_letter(record("p.dead-letters", b"v", []))
    assert (bare.reason, bare.origin) == ("?", "?/?/?")
    assert "is not named" in str(bare.obstacle(TOPICS))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "(null)"), (b"abc", "abc"), (b"a\n\xff", "a\\n\\xff"), (b"abcdefgh", "abcdef…")],
)
def test_values_are_shown_on_one_line(value: bytes | None, shown: str) -> None:
    assert letter(value).shown_value(6) == shown


def test_bytes_that_are_no_text_are_base64_in_json() -> None:
    assert letter(b"\xff").as_json()["value_base64"] == "/w=="
    assert letter(None).as_json()["value"] is None
