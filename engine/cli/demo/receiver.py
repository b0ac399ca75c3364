"""Receives the engine's messages, as a push sender would, and counts them."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from engine.kafka.client_options import connection_options
from engine.kafka.messages import CampaignReference, KnownDevice
from engine.kafka.topics import Topics
from engine.process.settings import Settings


class _Firing(msgspec.Struct):
    """The fields that notifications and connector calls share."""

    id: str
    campaign: CampaignReference
    device: KnownDevice


_decode = msgspec.json.Decoder(_Firing).decode


class MessageReceiver:
    """`sends` and `phones` by campaign id; `first` has each campaign's first notification as
    received. Repeats are dropped by their id. `on_notification` is called for each one.
    """

    def __init__(self, settings: Settings) -> None:
        self.sends: Counter[int] = Counter()
        self.phones: defaultdict[int, set[str]] = defaultdict(set)
        self.first: dict[int, bytes] = {}
        self.on_notification: Callable[[bytes], None] = lambda _: None
        self._topics = Topics.named(settings.topic_prefix)
        self._received: set[str] = set()
        self._calls: set[str] = set()
        self._failed_calls: set[str] = set()
        self._deadline = settings.kafka_request_timeout
        self._consumer = AIOKafkaConsumer(
            self._topics.notifications,
            self._topics.connector_calls,
            self._topics.dead_letters,
            **connection_options(settings),
            auto_offset_reset="earliest",
            fetch_max_wait_ms=int(settings.kafka_fetch_wait * 1000),
        )

    async def run(self) -> None:
        """Receive until cancelled. Raises KafkaError."""
        # A start that is cancelled would leave its connection open.
        starting = asyncio.create_task(self._start())
        try:
            await asyncio.shield(starting)
            while True:
                for place, records in (await self._consumer.getmany(timeout_ms=200)).items():
                    for record in records:
                        self._take(place.topic, record.value or b"")
        finally:
            await asyncio.wait([starting])
            async with asyncio.timeout(self._deadline):
                await self._consumer.stop()

    async def _start(self) -> None:
        async with asyncio.timeout(self._deadline):
            await self._consumer.start()

    async def has_all(self) -> bool:
        """Whether everything published was received, and every call to the customer is answered."""
        if self._calls - self._received - self._failed_calls:
            return False
        partitions = self._consumer.assignment()
        async with asyncio.timeout(self._deadline):
            ends = await self._consumer.end_offsets(partitions)
            return all([await self._consumer.position(tp) >= ends[tp] for tp in partitions])

    async def ends(self) -> dict[TopicPartition, int]:
        """The current ends of the partitions that the recorder counts."""
        topics = (self._topics.detections, self._topics.notifications)
        number = len(self._consumer.partitions_for_topic(self._topics.notifications) or ())
        places = [TopicPartition(topic, each) for topic in topics for each in range(number)]
        async with asyncio.timeout(self._deadline):
            found: dict[TopicPartition, int] = await self._consumer.end_offsets(places)
        return found

    def _take(self, topic: str, value: bytes) -> None:
        try:
            firing = _decode(value)
        except msgspec.DecodeError:
            return  # a dead letter of another topic
        if topic == self._topics.connector_calls:
            self._calls.add(firing.id)
        elif topic == self._topics.dead_letters:
            self._failed_calls.add(firing.id)
        elif firing.id not in self._received:
            self._received.add(firing.id)
            self.sends[firing.campaign.id] += 1
            self.phones[firing.campaign.id].add(firing.device.udid)
            self.first.setdefault(firing.campaign.id, value)
            self.on_notification(value)
