"""The sizes that topics refuse."""

import pytest

from engine.kafka.batch_sender import LARGEST_MESSAGE, Outgoing, TopicLimits, message_size


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def of_size(size: int, topic: str = "t") -> Outgoing:
    return Outgoing(topic, b"key", b"x" * (size - 3), [])


def refuses(limits: TopicLimits, message: Outgoing) -> bool:
    return message_size(message) >= limits.refused_from(message.topic)


def test_the_size_of_a_message_is_that_of_key_and_value() -> None:
    assert message_size(of_size(100)) == 100
    assert message_size(Outgoing("t", None, None, [])) == 0


def test_a_refused_size_and_larger_ones_are_refused_for_a_minute() -> None:
    clock = Clock()
    limits = TopicLimits(clock)
    assert not refuses(limits, of_size(100))
    limits.note_refusal("t", [100])
    assert refuses(limits, of_size(100))
    assert refuses(limits, of_size(101))
    assert not refuses(limits, of_size(99))
    assert not refuses(limits, of_size(100, "another topic"))
    clock.now = 59.9
    assert refuses(limits, of_size(100))
    clock.now = 60.0
    assert not refuses(limits, of_size(100))


def test_of_two_refusals_the_smaller_counts_while_it_is_known() -> None:
    clock = Clock()
    limits = TopicLimits(clock)
    limits.note_refusal("t", [100])
    limits.note_refusal("t", [200])
    assert refuses(limits, of_size(100))
    limits.note_refusal("t", [50])
    assert refuses(limits, of_size(50))
    clock.now = 60.0
    limits.note_refusal("t", [300])
    assert not refuses(limits, of_size(299))
    assert refuses(limits, of_size(300))


def test_the_largest_is_refused_without_asking_the_brokers() -> None:
    limits = TopicLimits(Clock())
    assert not refuses(limits, of_size(LARGEST_MESSAGE))
    assert refuses(limits, of_size(LARGEST_MESSAGE + 1))


@pytest.mark.parametrize(("others", "joins"), [(0, True), (899_000, True), (899_001, False)])
def test_a_batch_stays_under_the_brokers_default(others: int, joins: bool) -> None:
    assert TopicLimits(Clock()).joins("t", 1000, others) is joins


def test_a_large_message_leaves_alone() -> None:
    limits = TopicLimits(Clock())
    assert limits.joins("t", 256 * 1024, 0)
    assert not limits.joins("t", 256 * 1024 + 1, 0)


def test_a_batch_that_was_refused_makes_the_next_half_as_large() -> None:
    limits = TopicLimits(Clock())
    limits.note_refusal("t", [100, 100])
    assert limits.joins("t", 1000, 449_000)
    assert not limits.joins("t", 1000, 449_001)
    limits.note_refusal("t", [100, 100])
    assert not limits.joins("t", 1000, 224_001)
    assert limits.joins("another topic", 1000, 449_001)
    assert not refuses(limits, of_size(100)), "it was refused with others, not alone"
