"""Names of the topics."""

from engine.kafka.topics import Topics


def test_names_carry_the_prefix() -> None:
    assert Topics.named("a.b-").all() == (
        "a.b-detections",
        "a.b-authentications",
        "a.b-notifications",
        "a.b-connector-calls",
        "a.b-dead-letters",
    )
