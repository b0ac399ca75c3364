"""What a publisher says of acknowledged messages, on both brokers."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from engine.kafka.batch_sender import _hash
from engine.kafka.publisher import Outgoing, Publisher
from engine.process.settings import Settings
from tests.contract.published import PARTITIONS, read
from tests.servers.waiting import eventually


async def test_what_is_acknowledged_is_told_before_the_call_returns(
    publisher: Publisher, topic: str
) -> None:
    messages = [Outgoing(topic, b"%d" % (n % 20), b"x" * 90_000, []) for n in range(60)]
    told: list[Outgoing] = []
    await publisher.publish(messages, told.extend)
    assert len(told) == len(messages)
    assert {id(message) for message in told} == {id(message) for message in messages}


async def test_a_partition_whose_leader_is_away_holds_up_no_other(
    settings: Settings, broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what arrived is not sent again with what did not."""
    short = settings.model_copy(update={"kafka_request_timeout": 0.5})
    one = Publisher.from_settings(short)
    await one.start()
    producer, leader = one._producer, asyncio.Event()
    send_batch = producer.send_batch

    async def without_leader(*given: Any, partition: int) -> Any:
        if partition == 1:
            await leader.wait()
        return await send_batch(*given, partition=partition)

    monkeypatch.setattr(producer, "send_batch", without_leader)
    messages = [Outgoing(topic, b"%d" % n, b"%d" % n, []) for n in range(40)]
    told: list[Outgoing] = []
    publishing = asyncio.create_task(one.publish(messages, told.extend))
    await eventually(lambda: one._errors._failures > 1, what="it is tried again, and in vain")
    assert {_hash(message.key or b"") % 2**31 % PARTITIONS for message in told} == {0, 2, 3}
    leader.set()
    await publishing
    assert len(told) == len(messages)
    await one.close()
    values = [record.value for record in await read(broker, topic)]
    assert sorted(values, key=str) == sorted((m.value for m in messages), key=str)


async def test_a_partition_that_takes_no_batch_in_time_is_tried_again(
    publisher: Publisher, broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, refusals = publisher._producer, iter([KafkaTimeoutError()])
    send_batch = producer.send_batch

    async def refused_once(*given: Any, partition: int) -> Any:
        if partition == 1 and (error := next(refusals, None)) is not None:
            raise error
        return await send_batch(*given, partition=partition)

    monkeypatch.setattr(producer, "send_batch", refused_once)
    messages = [Outgoing(topic, b"%d" % n, b"%d" % n, []) for n in range(40)]
    told: list[Outgoing] = []
    await publisher.publish(messages, told.extend)
    assert {id(message) for message in told} == {id(message) for message in messages}
    assert {record.value for record in await read(broker, topic)} == {m.value for m in messages}
