"""Receives messages without delay, so that the time of their arrival can be measured."""

from confluent_kafka import Consumer, Message


def received(consumer: Consumer, *, most: int, seconds: float) -> list[Message]:
    """The next messages, as soon as there is one; empty after `seconds`.

    librdkafka's `consume` alone waits until there are as many messages, or for the whole time: half
    of that time would be measured as latency.
    """
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(most, 0)]
